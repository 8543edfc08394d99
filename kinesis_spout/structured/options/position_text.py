"""Reads the positions that a user writes: a word, a time, or JSON per shard."""

import json
import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from kinesis_spout.errors import InvalidConfig
from kinesis_spout.structured.options.positions import EndPositions, StartPositions
from shard_state import Position, SequenceNumber
from shard_state.errors import InvalidSequenceNumber
from shard_state.position import PositionType

_LAST_EPOCH_SECOND: Final = datetime(9999, 12, 31, tzinfo=UTC).timestamp()
_SHARD_ID: Final = re.compile(r"shardId-[a-zA-Z0-9_.-]{1,120}")
_WORDS: Final = {
    "latest": PositionType.LATEST,
    "trim_horizon": PositionType.TRIM_HORIZON,
    "earliest": PositionType.TRIM_HORIZON,
}
_ITERATOR_KEYS: Final = ("iteratorType", "iteratorPosition")


def start_positions(text: str) -> StartPositions:
    """Read a start; shards that JSON per shard does not name start at TRIM_HORIZON.

    Raises:
        InvalidConfig: says what was expected and what came; the caller adds which option.
    """
    default, shards = _positions(text)
    return StartPositions(default=default or Position.trim_horizon(), shards=shards)


def end_positions(text: str) -> EndPositions:
    """Read an end; shards that JSON per shard does not name end at LATEST.

    Raises:
        InvalidConfig: says what was expected and what came; the caller adds which option.
    """
    default, shards = _positions(text)
    for place, position in {"": default or Position.latest(), **shards}.items():
        if position.type is PositionType.TRIM_HORIZON:
            raise InvalidConfig(
                f"{place or 'the read'} would end before its first record: expected a later end"
            )
    return EndPositions(default=default or Position.latest(), shards=shards)


def _positions(text: str) -> tuple[Position | None, dict[str, Position]]:
    """Give the position of all shards, or the positions of some."""
    if not text.startswith("{"):
        return _word_or_time(text), {}
    document = _document(text)
    if any(key.lower() in {"at_timestamp", "iteratortype"} for key in document):
        return _one(document), {}
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
        except InvalidConfig as error:
            raise InvalidConfig(f"{shard_id}: {error}") from error
    return None, shards


def _document(text: str) -> dict[str, Any]:
    try:
        document: dict[str, Any] = json.loads(text, object_pairs_hook=_without_repetition)
    except InvalidConfig:
        raise
    except ValueError as error:  # no JSON, or a number of thousands of digits
        raise InvalidConfig(f"expected JSON after the '{{', got what is none: {error}") from error
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
    """Read a position in JSON: a word, ``{"at_timestamp": …}`` or ``{"iteratorType": …}``."""
    if isinstance(value, str):
        return _word_or_time(value)
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
        return Position.at_timestamp(_seconds(value[keys["at_timestamp"]]))
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
    match name:
        case "AT_TIMESTAMP":
            return Position.at_timestamp(_seconds(position))
        case "AT_SEQUENCE_NUMBER":
            return Position.at(_sequence_number(position))
        case "AFTER_SEQUENCE_NUMBER":
            return Position.after(_sequence_number(position))
    if name.lower() not in _WORDS:
        expected = ", ".join(known.value for known in PositionType)
        raise InvalidConfig(f"expected {expected} as the iteratorType, got {json.dumps(type_)[:160]}")
    if position not in (None, ""):
        raise InvalidConfig(f"expected no iteratorPosition beside {name}, got one")
    return _word_or_time(name)


def _sequence_number(position: Any) -> SequenceNumber:
    text = position if isinstance(position, str) else ""
    if not text.isdigit():  # a JSON number of this size loses its digits in most programs
        raise InvalidConfig(
            f"expected a sequence number in quotes as the iteratorPosition, got {json.dumps(position)[:160]}"
        )
    try:
        return SequenceNumber.parse(text)
    except InvalidSequenceNumber as error:
        raise InvalidConfig(str(error)) from error


def _word_or_time(text: str) -> Position:
    word = text.lower()
    if word in _WORDS:
        return Position(type=_WORDS[word])
    timestamp = re.fullmatch(r"at_timestamp\s+(.+)", text, re.IGNORECASE)
    if timestamp is None:
        raise InvalidConfig(
            f"expected latest, trim_horizon, earliest, or JSON such as "
            f'{{"at_timestamp": "2026-01-31T12:00:00Z"}}, got {text[:160]!r}'
        )
    return Position.at_timestamp(_seconds(timestamp[1]))


def _seconds(time: Any) -> float:
    if isinstance(time, str):
        seconds = float(time) if re.fullmatch(r"[0-9]{1,30}(\.[0-9]{1,30})?", time) else _iso_seconds(time)
    elif isinstance(time, (int, float)) and not isinstance(time, bool):
        seconds = float(time) if abs(time) <= _LAST_EPOCH_SECOND else math.inf
    else:
        raise InvalidConfig(f"expected a time, in ISO 8601 or in epoch seconds, got {json.dumps(time)[:160]}")
    if not 0 <= seconds <= _LAST_EPOCH_SECOND:
        raise InvalidConfig(
            f"expected a time between 1970 and 9999, got {json.dumps(time)[:160]}; a number means seconds "
            "since the epoch, not milliseconds"
        )
    return seconds


def _iso_seconds(text: str) -> float:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidConfig(
            f"expected a time in ISO 8601 with its zone, as in 2026-01-31T12:00:00Z, got {text[:160]!r}"
        ) from error
    if moment.tzinfo is None:
        raise InvalidConfig(f"expected a time with its zone, as in 2026-01-31T12:00:00Z, got {text[:160]!r}")
    return moment.timestamp()
