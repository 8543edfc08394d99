"""The tables of the page of options, as Markdown."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from kinesis_spout.settings.documentation import quoted
from kinesis_spout.settings.option import BATCH_READ, READS, STREAM_READ, WRITE, Option, Topic, Use
from kinesis_spout.settings.setting_messages import respelled
from kinesis_spout.settings.table import OPTIONS, SETTINGS
from kinesis_spout.settings.table.spelling import as_option

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


def settings_table(rows: Iterable[Option] = SETTINGS.values(), whose: str = "`KinesisSpout`") -> str:
    """Return Markdown: a heading for each topic, which says whose settings they are, and their table."""
    return _by_topic("setting", whose, rows, _setting_cells)


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


def _on_page(words: str) -> str:
    for long, short in _SAID_AT_THE_TOP.items():
        words = words.replace(long, short)
    return "" if words == "text" else quoted(words)


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
