"""The tables of the page of metrics are what the code says.

To bring them up to date: ``python -m tests.unit.monitoring.test_metrics_page`` in the repository's folder.
"""

import re
from collections.abc import Iterable
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


def table(metrics: Iterable[Metric]) -> str:
    rows = ["| name | kind | unit | labels | meaning |", "| --- | --- | --- | --- | --- |"]
    for metric in metrics:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        rows.append(f"| `{metric.exposed_name}` | {metric.kind} | {unit(metric)} | {labels} | {metric.doc} |")
    return "\n".join(rows)


def unit(metric: Metric) -> str:
    """In words: what is counted stands in braces."""
    words = {"s": "seconds", "By": "bytes", "1": "", "{batch}": "batches", "{record}/s": "records a second"}
    return words[metric.unit] if metric.unit in words else f"{metric.unit.strip('{}')}s"


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
