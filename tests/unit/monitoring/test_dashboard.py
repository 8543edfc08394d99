"""The dashboard that users begin with is made from the table, and has all of it.

To bring it up to date: ``python -m tests.unit.monitoring.test_dashboard`` in the repository's folder.
"""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kinesis_spout.monitoring import dashboard, examples
from kinesis_spout.monitoring.metrics import METRICS, PREFIX, Kind
from tests.support import grafana_dashboard

FILE = Path(examples.__file__).parent / "dashboard.json"


def test_the_dashboard_is_that_of_the_table() -> None:
    assert dashboard() == grafana_dashboard.dashboard()


def test_every_metric_is_on_the_dashboard_and_no_other() -> None:
    shown = set(re.findall(rf"{PREFIX}\w+", "".join(grafana_dashboard.expressions(dashboard()))))
    of_histograms = {f"{metric.name}_bucket" for metric in METRICS.values() if metric.kind is Kind.HISTOGRAM}
    others = {metric.exposed_name for metric in METRICS.values() if metric.kind is not Kind.HISTOGRAM}
    assert shown == of_histograms | others


def panels(document: Any) -> Iterator[dict[str, Any]]:
    for panel in document["panels"]:
        yield panel
        yield from panels(panel) if panel["type"] == "row" else ()


def test_panels_have_ids_of_their_own_and_do_not_overlap() -> None:
    document = json.loads(dashboard())
    ids = [panel["id"] for panel in panels(document)]
    assert len(ids) == len(set(ids)) > 40
    for group in (document, *(row for row in panels(document) if row.get("collapsed"))):
        cells = [
            (x, y)
            for panel in group["panels"]
            for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
            for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
        ]
        assert len(cells) == len(set(cells))
        assert max(x for x, _ in cells) < 24


@pytest.mark.second_environment
@pytest.mark.skipif(
    shutil.which("promtool") is None, reason="no promtool on PATH (Debian: apt-get install prometheus)"
)
def test_every_expression_of_the_dashboard_is_valid(tmp_path: Path) -> None:
    rules = [
        {"record": f"panel:{number}", "expr": expression}
        for number, expression in enumerate(grafana_dashboard.expressions(dashboard()))
    ]
    assert len(rules) > len(METRICS)
    groups = {"groups": [{"name": "dashboard", "rules": rules}]}
    (tmp_path / "rules.yml").write_text(json.dumps(groups))  # JSON is YAML
    done = subprocess.run(
        ["promtool", "check", "rules", tmp_path / "rules.yml"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


if __name__ == "__main__":
    FILE.write_text(grafana_dashboard.dashboard())
