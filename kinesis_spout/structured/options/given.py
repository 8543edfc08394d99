"""The options of one read or write, matched to the table and read as typed values."""

import difflib
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from kinesis_spout.errors import InvalidConfig
from kinesis_spout.structured.options import values
from kinesis_spout.structured.options.elsewhere import HINTS, INSTEAD, OF_SPARK, OF_TABLES
from kinesis_spout.structured.options.position_text import end_positions, start_positions
from kinesis_spout.structured.options.tables.specs import Kind, OptionSpec, Use
from kinesis_spout.structured.options.tables.table import OPTIONS

T = TypeVar("T")

_LONGEST_NAME_SHOWN: Final = 100
_OF_TABLE: Final = "option."
_POSITIONS: Final[Mapping[Kind, Callable[[str], object]]] = {
    Kind.START: start_positions,
    Kind.END: end_positions,
}


class GivenOptions:
    """What the user gave, by the names of the table. Asked for by name, as what the caller needs.

    Args:
        options: as Spark hands them over; their case says nothing.
        uses: what they are given to. With several, an option of any of them is known.

    Raises:
        InvalidConfig: an option is unknown, of another use, empty, or given differently under two spellings;
            and, from each method, a value is not what the option takes.
    """

    def __init__(self, options: Mapping[str, str], *uses: Use) -> None:
        self._specs = {spec.name: spec for spec in OPTIONS if not spec.uses.isdisjoint(uses)}
        self._by_spelling = {
            spelling.lower(): (spec, spelling)
            for spec in reversed(self._specs.values())
            for spelling in (*reversed(spec.aliases), spec.name)
        }
        self._texts: dict[str, str] = {}
        self._spelled: dict[str, str] = {}
        self.are_of_table = any(name.lower().startswith(_OF_TABLE) for name in options)
        """Whether they were given to ``CREATE TABLE``."""
        for written, text in _without_table(options).items():
            if written.lower() not in OF_SPARK:
                self._take(written, text.strip(), uses)

    def _take(self, written: str, text: str, uses: tuple[Use, ...]) -> None:
        if written.lower() not in self._by_spelling:
            raise InvalidConfig(
                _unknown(written, uses, [spelling for _, spelling in self._by_spelling.values()])
            )
        spec, spelling = self._by_spelling[written.lower()]
        if not text:
            raise InvalidConfig(
                f"option {spelling}: expected {spec.allowed}, got nothing; leave it out instead"
            )
        if spelling.endswith("Ms") and text.isdigit():
            text += "ms"
        if self._texts.setdefault(spec.name, text) != text:
            raise InvalidConfig(
                f"options {self._spelled[spec.name]} and {spelling} are the same option: expected one value, "
                "got two different ones; leave one of them out"
            )
        self._spelled[spec.name] = spelling

    def __contains__(self, name: str) -> bool:
        return name in self._texts

    def to_keep(self) -> dict[str, str]:
        """Give what a table may keep of them: all.

        Raises:
            InvalidConfig: one is a secret.
        """
        for name in self._texts:
            if self._specs[name].secret:
                raise self.refuse(
                    name,
                    "a table cannot keep a secret: expected credentials that boto3 finds by itself, or roleArn; "
                    "got another value (not shown)",
                )
        return dict(self._texts)

    def check_values(self) -> None:
        """Check each value by itself, where it is not known yet what the options are given to."""
        for name in self._texts:
            spec = self._specs[name]
            if spec.kind in _POSITIONS:
                self.positions(name, _POSITIONS[spec.kind])
            elif spec.kind in values.READERS:
                self._optional(name, values.READERS[spec.kind])

    def text(self, name: str) -> str | None:
        """Give the text, or the default."""
        return self._texts.get(name, self._specs[name].default)

    def refuse(self, name: str, why: str) -> InvalidConfig:
        """Give the error to raise about an option that was given and may not be."""
        return InvalidConfig(f"option {self._spelled.get(name, name)}: {why}")

    def spec(self, name: str) -> OptionSpec:
        """Give an option's row of the table."""
        return self._specs[name]

    def names(self, name: str) -> tuple[str, ...]:
        """Give the parts of a list; none if it was not given."""
        return self._optional(name, values.names) or ()

    def choice(self, name: str) -> str:
        """Give the word chosen."""
        return self._value(name, values.choice)

    def flag(self, name: str) -> bool:
        """Give true or false."""
        return self._value(name, values.flag)

    def count(self, name: str) -> int:
        """Give a whole number that has a default."""
        return self._value(name, values.count)

    def optional_count(self, name: str) -> int | None:
        """Give a whole number, or None."""
        return self._optional(name, values.count)

    def seconds(self, name: str) -> float:
        """Give a duration that has a default."""
        return self._value(name, values.seconds)

    def size(self, name: str) -> int:
        """Give a number of bytes that has a default."""
        return self._value(name, values.size)

    def optional_size(self, name: str) -> int | None:
        """Give a number of bytes, or None."""
        return self._optional(name, values.size)

    def bytes_per_second(self, name: str) -> int:
        """Give a rate that has a default."""
        return self._value(name, values.bytes_per_second)

    def url(self, name: str) -> str | None:
        """Give the address of an endpoint, or None."""
        return self._optional(name, values.url)

    def positions(self, name: str, read: Callable[[str], T]) -> T:
        """Give where a read begins or ends; ``read`` raises InvalidConfig without the option's name."""
        try:
            return self._value(name, lambda _spec, text: read(text))
        except InvalidConfig as error:
            raise self.refuse(name, str(error)) from error

    def _value(self, name: str, read: Callable[[OptionSpec, str], T]) -> T:
        value = self._optional(name, read)
        assert value is not None, f"option {name} has no default"
        return value

    def _optional(self, name: str, read: Callable[[OptionSpec, str], T]) -> T | None:
        text = self.text(name)
        return None if text is None else read(self._specs[name], text)


