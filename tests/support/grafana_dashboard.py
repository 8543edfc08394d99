"""Makes the dashboard for Grafana from the table of metrics.

What a metric means and its unit are the table's; here is only what stands where, and what is summed over what.
"""

import itertools
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kinesis_spout.monitoring.metrics import METRICS, PREFIX, Kind, Metric

_COLUMNS: Final = 24
_RATE: Final = "[$__rate_interval]"
_VARIABLES: Final = {"app": "$app", "stream": "$stream"}
_UNITS: Final = {"s": "s", "By": "bytes"}
_RATE_UNITS: Final = {"By": "Bps"}
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}


@dataclass(frozen=True, slots=True)
class Line:
    """What a panel shows: an expression, and what its series are called."""

    expression: str
    legend: str
    metric: Metric
    unit: str


@dataclass(frozen=True, slots=True)
class Panel:
    title: str
    lines: Sequence[Line]
    kind: str = "timeseries"
    width: int = 8
    height: int = 7


def rate(name: str, legend: str = "", by: str = "") -> Line:
    """How much of a counter comes in a second, over all members."""
    metric = METRICS[PREFIX + name]
    assert metric.kind is Kind.COUNTER, name
    over = by or ", ".join(metric.labels)
    unit = _RATE_UNITS.get(metric.unit, "cps")
    return Line(
        f"sum by ({over}) (rate({metric.exposed_name}{_selected(metric)}{_RATE}))",
        _legend(legend, over),
        metric,
        unit,
    )


def gauge(name: str, legend: str = "", how: str = "sum", by: str = "") -> Line:
    """A gauge, of all members."""
    metric = METRICS[PREFIX + name]
    assert metric.kind is Kind.GAUGE, name
    over = by or ", ".join(metric.labels)
    expression = f"{how} by ({over}) ({metric.exposed_name}{_selected(metric)})"
    return Line(expression, _legend(legend, over), metric, _UNITS.get(metric.unit, "short"))


def quantiles(name: str, legend: str = "") -> list[Line]:
    """The median and the tail of a histogram."""
    metric = METRICS[PREFIX + name]
    assert metric.kind is Kind.HISTOGRAM, name
    over = ", ".join(metric.labels)
    rates = f"sum by (le, {over}) (rate({metric.name}_bucket{_selected(metric)}{_RATE}))"
    return [
        Line(
            f"histogram_quantile({share}, {rates})",
            f"{_legend(legend, over)} p{share * 100:.0f}",
            metric,
            _UNITS.get(metric.unit, "short"),
        )
        for share in (0.5, 0.95, 0.99)
    ]


def since(name: str, legend: str = "") -> Line:
    """The seconds since a moment."""
    line = gauge(name, legend, how="max")
    return Line(f"time() - {line.expression}", line.legend, line.metric, "s")


def of_an_hour(name: str) -> Line:
    """How much a counter grew."""
    metric = METRICS[PREFIX + name]
    return Line(f"sum(increase({metric.exposed_name}{_selected(metric)}[1h]))", "in an hour", metric, "short")


def _selected(metric: Metric) -> str:
    chosen = [f'{label}=~"{variable}"' for label, variable in _VARIABLES.items() if label in metric.labels]
    return f"{{{','.join(chosen)}}}"


def _legend(legend: str, over: str) -> str:
    labels = " ".join(f"{{{{{label}}}}}" for label in over.split(", "))
    return f"{labels} {legend}".strip()


def stat(title: str, *lines: Line) -> Panel:
    return Panel(title, lines, kind="stat", width=4, height=4)


