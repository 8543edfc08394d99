"""The settings as text for help, always the same, in the order of the table."""

import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple, TypeVar

from kinesis_spout.settings.option import Option
from kinesis_spout.settings.table import SETTINGS

SETTING_HEADINGS: Final = ("setting", "allowed", "default", "meaning")
_HELP_COLUMNS: Final = 74
"""The columns that ``help()`` leaves to the docstring of a class, on a terminal of 80."""
_Class = TypeVar("_Class", bound=type)


class SettingText(NamedTuple):
    name: str
    type_text: str
    default: str
    """The default: "required" without one; for None what holds then."""
    doc: str


def options(rows: Iterable[Option] = SETTINGS.values()) -> Iterator[SettingText]:
    """Describe settings: all of `SpoutConfig`, in its order, or those of other rows."""
    for option in rows:
        yield SettingText(option.setting, option.allowed, option.default_words, option.doc)


def help_text(option: Option) -> str:
    """Describe a setting in Markdown: its meaning, and what it takes."""
    default = "required" if option.is_required else f"default: {option.default_words}"
    return f"{option.doc} Takes {quoted(option.allowed)}; {default}."


def with_settings(rows: Iterable[Option]) -> Callable[[_Class], _Class]:
    """Decorate a class that takes settings as keyword arguments: its docstring lists them, for ``help()``."""

    def document(kind: _Class) -> _Class:
        if kind.__doc__ is not None:  # it is with python -OO
            # Python 3.13 takes the indentation of a docstring away, older ones leave it.
            kind.__doc__ = "\n".join(
                (inspect.cleandoc(kind.__doc__), "", "Settings:", *_help_lines(rows), "")
            )
        return kind

    return document


def _help_lines(rows: Iterable[Option]) -> Iterator[str]:
    for each in options(rows):
        default = each.default if each.default == "required" else f"default {each.default}"
        for text, indent in ((f"{each.name}: {each.type_text}; {default}", 4), (each.doc, 8)):
            yield from textwrap.wrap(
                text,
                _HELP_COLUMNS,
                initial_indent=" " * indent,
                subsequent_indent=" " * 8,
                break_long_words=False,
                break_on_hyphens=False,
            )


def quoted(text: str) -> str:
    """Format a literal value as code: Markdown may take it for HTML."""
    return re.sub("'([^']+)'", r"`\1`", text)
