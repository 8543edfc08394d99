"""``kinesis-spout metrics``: the table, and the files of the package."""

import json

from kinesis_spout.monitoring import METRICS, alert_rules, dashboard
from tests.unit.cli.fake_world import FakeWorld

NAMES = [metric.exposed_name for metric in METRICS.values()]


def test_the_table_has_every_metric_as_prometheus_shows_it() -> None:
    lines = FakeWorld().call("metrics")[0].splitlines()
    assert [line.split()[0] for line in lines[1:]] == NAMES


def test_json_has_kind_unit_labels_and_meaning() -> None:
    rows = {row["name"]: row for row in json.loads(FakeWorld().call("metrics", "--json")[0])}
    assert list(rows) == NAMES
    assert rows["kinesis_spout_commit_seconds"]["kind"] == "histogram"
    assert rows["kinesis_spout_commit_seconds"]["bounds"][0] == 0.005
    assert rows["kinesis_spout_shard_holes"]["labels"] == ["app", "stream", "shard"]


def test_alert_rules_and_dashboard_are_printed_as_they_are() -> None:
    assert FakeWorld().call("metrics", "--alerts")[0] == alert_rules()
    assert FakeWorld().call("metrics", "--dashboard")[0] == dashboard()


def test_one_thing_is_printed_at_a_time() -> None:
    _, err = FakeWorld().call("metrics", "--alerts", "--json", exit_code=2)
    assert "expected one of --alerts, --dashboard and --json" in err
