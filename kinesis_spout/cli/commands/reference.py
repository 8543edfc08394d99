"""Every setting, and every metric, from their tables: ``kinesis-spout options`` and ``metrics``."""

from typing import Annotated, Any, Final

import typer

from kinesis_spout.cli.output import print_json, print_table
from kinesis_spout.monitoring import examples
from kinesis_spout.monitoring.metrics import METRICS, Metric
from kinesis_spout.operations.errors import WrongArguments
from kinesis_spout.settings.documentation import SETTING_HEADINGS
from kinesis_spout.settings.documentation import options as all_options
from kinesis_spout.settings.option import Option
from kinesis_spout.settings.table import SETTINGS

_RULES: Final = (
    "type", "anyOf", "enum", "pattern", "minLength", "minimum", "maximum", "exclusiveMinimum",
)  # fmt: skip
"""The parts of a setting's JSON Schema that decide on a value."""

_METRIC_HEADINGS: Final = ("name", "kind", "unit", "labels", "meaning")


def options(
    *,
    json: Annotated[
        bool, typer.Option("--json", help="Print JSON: defaults as values, rules as JSON Schema.")
    ] = False,
) -> None:
    """List every setting: what it takes, its default, its meaning.

    Give one as --set NAME=VALUE, as KINESIS_SPOUT_NAME in the environment, in a TOML file (--config), or in
    Python as SpoutConfig.of(NAME=VALUE).
    """
    if json:
        print_json([_setting_document(option) for option in SETTINGS.values()])
    else:
        print_table(SETTING_HEADINGS, list(all_options()), folding=SETTING_HEADINGS[1:])


def _setting_document(option: Option) -> dict[str, Any]:
    """For programs: the default as the value that it is, the rule as JSON Schema."""
    return {
        "name": option.setting,
        "required": option.is_required,
        "default": option.default,
        "secret": option.secret,
        "schema": {key: rule for key, rule in option.schema.items() if key in _RULES},
        "allowed": option.allowed,
        "meaning": option.doc,
    }


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
    """List every metric, or print alert rules or a dashboard.

    Names are as Prometheus shows them; OpenTelemetry has them without `_total`.
    """
    if alerts + dashboard + json > 1:
        raise WrongArguments("expected one of --alerts, --dashboard and --json, got several")
    if alerts:
        typer.echo(examples.alert_rules(), nl=False)
    elif dashboard:
        typer.echo(examples.dashboard(), nl=False)
    elif json:
        print_json([_metric_document(metric) for metric in METRICS.values()])
    else:
        print_table(
            _METRIC_HEADINGS,
            [_metric_cells(metric) for metric in METRICS.values()],
            folding=_METRIC_HEADINGS[3:],
        )


def _metric_cells(metric: Metric) -> tuple[str, ...]:
    return metric.exposed_name, str(metric.kind), metric.unit, ", ".join(metric.labels), metric.doc


def _metric_document(metric: Metric) -> dict[str, Any]:
    return {
        "name": metric.exposed_name,
        "kind": str(metric.kind),
        "unit": metric.unit,
        "labels": list(metric.labels),
        "bounds": list(metric.bounds),
        "meaning": metric.doc,
    }
