"""``kinesis-spout options``: every setting, from where it is declared."""

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final

import msgspec
import typer

from kinesis_spout.cli.output import print_json, print_table
from kinesis_spout.config import Option, SpoutConfig
from kinesis_spout.config import options as all_options

_HEADINGS: Final = ("setting", "allowed", "default", "meaning")

_QUOTED: Final = re.compile("'([^']+)'")
"""A value to be given as it is. Where it is not code, Markdown may take it for HTML."""

_RULES: Final = (
    "type", "anyOf", "enum", "pattern", "minLength", "minimum", "maximum", "exclusiveMinimum",
)  # fmt: skip
"""What is kept of a setting's JSON Schema: what decides on a value."""


def options(
    *,
    json: Annotated[
        bool, typer.Option("--json", help="Print JSON: defaults as values, rules as JSON Schema.")
    ] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print a Markdown table.")] = False,
) -> None:
    """List every setting: what is allowed, the default, the meaning.

    Give one as --set NAME=VALUE, as KINESIS_SPOUT_NAME in the environment, in a TOML file (--config), or in
    Python as SpoutConfig.of(NAME=VALUE).
    """
    rows = list(all_options())
    if json:
        schemas = _schemas()
        print_json([_document(option, schemas[option.name]) for option in rows])
    elif markdown:
        typer.echo(settings_table(rows))
    else:
        print_table(_HEADINGS, [_cells(option) for option in rows], folding=_HEADINGS[1:])


def _document(option: Option, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Give one setting for programs: the default as the value that it is, the rule as JSON Schema."""
    return {
        "name": option.name,
        "required": "default" not in schema,
        "default": schema.get("default"),
        "schema": {key: rule for key, rule in schema.items() if key in _RULES},
        "allowed": option.type_text,
        "meaning": option.doc,
    }


def _schemas() -> Mapping[str, Mapping[str, Any]]:
    (_,), components = msgspec.json.schema_components([SpoutConfig])
    schemas: Mapping[str, Mapping[str, Any]] = components[SpoutConfig.__name__]["properties"]
    return schemas


def _cells(option: Option) -> tuple[str, str, str, str]:
    return option.name, option.type_text, option.default, option.doc


def settings_table(rows: Iterable[Option]) -> str:
    """Give a Markdown table of settings, in their order; always the same text."""
    lines = [f"| {' | '.join(_HEADINGS)} |", "| --- | --- | --- | --- |"]
    for option in rows:
        name, allowed, *cells = (cell.replace("|", "\\|") for cell in _cells(option))
        allowed = _QUOTED.sub(r"`\1`", allowed)
        lines.append(f"| `{name}` | {allowed} | {' | '.join(cells)} |")
    return "\n".join(lines)
