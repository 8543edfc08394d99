"""The beginning and end of a read, shard by shard: the values, and how they are written.

Both belong to ``format("kinesis")``. The start is also a spout's ``initial_position`` and ``start_again``,
and the end its ``until``, which may be in the future; only these may lie inside an aggregated record.

It is one position for all shards (see ``positions``), or JSON with positions of some shards. The others then
start at TRIM_HORIZON, as later child shards do, and end at LATEST.

An end is also a position: the one from which a later read would continue. The first record of that read is
the first one *not* read: a time or AT_SEQUENCE_NUMBER excludes the record itself, AFTER_SEQUENCE_NUMBER makes
it the last one read.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeVar

from kinesis_spout.model.clock import moment
from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.settings.grammar.positions import (
    ALLOWED,
    parse_position,
    parse_position_of_all_shards,
    parse_time,
)
from kinesis_spout.settings.grammar.value_types import ValueType
from kinesis_spout.settings.setting_messages import NotAllowed
from shard_state import Position, PositionType, RunBounds, ShardPositions, StartPositions

P = TypeVar("P", bound=ShardPositions)

_SHARD_ID: Final = re.compile(r"shardId-[a-zA-Z0-9_.-]{1,120}")
_ALLOWED: Final = f'{ALLOWED}, or JSON such as {{"shardId-000000000000": "2026-01-31T12:00:00Z"}}'
_ALLOWED_END: Final = _ALLOWED.replace("trim_horizon, earliest, ", "")
_SEQUENCE_NUMBER: Final = re.compile(r"[0-9]+(:[0-9]+)?")
_ITERATOR_KEYS: Final = ("iteratorType", "iteratorPosition")

MARGIN_SECONDS: Final = 5.0
"""Allowance for records out of the order of their arrival and for clocks that differ, together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndPositions(ShardPositions):
    """The end of the read of each shard, never TRIM_HORIZON: the first record from there on is left out."""

    def bounds(self, began_at: float) -> RunBounds:
        return RunBounds.of(self.default, self.shards, began_at=began_at, margin_seconds=MARGIN_SECONDS)


def resolved_now(positions: P, now: float, called: str) -> P:
    """Return the positions with LATEST replaced by ``now``, the read's beginning in seconds since the epoch.

    Raises:
        InvalidConfig: of the option ``called`` so: a position is in the future; the read would wait for it.
    """
    for position in positions.every:
        if position.timestamp is not None and position.timestamp > now + MARGIN_SECONDS:
            raise InvalidConfig(
                f"{called}: expected a time that is over (latest is now), got {moment(position.timestamp)}, "
                "which is yet to come"
            )
    return positions.resolved(now)


def rank(position: Position) -> tuple[int, bool]:
    """Order positions at sequence numbers: before a record, then after it."""
    assert position.sequence_number is not None
    return position.sequence_number.number, position.type is PositionType.AFTER_SEQUENCE_NUMBER


def run_start(text: str) -> StartPositions:
    """Parse a spout's start; shards that JSON does not name start at TRIM_HORIZON. Raises InvalidConfig."""
    default, shards = _positions(text)
    return StartPositions(default=default or Position.trim_horizon(), shards=shards)


def run_end(text: str) -> EndPositions:
    """Parse the end of a bounded run; shards that JSON does not name end at LATEST. Raises InvalidConfig."""
    default, shards = _positions(text, _ALLOWED_END)
    for shard_id, position in {"": default or Position.latest(), **shards}.items():
        if position.type is PositionType.TRIM_HORIZON:
            raise InvalidConfig(
                f"expected an end behind the first record{shard_id and ' of ' + shard_id}, got "
                "trim_horizon, which is before it"
            )
    return EndPositions(default=default or Position.latest(), shards=shards)


def _start(text: str) -> StartPositions:
    return _whole(run_start(text))


def _end(text: str) -> EndPositions:
    return _whole(run_end(text))


def _whole(positions: P) -> P:
    """Refuse a position inside an aggregated record: a query's offsets lie between records of Kinesis."""
    for shard_id, position in positions.shards.items():
        number = position.sequence_number
        if number is not None and not number.is_whole:
            raise InvalidConfig(
                f"{shard_id}: expected a whole sequence number, as in {number.kinesis}, got {str(number)!r}"
            )
    return positions


def _positions(text: str, allowed: str = _ALLOWED) -> tuple[Position | None, dict[str, Position]]:
    try:
        if not text.startswith("{"):
            return parse_position_of_all_shards(text, allowed), {}
        document = _document(text)
        if any(key.lower() in {"at_timestamp", "iteratortype"} for key in document):
            return _one(document), {}
    except NotAllowed as error:
        raise InvalidConfig(str(error)) from error
    return None, _by_shard(document)


