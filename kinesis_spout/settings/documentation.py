"""The options as text for help and documents, always the same, in the order of the table."""

import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, TypeVar

from kinesis_spout.settings.option import Option, Topic, Use
from kinesis_spout.settings.setting_messages import respelled
from kinesis_spout.settings.table import OPTIONS, SETTINGS
from kinesis_spout.settings.table.spelling import as_option

SETTING_HEADINGS: Final = ("setting", "allowed", "default", "meaning")
_HELP_COLUMNS: Final = 74
"""The columns that ``help()`` leaves to the docstring of a class, on a terminal of 80."""
_Class = TypeVar("_Class", bound=type)


class SettingText(NamedTuple):
    name: str
    type_text: str
    default: str
    """The default: "required" without one, and "none" for None."""
    doc: str


def options(rows: Iterable[Option] = SETTINGS.values()) -> Iterator[SettingText]:
    """Describe settings: all of `SpoutConfig`, in its order, or those of other rows."""
    for option in rows:
        default = "none" if option.default is None else option.type.show(option.default)
        if option.is_required:
            default = "required"
        yield SettingText(option.setting, option.allowed, default, option.doc)


def settings_table(rows: Iterable[Option] = SETTINGS.values(), whose: str = "`KinesisSpout`") -> str:
    """Return Markdown: a heading for each topic, which says whose settings they are, and their table."""
    return _by_topic("setting", whose, rows, _setting_cells)


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


def options_table() -> str:
    """Return Markdown as `settings_table` does, of the options of ``format("kinesis")``."""
    return _by_topic("option", '`format("kinesis")`', (each for each in OPTIONS if each.uses), _option_cells)


def _by_topic(
    heading: str, whose: str, rows: Iterable[Option], cells: Callable[[Option], tuple[str, str]]
) -> str:
    options = list(rows)
    found = {topic: [option for option in options if option.topic is topic] for topic in Topic}
    tables = (
        f"### {topic.value} ({whose})\n\n{_markdown((heading, 'meaning'), map(cells, of_topic))}"
        for topic, of_topic in found.items()
        if of_topic
    )
    return "\n\n".join(tables) + "\n"


def _markdown(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _quoted(text: str) -> str:
    """Format a literal value as code: Markdown may take it for HTML."""
    return re.sub("'([^']+)'", r"`\1`", text)


def _setting_cells(option: Option) -> tuple[str, str]:
    default = "Required" if option.is_required else f"Default: {_default(option)}"
    return f"`{option.setting}`", _meaning(option.doc, _quoted(option.allowed), default, _elsewhere(option))


def _default(option: Option) -> str:
    return "none" if option.default is None else f"`{option.type.show(option.default)}`"


def _option_cells(option: Option) -> tuple[str, str]:
    default = option.unset if option.default_text is None else f"`{option.default_text}`"
    aliases = ", ".join(f"`{alias}`" for alias in option.aliases)
    uses = " and ".join(use.value.partition(" (")[0] for use in Use if use in option.uses)
    return f"`{option.name}`", _meaning(
        respelled(option.doc, as_option),
        _quoted(option.type.text_words),
        f"Default: {default}" if default else "",
        "" if len(option.uses) == len(Use) else f"For {uses}",
        f"Also spelled {aliases}" if aliases else "",
        _elsewhere(option),
    )


def _elsewhere(option: Option) -> str:
    names = (each.rpartition(" ") for each in option.elsewhere)
    return (
        f"Elsewhere: {', '.join(f'{whose} `{name}`' for whose, _, name in names)}" if option.elsewhere else ""
    )


def _meaning(doc: str, allowed: str, *more: str) -> str:
    return f"{doc}<br>*Takes* {'. '.join(filter(None, (allowed, *more)))}."
