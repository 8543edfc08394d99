"""The alert rules in a real Prometheus: silent while all is well, and each fires for its fault."""

import shutil
import time
from contextlib import suppress
from pathlib import Path

import pytest

from kinesis_spout.monitoring import alert_rules, dashboard
from kinesis_spout.zookeeper import EmbeddedZooKeeper
from tests.fault.watched_applications import ALSO, APPLICATIONS, EXPECTED, WatchedApplications
from tests.support.grafana_dashboard import expressions
from tests.support.kinesis.unkind.endpoint import UnkindEndpoint
from tests.support.prometheus_server import Prometheus, SpedUp
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.second_environment,
    pytest.mark.zookeeper,
    pytest.mark.endpoint,
    pytest.mark.skipif(
        shutil.which("prometheus") is None,
        reason="no prometheus on PATH (Debian: apt-get install prometheus)",
    ),
]

SPED_UP = SpedUp(factor=90, least_seconds=5, most_for_seconds=10)
CALM_SECONDS = 20.0
ALL = {(name, f"KinesisSpout{alert}") for name, alerts in EXPECTED.items() for alert in alerts}
MAY = {(name, f"KinesisSpout{alert}") for name, alerts in ALSO.items() for alert in alerts}


def fired(prometheus: Prometheus, since: float) -> set[tuple[str, str]]:
    """What fired, with whose application, query, topology or stream it was."""
    found = set()
    for labels in prometheus.fired(since):
        whose = next(labels[label] for label in ("app", "query", "topology", "stream") if label in labels)
        found.add((whose, labels["alertname"]))
    return found


def test_the_faults_are_all_that_the_alerts_are_about() -> None:
    names = {line.split()[-1] for line in alert_rules().splitlines() if "- alert:" in line}
    assert {alert for _, alert in ALL} == names


def test_every_alert_is_silent_while_all_is_well_and_fires_for_its_fault(
    unkind: UnkindEndpoint, zookeeper_server: EmbeddedZooKeeper, fresh_root: str, tmp_path: Path
) -> None:
    folder = tmp_path / "prometheus"
    folder.mkdir()
    with (
        WatchedApplications(unkind, zookeeper_server, fresh_root, tmp_path) as applications,
        Prometheus(folder, applications.addresses, SPED_UP.rules(alert_rules())) as prometheus,
    ):
        began = time.time()
        wait_until(lambda: time.time() - began > CALM_SECONDS, "the calm to last")
        assert fired(prometheus, began) == set()
        working = prometheus.query("sum by (app) (kinesis_spout_records_acked_total) > 0")
        assert {series["metric"]["app"] for series in working} == set(APPLICATIONS)

        applications.begin_faults()
        faults_began = time.time()
        with suppress(AssertionError):  # what is missing is said below
            wait_until(lambda: fired(prometheus, faults_began) >= ALL, "all to fire", every_seconds=0.5)
        found = fired(prometheus, began)
        assert ALL - found == set()
        assert found - ALL <= MAY
        for proof, holds in applications.proofs():
            assert holds, proof
        for alert in prometheus.alerts():
            said = alert["annotations"]["summary"] + alert["annotations"]["description"]
            assert "<no value>" not in said
            assert "{{" not in said
        empty = [shown for shown in expressions(dashboard()) if not prometheus.query(shown)]
        assert [shown for shown in empty if "kinesis_spout_shard_" not in shown] == []