def _by_shard(document: Mapping[str, Any]) -> dict[str, Position]:
    if not document:
        raise InvalidConfig("expected at least one shard in the JSON, got none")
    for shard_id in document:
        if not _SHARD_ID.fullmatch(shard_id):
            raise InvalidConfig(
                f"expected shard ids (shardId-…) or at_timestamp as the keys of the JSON, got {shard_id[:160]!r}"
            )
    shards = {}
    for shard_id, value in document.items():
        try:
            shards[shard_id] = _one(value)
        except (InvalidConfig, NotAllowed) as error:
            raise InvalidConfig(f"{shard_id}: {error}") from error
    return shards


def _document(text: str) -> dict[str, Any]:
    try:
        document: dict[str, Any] = json.loads(text, object_pairs_hook=_without_repetition)
    except InvalidConfig:
        raise
    except ValueError as error:  # invalid JSON, or a number of thousands of digits
        raise InvalidConfig(
            f"expected JSON, as the text begins with '{{', got invalid JSON: {error}"
        ) from error
    except RecursionError as error:
        raise InvalidConfig("expected JSON that is two levels deep, got it far deeper") from error
    return document


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in names if names.count(name) > 1)
        raise InvalidConfig(f"expected each key once in the JSON, got {repeated!r} twice")
    return document


def _one(value: Any) -> Position:
    """Parse a position in JSON: a text, ``{"at_timestamp": …}`` or ``{"iteratorType": …}``."""
    if isinstance(value, str):
        return parse_position(value, _ALLOWED)
    if not isinstance(value, dict):
        raise InvalidConfig(f"expected a word or an object, got {json.dumps(value)[:160]}")
    keys = {key.lower(): key for key in value}
    if len(keys) != len(value):
        raise InvalidConfig(f"expected each key once, whatever its case, got {', '.join(value)}")
    if "at_timestamp" in keys:
        if "format" in keys:
            raise InvalidConfig(
                "a time format of your own is not read: expected at_timestamp alone, in ISO 8601 with its "
                'zone, as in {"at_timestamp": "2026-01-31T12:00:00Z"}'
            )
        _only(keys, ("at_timestamp",))
        return Position.at_timestamp(parse_time(value[keys["at_timestamp"]]))
    _only(keys, _ITERATOR_KEYS)
    if "iteratortype" not in keys:
        raise InvalidConfig("expected iteratorType or at_timestamp, got neither")
    return _iterator(value[keys["iteratortype"]], value.get(keys.get("iteratorposition", "")))


def _only(keys: Mapping[str, str], allowed: tuple[str, ...]) -> None:
    extra = keys.keys() - {name.lower() for name in allowed}
    if extra:
        raise InvalidConfig(f"expected only {' and '.join(allowed)}, got {keys[min(extra)][:160]!r} as well")


def _iterator(type_: Any, position: Any) -> Position:
    name = type_.upper() if isinstance(type_, str) else ""
    if name == "AT_TIMESTAMP":
        return Position.at_timestamp(parse_time(position))
    if name not in PositionType.__members__:
        expected = ", ".join(PositionType)
        raise InvalidConfig(f"expected {expected} as the iteratorType, got {json.dumps(type_)[:160]}")
    if name.endswith("SEQUENCE_NUMBER"):
        # A JSON number of this size loses its digits in most programs.
        if not isinstance(position, str) or not _SEQUENCE_NUMBER.fullmatch(position):
            raise InvalidConfig(
                f"expected a sequence number in quotes as the iteratorPosition, got {json.dumps(position)[:160]}"
            )
        return parse_position(f"{name} {position}")
    if position not in (None, ""):
        raise InvalidConfig(f"expected no iteratorPosition with {name}, got one")
    return parse_position(name)


_TIMES = "an ISO 8601 time with its zone, seconds since the epoch, or JSON with a position per shard"


def _type(read: Callable[[str], object], words: str) -> ValueType:
    return ValueType(annotation=Any, words=words, text_words=words, read=read)


START: Final = _type(_start, f"latest, trim_horizon, earliest, {_TIMES}")

END: Final = _type(_end, f"latest, {_TIMES}")


def _plain(value: Any) -> Any:
    """Write positions given as a date, a number or a mapping as text; returns anything else unchanged."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return _json(value)
    return repr(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else value


def _json(value: Mapping[Any, Any]) -> str:
    def other(part: object) -> Any:
        if isinstance(part, datetime):
            return part.isoformat()
        if isinstance(part, Mapping):
            return dict(part)
        raise NotAllowed(got=value)

    try:
        return json.dumps(dict(value), default=other)
    except (TypeError, ValueError, RecursionError) as error:  # a key that JSON does not have, or a circle
        raise NotAllowed(got=value) from error


def _as_written(read: Callable[[str], object], words: str) -> ValueType:
    def check(text: str) -> None:
        read(text)

    return ValueType(annotation=str, words=words, text_words=words, read=str, check=check, plain=_plain)


RUN_START: Final = _as_written(run_start, START.words)
"""The beginning of a spout, kept as it was written: text, a date, a number, or a mapping of positions by
shard."""

RUN_END: Final = _as_written(run_end, END.words)
"""The end of a run, kept as it was written; accepts what a start accepts."""