OVERVIEW: Final = (
    stat("Furthest behind", gauge("lag_max_seconds", how="max")),
    stat("Oldest unfinished", gauge("oldest_unfinished_seconds", how="max")),
    stat("Shards that stand still", gauge("shards_stalled")),
    stat("Paused", gauge("paused", how="max")),
    stat("Dead letters in an hour", of_an_hour("records_dead_lettered")),
    stat("Members", gauge("members", how="max")),
)
RECORDS: Final = (
    Panel(
        "Records",
        [
            rate("records_delivered", "delivered"),
            rate("records_acked", "acked"),
            rate("records_retried", "retried"),
            rate("records_timed_out", "timed out"),
            rate("records_dead_lettered", "dead-lettered"),
        ],
        width=12,
    ),
    Panel(
        "Behind the tip",
        [
            gauge("lag_max_seconds", "furthest", how="max"),
            gauge("lag_avg_seconds", "average", how="avg"),
        ],
        width=12,
    ),
    Panel("Age when handled", quantiles("record_age_seconds")),
    Panel("Handler, for a record", quantiles("handler_seconds")),
    Panel("Deliveries of an acked record", quantiles("record_attempts")),
    Panel(
        "Under way",
        [
            gauge("records_in_flight", "in flight"),
            gauge("retries_waiting", "retries waiting"),
            gauge("holes", "holes"),
            gauge("dead_letters_waiting", "dead letters not stored"),
        ],
    ),
    Panel("Read", [rate("read_bytes")]),
    Panel("Buffered", [gauge("buffered_bytes")]),
)
FAILURES: Final = (
    Panel("Failures, by exception", [rate("failures")], width=12),
    Panel("Given up, by reason and error", [rate("records_given_up")], width=12),
    Panel("Reads that Kinesis throttled", [rate("read_throttles")]),
    Panel("Too old", [rate("records_expired", "expired"), rate("records_skipped", "skipped")]),
    Panel("What should not be", [
        rate("batches_timed_out", "batches timed out"), rate("damaged_aggregates", "damaged aggregates"),
        rate("records_outside_shard", "records outside their shard"),
        rate("shards_trimmed", "shards trimmed"), gauge("retried_error", "error retried", how="max"),
    ]),
)  # fmt: skip
STORING: Final = (
    Panel("Commits", [rate("commits")], width=6),
    Panel("Time of a commit", quantiles("commit_seconds"), width=6),
    Panel("Not stored", [gauge("records_uncommitted")], width=6),
    Panel("Since", [
        since("last_progress_timestamp_seconds", "a record was finished"),
        since("last_commit_timestamp_seconds", "all was stored"),
    ], width=6),
    Panel("Shards, by state", [gauge("shards")], width=6),
    Panel("Shards that do not move", [
        gauge("shards_stalled", "stand still"), gauge("shards_congested", "congested"),
    ], width=6),
    Panel("Members", [gauge("members", how="max"), gauge("leads", "leaders")], width=6),
    Panel("Assignments written", [rate("assignment_changes")], width=6),
    Panel("What runs", [gauge("info", how="max", by="app, stream, version, member, door")],
          kind="table", width=24, height=6),
)  # fmt: skip
SHARDS: Final = tuple(
    Panel(title, [gauge(name, how="max", by="app, stream, shard")])
    for title, name in {
        "Behind the tip": "shard_lag_seconds",
        "Oldest unfinished": "shard_oldest_unfinished_seconds",
        "Stands still": "shard_stalled",
        "In flight": "shard_records_in_flight",
        "Retries waiting": "shard_retries_waiting",
        "Holes": "shard_holes",
    }.items()
)
QUERIES: Final = (
    Panel("Behind the tip", [
        gauge("query_lag_max_seconds", "furthest", how="max"),
        gauge("query_lag_avg_seconds", "average", how="max"),
    ]),
    Panel("Rows", [
        gauge("query_input_rows_per_second", "arrive", how="max"),
        gauge("query_processed_rows_per_second", "processed", how="max"),
    ]),
    Panel("Read", [rate("query_records", "records")], width=4),
    Panel("Bytes read", [rate("query_bytes")], width=4),
    Panel("Read ahead", [gauge("query_buffered_bytes", how="max")]),
    Panel("Throttled", [rate("query_throttles")], width=4),
    Panel("Micro-batches", [gauge("query_batch_id", how="max")], width=4),
    Panel("Since a micro-batch began", [since("query_batch_timestamp_seconds")]),
    Panel("Runs", [gauge("query_active", how="max")], width=12),
    Panel("Shards", [gauge("query_shards", how="max")], width=12),
)  # fmt: skip
PRODUCERS: Final = (
    Panel("Records", [
        rate("producer_records_put", "put"), rate("producer_records_sent", "sent"),
        rate("producer_records_recovered", "from the spool"),
    ]),
    Panel("Not put", [
        rate("producer_records_failed", "failed"), rate("producer_records_dropped", "dropped"),
        rate("producer_records_refused", "refused"), rate("producer_records_retried", "retried"),
        rate("producer_records_dead_lettered", "dead-lettered"),
    ]),
    Panel("Waiting", [gauge("producer_records_waiting")]),
    Panel("Calls", [rate("producer_calls")]),
    Panel("Time of a call", quantiles("producer_call_seconds")),
    Panel("Bytes", [gauge("producer_waiting_bytes", "waiting"), gauge("producer_spool_bytes", "in the spool")]),
)  # fmt: skip
TOPOLOGIES: Final = (
    Panel("Tuples", [
        rate("component_executed", "executed"), rate("component_emitted", "emitted"),
        rate("component_acked", "acked"),
    ]),
    Panel("Failed", [
        rate("component_failed", "failed"), rate("component_timed_out", "timed out"),
        rate("component_errors", "errors"), rate("source_failures", "not read"),
    ]),
    Panel("Time", [
        gauge("component_execute_seconds", "a call", how="max"),
        gauge("component_complete_seconds", "a tree", how="max"),
    ]),
)  # fmt: skip
ROWS: Final = {
    "Overview": OVERVIEW,
    "Records": RECORDS,
    "What fails": FAILURES,
    "Storing and sharing": STORING,
    "Shards (needs per_shard)": SHARDS,
    'Queries of format("kinesis")': QUERIES,
    "Producers": PRODUCERS,
    "Topologies": TOPOLOGIES,
}
_FOLDED: Final = frozenset(list(ROWS)[4:])


