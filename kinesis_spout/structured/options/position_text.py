"""Reads the positions of ``format("kinesis")``: one for all shards, or JSON that names shards.

What a single position looks like is said in ``settings.positions``.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from kinesis_spout.errors import InvalidConfig
from kinesis_spout.settings.positions import (
    NotAPosition,
    parse_position,
    parse_position_of_all_shards,
    parse_time,
)
from kinesis_spout.structured.options.positions import EndPositions, StartPositions
from shard_state import Position
from shard_state.position import PositionType

_SHARD_ID: Final = re.compile(r"shardId-[a-zA-Z0-9_.-]{1,120}")
_ALLOWED: Final = (
    "latest, trim_horizon, earliest, an ISO 8601 time with its zone, seconds since the epoch, or JSON such as "
    '{"shardId-000000000000": "2026-01-31T12:00:00Z"}'
)
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
    try:
        if not text.startswith("{"):
            return parse_position_of_all_shards(text, _ALLOWED), {}
        document = _document(text)
        if any(key.lower() in {"at_timestamp", "iteratortype"} for key in document):
            return _one(document), {}
    except NotAPosition as error:
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
        except (InvalidConfig, NotAPosition) as error:
            raise InvalidConfig(f"{shard_id}: {error}") from error
    return shards


def _document(text: str) -> dict[str, Any]:
    try:
        document: dict[str, Any] = json.loads(text, object_pairs_hook=_without_repetition)
    except InvalidConfig:
        raise
    except ValueError as error:  # no JSON, or a number of thousands of digits
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
    """Read a position in JSON: a text, ``{"at_timestamp": …}`` or ``{"iteratorType": …}``."""
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
        if not isinstance(position, str) or not position.isdigit():
            raise InvalidConfig(
                f"expected a sequence number in quotes as the iteratorPosition, got {json.dumps(position)[:160]}"
            )
        return parse_position(f"{name} {position}")
    if position not in (None, ""):
        raise InvalidConfig(f"expected no iteratorPosition beside {name}, got one")
    return parse_position(name)
