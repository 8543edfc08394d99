"""``kinesis-spout options``: every setting, from where it is declared."""

from typing import Annotated, Final

import typer

from kinesis_spout.cli.output import print_json, print_table
from kinesis_spout.config import Option
from kinesis_spout.config import options as all_options

_HEADINGS: Final = ("setting", "allowed", "default", "meaning")


def options(
    *,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print a Markdown table.")] = False,
) -> None:
    """List every setting: what is allowed, the default, the meaning.

    Give one as --set NAME=VALUE, as KINESIS_SPOUT_NAME in the environment, in a TOML file (--config), or in
    Python as SpoutConfig.of(NAME=VALUE).
    """
    rows = list(all_options())
    if json:
        print_json([_document(option) for option in rows])
    elif markdown:
        typer.echo(_markdown(rows))
    else:
        print_table(_HEADINGS, [_cells(option) for option in rows], folding=_HEADINGS[1:])


def _document(option: Option) -> dict[str, str]:
    return {
        "name": option.name,
        "allowed": option.type_text,
        "default": option.default,
        "meaning": option.doc,
    }


def _cells(option: Option) -> tuple[str, str, str, str]:
    return option.name, option.type_text, option.default, option.doc


def _markdown(rows: list[Option]) -> str:
    lines = [f"| {' | '.join(_HEADINGS)} |", "| --- | --- | --- | --- |"]
    for option in rows:
        name, *cells = (cell.replace("|", "\\|") for cell in _cells(option))
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return "\n".join(lines)
