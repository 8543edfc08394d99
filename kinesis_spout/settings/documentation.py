"""The options as text for help and documents, always the same, in the order of the table."""

import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, TypeVar

from kinesis_spout.settings.option import Option, Use
from kinesis_spout.settings.setting_messages import respelled
from kinesis_spout.settings.table import OPTIONS, SETTINGS
from kinesis_spout.settings.table.spelling import as_option

SETTING_HEADINGS: Final = ("setting", "allowed", "default", "meaning")
_HELP_COLUMNS: Final = 74
"""The columns that ``help()`` leaves to the docstring of a class, on a terminal of 80."""
_OPTION_HEADINGS: Final = ("option", "also spelled", "takes", "default", "meaning")


_Class = TypeVar("_Class", bound=type)


class Setting(NamedTuple):
    name: str
    type_text: str
    default: str
    """The default: "required" without one, and "none" for None."""
    doc: str


def options(rows: Iterable[Option] = SETTINGS.values()) -> Iterator[Setting]:
    """Describe settings: all of `SpoutConfig`, in its order, or those of other rows."""
    for option in rows:
        default = "none" if option.default is None else option.type.show(option.default)
        if option.is_required:
            default = "required"
        yield Setting(option.setting, option.allowed, default, option.doc)


def settings_table() -> str:
    rows = ((f"`{each.name}`", _quoted(each.type_text), each.default, each.doc) for each in options())
    return _markdown(SETTING_HEADINGS, rows)


def with_settings(rows: Iterable[Option]) -> Callable[[_Class], _Class]:
    """Decorate a class that takes settings as keyword arguments: its docstring lists them, for ``help()``."""

    def document(kind: _Class) -> _Class:
        if kind.__doc__ is not None:  # it is with python -OO
            kind.__doc__ = "\n".join((kind.__doc__.rstrip(), "", "    Settings:", *_help_lines(rows), "    "))
        return kind

    return document


def _help_lines(rows: Iterable[Option]) -> Iterator[str]:
    for each in options(rows):
        default = each.default if each.default == "required" else f"default {each.default}"
        for text, indent in ((f"{each.name}: {each.type_text}; {default}", 8), (each.doc, 12)):
            # The first four are a docstring's indentation, which help() removes.
            yield from textwrap.wrap(
                text,
                _HELP_COLUMNS + 4,
                initial_indent=" " * indent,
                subsequent_indent=" " * 12,
                break_long_words=False,
                break_on_hyphens=False,
            )


def markdown_table(for_: Use) -> str:
    """Return a Markdown table of the options of one use of ``format("kinesis")``."""
    rows = (_cells(option) for option in OPTIONS if for_ in option.uses)
    return _markdown(_OPTION_HEADINGS, rows) + "\n"


def _markdown(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _quoted(text: str) -> str:
    """Format a literal value as code: Markdown may take it for HTML."""
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
