"""Reads the options of one read or write: matches them to the table, checks and converts them."""

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any, Final, TypeVar

from kinesis_spout.kinesis import KinesisClientSettings, ReadSettings
from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.settings.grammar.stream_names import PART_WORDS, check_streams
from kinesis_spout.settings.kinesis import client_settings, read_settings
from kinesis_spout.settings.option import Option, Use
from kinesis_spout.settings.rules import check_credentials, check_endpoints, region
from kinesis_spout.settings.setting_messages import NotAllowed
from kinesis_spout.settings.source_options.elsewhere import HINTS, INSTEAD, OF_SPARK, OF_TABLES
from kinesis_spout.settings.table import OPTIONS
from kinesis_spout.settings.table.connection import CLIENT, STREAM

T = TypeVar("T")

_LONGEST_NAME_SHOWN: Final = 100
_ALIKE: Final = 0.7
"""The least ``difflib`` ratio of an unknown option and a known one for a suggestion."""
_OF_TABLE: Final = "option."


class OptionReader:
    """Reads the user's options, by the names of the table. A door of ``rules``.

    With several uses, an option of any of them is known.

    Raises:
        InvalidConfig: an option is unknown, of another use, empty, or given differently under two spellings;
            and, from each method, a value is invalid.
    """

    def __init__(self, options: Mapping[str, str], *uses: Use) -> None:
        known = [option for option in OPTIONS if not option.uses.isdisjoint(uses)]
        self._options = {option.name: option for option in reversed(known)}
        self._by_spelling = {
            spelling.lower(): (option, spelling)
            for option in reversed(known)
            for spelling in (*reversed(option.aliases), option.name)
        }
        self._texts: dict[str, str] = {}
        self._spelled: dict[str, str] = {}
        self.are_of_table = any(name.lower().startswith(_OF_TABLE) for name in options)
        """True if they were given to ``CREATE TABLE``."""
        for written, text in _without_table(options).items():
            if written.lower() not in OF_SPARK:
                self._take(written, text.strip(), uses)

    def _take(self, written: str, text: str, uses: tuple[Use, ...]) -> None:
        if written.lower() not in self._by_spelling:
            raise InvalidConfig(
                _unknown(written, uses, [spelling for _, spelling in self._by_spelling.values()])
            )
        option, spelling = self._by_spelling[written.lower()]
        if not text:
            raise InvalidConfig(
                f"option {spelling}: expected {option.type.text_words}, got nothing; leave it out instead"
            )
        if spelling.endswith("Ms") and text.isdigit():
            text += "ms"
        if self._texts.setdefault(option.name, text) != text:
            raise InvalidConfig(
                f"options {self._spelled[option.name]} and {spelling} are the same option: expected one value, "
                "got two different ones; leave one of them out"
            )
        self._spelled[option.name] = spelling

    def __contains__(self, name: str) -> bool:
        return name in self._texts

    def to_keep(self) -> dict[str, str]:
        """Return the options that a table may keep: all. Raises InvalidConfig: one is a secret."""
        for name in self._texts:
            if self._options[name].secret:
                raise self.error(
                    name,
                    "a table cannot keep a secret: expected credentials that boto3 finds by itself, or roleArn; "
                    "got another value (not shown)",
                )
        return dict(self._texts)

    def check_values(self) -> None:
        """Check each value alone, where the use of the options is not known yet."""
        for name in self._texts:
            self.value(name)

    def text(self, name: str) -> str | None:
        return self._texts.get(name, self._options[name].default_text)

    def value(self, name: str) -> Any:
        text, option = self.text(name), self._options[name]
        if text is None:
            return None
        try:
            return option.type.of_text(text)
        except NotAllowed as error:
            called = f"option {self._spelled.get(name, name)}"
            raise error.refusal(called, option.type.text_words, text, secret=option.secret) from None
        except InvalidConfig as error:
            raise self.error(name, str(error)) from None

    @property
    def extra_columns(self) -> tuple[str, ...]:
        """The additional columns, spelled as in the schema, in the order requested."""
        return self.value("extraColumns") or ()

    def client(self, streams: Sequence[str], *, connections: int = 0) -> KinesisClientSettings:
        """Return the settings of a client for these streams that keeps at least so many connections."""
        values = self.values(CLIENT)
        check_credentials(values, self)
        check_endpoints(values, self)
        return client_settings(values, region(values, streams, self), connections=connections)

    def streams_to_read(self) -> tuple[str, ...]:
        """Return the names, ARNs and patterns of streams, in the order given."""
        option = self._stream_option
        if option is None:
            raise InvalidConfig(
                "no stream is named: expected the option streamName or streamARN; or, if it is an option of a "
                "table, CREATE TABLE without a list of columns: with one, Spark hands the table's options to "
                "nobody"
            )
        streams: tuple[str, ...] = self.value(option)
        for stream in streams:
            self._check_stream(option, stream, check_streams, PART_WORDS)
        return streams

    def stream_to_write(self) -> str | None:
        option = self._stream_option
        text = None if option is None else self.text(option)
        if option is not None and text is not None:
            self._check_stream(option, text, STREAM.of_text, STREAM.words)
        return text

    @property
    def _stream_option(self) -> str | None:
        if "streamName" in self and "streamARN" in self:
            raise self.error("streamARN", "expected either streamName or streamARN, got both; leave one out")
        return next((name for name in ("streamName", "streamARN") if name in self), None)

    def _check_stream(self, option: str, stream: str, check: Callable[[str], Any], words: str) -> None:
        if stream.startswith("arn:") != (option == "streamARN"):
            right, kind = ("streamName", "a name") if option == "streamARN" else ("streamARN", "an ARN")
            raise self.error(option, f"{stream[:160]!r} is {kind}: give it as {right}")
        try:
            check(stream)
        except NotAllowed as error:
            raise error.refusal(f"option {option}", words, stream) from None

    def values(self, rows: Iterable[Option]) -> dict[str, Any]:
        """Return these options by the names of settings."""
        return {row.setting: self.value(row.name) for row in rows}

    def read_settings(self, *, fan_out_consumer: str | None = None) -> ReadSettings:
        return read_settings(
            self._settings(), fan_out_consumer=fan_out_consumer, extra_columns=self.extra_columns
        )

    def made(self, kind: type[T], **derived: Any) -> T:
        """Make the typed options: each field is ``derived``, or else the value of the option of its name.

        Every option is checked, even one that is no field.
        """
        values = self._settings() | derived
        return kind(**{field.name: values[field.name] for field in fields(kind)})  # type: ignore[arg-type]

    def _settings(self) -> dict[str, Any]:
        return {option.setting: self.value(option.name) for option in self._options.values()}

    def error(self, name: str, why: str) -> InvalidConfig:
        return InvalidConfig(f"option {self._spelled.get(name, name)}: {why}")

    def called(self, setting: str) -> str:
        """Spell a setting as the user did, or else as the table does."""
        names = [option.name for option in self._options.values() if option.setting == setting]
        return next((self._spelled[name] for name in names if name in self._spelled), names[0])

    def refusal(self, setting: str, expected: str, value: Any) -> InvalidConfig:
        secret = any(option.secret for option in self._options.values() if option.setting == setting)
        return NotAllowed(expected).refusal(f"option {self.called(setting)}", "", value, secret=secret)


def _without_table(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of a table (``CREATE TABLE … USING kinesis``) in plain form.

    Spark gives each of them as ``option.*``, sometimes also under its plain name, and adds properties that
    every table has.
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
    elsewhere = [each for each in OPTIONS if lowered in {name.lower() for name in (each.name, *each.aliases)}]
    if elsewhere:
        there = " and ".join(use.value for use in Use if any(use in each.uses for each in elsewhere))
        named = min(elsewhere, key=lambda each: each.name.lower() != lowered).name
        instead = "; ".join(INSTEAD[use] for use in uses)
        return f"option {named} is one of {there}, not of {here}: leave it out; {instead}"
    known = {spelling.lower(): spelling for spelling in spellings}
    near = difflib.get_close_matches(lowered, known, n=1, cutoff=_ALIKE)
    if near:
        return f"unknown option {shown!r} for {here}: did you mean {known[near[0]]}? Otherwise leave it out"
    named = ", ".join(sorted({option.name for option in OPTIONS if not option.uses.isdisjoint(uses)}))
    return f"unknown option {shown!r} for {here}: leave it out, or take one of {named}"
