"""``kinesis-spout metrics``: every metric from the table, and what to begin a monitor with."""

from typing import Annotated, Any, Final

import typer

from kinesis_spout.cli.output import print_json, print_table
from kinesis_spout.monitoring import examples
from kinesis_spout.monitoring.metrics import METRICS, Metric
from kinesis_spout.operations.errors import WrongArguments

_HEADINGS: Final = ("name", "kind", "unit", "labels", "meaning")


def metrics(
    *,
    alerts: Annotated[
        bool, typer.Option("--alerts", help="Print alert rules for Prometheus, as YAML.")
    ] = False,
    dashboard: Annotated[
        bool, typer.Option("--dashboard", help="Print a dashboard for Grafana, as JSON.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the table as JSON.")] = False,
) -> None:
    """List every metric: its kind, unit, labels and meaning; or print alert rules, or a dashboard.

    Names are as Prometheus shows them; OpenTelemetry has them without `_total`.
    """
    if alerts + dashboard + json > 1:
        raise WrongArguments("expected one of --alerts, --dashboard and --json, got several")
    if alerts:
        typer.echo(examples.alert_rules(), nl=False)
    elif dashboard:
        typer.echo(examples.dashboard(), nl=False)
    elif json:
        print_json([_document(metric) for metric in METRICS.values()])
    else:
        print_table(_HEADINGS, [_row(metric) for metric in METRICS.values()], folding=_HEADINGS[3:])


def _row(metric: Metric) -> tuple[str, ...]:
    return metric.exposed_name, str(metric.kind), metric.unit, ", ".join(metric.labels), metric.doc


def _document(metric: Metric) -> dict[str, Any]:
    return {
        "name": metric.exposed_name,
        "kind": str(metric.kind),
        "unit": metric.unit,
        "labels": list(metric.labels),
        "bounds": list(metric.bounds),
        "meaning": metric.doc,
    }
