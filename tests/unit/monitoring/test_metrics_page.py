"""The tables of the page of metrics are what the code says.

To bring them up to date: ``python -m tests.unit.monitoring.test_metrics_page`` in the repository's folder.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from kinesis_spout.monitoring.metrics import (
    CONSUMER,
    METRICS,
    MONITORING,
    PREFIX,
    PRODUCER,
    QUERIES,
    SHARDS,
    TOPOLOGY,
    Kind,
    Metric,
)
from kinesis_spout.monitoring.otel import CONVENTIONS, KCL
from tests.support.made_tables import with_tables

PAGE = Path(__file__).parents[3] / "docs/reference/metrics.md"
MADE_BY = "tests/unit/monitoring/test_metrics_page.py"


def tables() -> dict[str, str]:
    parts = {
        "consumer": CONSUMER, "shards": SHARDS, "queries": QUERIES, "producer": PRODUCER, "topology": TOPOLOGY,
        "monitoring": MONITORING,
    }  # fmt: skip
    return {name: table(metrics) for name, metrics in parts.items()} | {"others": names_of_others()}


def table(metrics: Sequence[Metric]) -> str:
    """The rows, below the labels that all of them have. Names end in their units."""
    labels = min((metric.labels for metric in metrics), key=len)
    head = f"Labels: {', '.join(f'`{label}`' for label in labels)}."
    lines = [head, "", "| name | kind | meaning |", "| --- | --- | --- |"]
    for metric in metrics:
        more = ", ".join(f"`{label}`" for label in metric.labels[len(labels) :])
        by = f" Also by {more}." if more else ""
        lines.append(f"| `{metric.exposed_name}` | {metric.kind} | {metric.doc}{by} |")
    return "\n".join(lines)


def names_of_others() -> str:
    rows = ["| name | is | with the attributes |", "| --- | --- | --- |"]
    for name, row, attributes, factor in (*CONVENTIONS, *KCL):
        metric = METRICS[PREFIX + row]
        told = ", ".join(f"`{key}={value}`" for key, value in attributes.items() if value[0] != "{")
        unit = ", in milliseconds" if factor != 1 else ""
        samples = ", of samples" if metric.kind is Kind.HISTOGRAM else ""
        rows.append(f"| `{name}` | `{metric.name}`{unit}{samples} | {told} |")
    return "\n".join(rows)


def test_the_tables_of_metrics_are_those_of_the_code() -> None:
    assert PAGE.read_text() == with_tables(PAGE, tables(), MADE_BY)


def test_every_metric_is_on_the_page() -> None:
    named = re.findall(r"^\| `(kinesis_spout_\w+)` ", PAGE.read_text(), re.MULTILINE)
    assert sorted(named) == sorted(metric.exposed_name for metric in METRICS.values())


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE, tables(), MADE_BY))
