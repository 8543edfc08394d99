"""``kinesis-spout options``: every setting, from the table."""

from typing import Annotated, Any, Final

import typer

from kinesis_spout.cli.output import print_json, print_table
from kinesis_spout.settings.documentation import SETTING_HEADINGS, settings_table
from kinesis_spout.settings.documentation import options as all_options
from kinesis_spout.settings.option import Option
from kinesis_spout.settings.table import SETTINGS

_RULES: Final = (
    "type", "anyOf", "enum", "pattern", "minLength", "minimum", "maximum", "exclusiveMinimum",
)  # fmt: skip
"""The parts of a setting's JSON Schema that decide on a value."""


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
    if json:
        print_json([_document(option) for option in SETTINGS.values()])
    elif markdown:
        typer.echo(settings_table())
    else:
        print_table(SETTING_HEADINGS, list(all_options()), folding=SETTING_HEADINGS[1:])


def _document(option: Option) -> dict[str, Any]:
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