def _without_table(options: Mapping[str, str]) -> dict[str, str]:
    """Read the options of a table (``CREATE TABLE … USING kinesis``) like any others.

    Spark gives each of them as ``option.*``, at times beside its plain name, and adds properties that every
    table has.
    """
    of_table = {
        name[len(_OF_TABLE) :]: text for name, text in options.items() if name.lower().startswith(_OF_TABLE)
    }
    if not of_table:
        return dict(options)
    passed_over = OF_TABLES | {name.lower() for name in of_table}
    plain = {
        name: text
        for name, text in options.items()
        if name.lower() not in passed_over and not name.lower().startswith(_OF_TABLE)
    }
    return of_table | plain


def _unknown(written: str, uses: tuple[Use, ...], spellings: list[str]) -> str:
    # The value stays out of the message: an unknown option may be a misspelt secret.
    shown = written[:_LONGEST_NAME_SHOWN]
    lowered = written.lower()
    if lowered in HINTS:
        return f"option {shown} is not taken: {HINTS[lowered]}"
    here = " or ".join(use.value for use in uses)
    elsewhere = [spec for spec in OPTIONS if lowered in {name.lower() for name in (spec.name, *spec.aliases)}]
    if elsewhere:
        there = " and ".join(use.value for use in Use if any(use in spec.uses for spec in elsewhere))
        named = min(elsewhere, key=lambda spec: spec.name.lower() != lowered).name
        instead = "; ".join(INSTEAD[use] for use in uses)
        return f"option {named} is one of {there}, not of {here}: leave it out; {instead}"
    known = {spelling.lower(): spelling for spelling in spellings}
    near = difflib.get_close_matches(lowered, known, n=1, cutoff=0.0)
    return f"unknown option {shown!r} for {here}: did you mean {known[near[0]]}? Otherwise leave it out"