def dashboard() -> str:
    """The dashboard as JSON."""
    document = {
        "uid": "kinesis-spout",
        "title": "kinesis-spout",
        "description": "Made from the table of metrics; docs/reference/runbooks.md says what to do.",
        "tags": ["kinesis-spout"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": list(_variables())},
        "annotations": {"list": [_firing()]},
        "panels": list(_panels()),
    }
    return json.dumps(document, indent=1) + "\n"


def _variables() -> Iterator[dict[str, Any]]:
    yield {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}
    of = {
        "app": f"label_values({PREFIX}info, app)",
        "stream": f'label_values({{__name__=~"{PREFIX}(info|query_active|producer_records_put_total)"}}, stream)',
    }
    for name, query in of.items():
        yield {
            "name": name,
            "label": {"app": "Application", "stream": "Stream"}[name],
            "type": "query",
            "datasource": _SOURCE,
            "definition": query,
            "query": {"query": query, "refId": name},
            "refresh": 2,
            "sort": 1,
            "multi": True,
            "includeAll": True,
            "allValue": ".*",
            "current": {"text": ["All"], "value": ["$__all"]},
        }


def _firing() -> dict[str, Any]:
    """Alerts, drawn over every panel."""
    return {
        "name": "Alerts",
        "datasource": _SOURCE,
        "enable": True,
        "iconColor": "red",
        "expr": 'ALERTS{alertname=~"KinesisSpout.+",alertstate="firing"}',
        "titleFormat": "{{alertname}}",
        "textFormat": "{{app}} {{stream}}",
        "step": "60s",
    }


def _panels() -> Iterator[dict[str, Any]]:
    ids, top = itertools.count(1), 0
    for title, panels in ROWS.items():
        folded, number = title in _FOLDED, next(ids)
        placed = [_panel(next(ids), panel, at) for panel, at in _placed(panels, top + 1)]
        yield {
            "id": number,
            "type": "row",
            "title": title,
            "collapsed": folded,
            "gridPos": {"x": 0, "y": top, "w": _COLUMNS, "h": 1},
            "panels": placed if folded else [],
        }
        top += 1
        if not folded:
            yield from placed
            top = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in placed)


def _placed(panels: Sequence[Panel], top: int) -> Iterator[tuple[Panel, dict[str, int]]]:
    """From left to right, line by line."""
    left, height = 0, 0
    for panel in panels:
        if left + panel.width > _COLUMNS:
            left, top, height = 0, top + height, 0
        yield panel, {"x": left, "y": top, "w": panel.width, "h": panel.height}
        left, height = left + panel.width, max(height, panel.height)


def _panel(number: int, panel: Panel, at: dict[str, int]) -> dict[str, Any]:
    units = {line.unit for line in panel.lines}
    metrics = {line.metric.name: line.metric for line in panel.lines}
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": "\n\n".join(f"`{metric.exposed_name}`: {metric.doc}" for metric in metrics.values()),
        "datasource": _SOURCE,
        "gridPos": at,
        "fieldConfig": {"defaults": {"unit": units.pop() if len(units) == 1 else "short"}, "overrides": []},
        "options": _options(panel.kind),
        "targets": [
            {
                "refId": chr(ord("A") + at_line),
                "datasource": _SOURCE,
                "expr": line.expression,
                "legendFormat": line.legend,
                "instant": panel.kind == "table",
                "range": panel.kind != "table",
                "format": "table" if panel.kind == "table" else "time_series",
            }
            for at_line, line in enumerate(panel.lines)
        ],
    }


def _options(kind: str) -> dict[str, Any]:
    if kind == "timeseries":
        return {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}}
    if kind == "stat":
        return {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "value", "graphMode": "area"}
    return {}


def expressions(text: str) -> list[str]:
    """Every expression of a dashboard, with what Grafana puts in for its variables."""
    filled = text.replace("$__rate_interval", "5m").replace("$app", ".*").replace("$stream", ".*")
    return [json.loads(f'"{found}"') for found in re.findall(r'"expr": "((?:[^"\\]|\\.)*)"', filled)]
