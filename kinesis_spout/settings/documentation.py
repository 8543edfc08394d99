"""The options as help and documents show them: always the same text, in the order of the table."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from kinesis_spout.settings.messages import respelled
from kinesis_spout.settings.option import Option, Use
from kinesis_spout.settings.table import OPTIONS, SETTINGS
from kinesis_spout.settings.table.spelling import as_option

SETTING_HEADINGS: Final = ("setting", "allowed", "default", "meaning")
_OPTION_HEADINGS: Final = ("option", "also spelled", "takes", "default", "meaning")


class Setting(NamedTuple):
    """A setting in words."""

    name: str
    type_text: str
    """What is allowed: "int >= 0, or none"."""
    default: str
    """The default: "required" where there is none, and "none" for None."""
    doc: str


def options() -> Iterator[Setting]:
    """Describe every setting, in the order of `SpoutConfig`."""
    for option in SETTINGS.values():
        default = "none" if option.default is None else option.type.show(option.default)
        if option.is_required:
            default = "required"
        yield Setting(option.setting, option.allowed, default, option.doc)


def settings_table() -> str:
    """Give a Markdown table of the settings."""
    rows = ((f"`{each.name}`", _quoted(each.type_text), each.default, each.doc) for each in options())
    return _markdown(SETTING_HEADINGS, rows)


def markdown_table(for_: Use) -> str:
    """Give a Markdown table of the options of one use of ``format("kinesis")``."""
    rows = (_cells(option) for option in OPTIONS if for_ in option.uses)
    return _markdown(_OPTION_HEADINGS, rows) + "\n"


def _markdown(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _quoted(text: str) -> str:
    """Show a value that is to be given as it is as code: Markdown may take it for HTML."""
    return re.sub("'([^']+)'", r"`\1`", text)


def _cells(option: Option) -> tuple[str, ...]:
    aliases = ", ".join(f"`{alias}`" for alias in option.aliases)
    default = option.unset if option.default_text is None else f"`{option.default_text}`"
    return (
        f"`{option.name}`",
        aliases,
        _quoted(option.type.text_words),
        default,
        respelled(option.doc, as_option),
    )
