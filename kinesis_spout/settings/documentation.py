"""The options as text for help and documents, always the same, in the order of the table."""

import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, TypeVar

from kinesis_spout.settings.option import BATCH_READ, READS, STREAM_READ, WRITE, Option, Topic, Use
from kinesis_spout.settings.setting_messages import respelled
from kinesis_spout.settings.table import OPTIONS, SETTINGS
from kinesis_spout.settings.table.spelling import as_option

SETTING_HEADINGS: Final = ("setting", "allowed", "default", "meaning")
_HELP_COLUMNS: Final = 74
"""The columns that ``help()`` leaves to the docstring of a class, on a terminal of 80."""
_USES: Final = {
    frozenset(Use): "",
    READS: "For reads",
    STREAM_READ: "For streaming reads",
    BATCH_READ: "For batch reads",
    WRITE: "For writes",
}
_SAID_AT_THE_TOP: Final = {
    "an ISO 8601 time with its zone, seconds since the epoch": "a time",
    "a duration such as 200ms, 10s, 5m or 1h": "a duration",
    "a size such as 500k, 8m or 1g, or a number of bytes": "a size",
}
"""Words for values that the page of the options explains once."""
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
    return f"{option.doc} Takes {_quoted(option.allowed)}; {default}."


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


def _on_page(words: str) -> str:
    for long, short in _SAID_AT_THE_TOP.items():
        words = words.replace(long, short)
    return "" if words == "text" else _quoted(words)


def _setting_cells(option: Option) -> tuple[str, str]:
    allowed = option.type.words if option.default is None else option.allowed
    return f"`{option.setting}`", _meaning(
        option.doc, _on_page(allowed), _default(option), _elsewhere(option)
    )


def _default(option: Option) -> str:
    if option.is_required:
        return "Required"
    if option.default is None:
        return f"Default: {option.unset}" if option.unset else ""
    return f"Default: `{option.default_words}`"


def _option_cells(option: Option) -> tuple[str, str]:
    """Point to the setting for what an option has in common with it."""
    its_setting = SETTINGS.get(option.setting) is option
    default = option.unset if option.default_text is None else f"`{option.default_text}`"
    aliases = ", ".join(f"`{alias}`" for alias in option.aliases)
    is_new = not its_setting or option.type.text_words != option.type.words
    return f"`{option.name}`", _meaning(
        f"As [`{option.setting}`](#{option.setting})." if its_setting else respelled(option.doc, as_option),
        _on_page(option.type.text_words) if is_new else "",
        f"Default: {default}" if default and is_new else "",
        _USES[option.uses],
        f"Also spelled {aliases}" if aliases else "",
        "" if its_setting else _elsewhere(option),
    )


def _elsewhere(option: Option) -> str:
    names = (each.rpartition(" ") for each in option.elsewhere)
    return (
        f"Elsewhere: {', '.join(f'{whose} `{name}`' for whose, _, name in names)}" if option.elsewhere else ""
    )


def _meaning(doc: str, *more: str) -> str:
    told = ". ".join(filter(None, more))
    return f"{doc}<br>{told}." if told else doc
