"""Positions as users write them, at every door: settings, options, ``reset --to``, ``tail --from``.

::

    position = word | time | record
    word     = "latest" | "trim_horizon" | "earliest"
    time     = ["at_timestamp"] (ISO 8601 with its zone | seconds since the epoch)
    record   = ("at_sequence_number" | "after_sequence_number") number[":" index in an aggregated record]

Case does not matter. A bare number is always seconds since the epoch, and a sequence number always has its
keyword. A time without a zone is refused, because it is ambiguous. A record is in one shard, so it is
accepted only where the shard is known.
"""

import math
import re
from datetime import UTC, datetime
from typing import Any, Final

from kinesis_spout.settings.setting_messages import NotAllowed
from shard_state import Position, SequenceNumber
from shard_state.errors import InvalidSequenceNumber

ALLOWED: Final = "latest, trim_horizon, earliest, an ISO 8601 time with its zone, or seconds since the epoch"

_LAST_EPOCH_SECOND: Final = datetime(9999, 12, 31, tzinfo=UTC).timestamp()
_KEYWORD: Final = re.compile(r"(at_timestamp|(?:at|after)_sequence_number)\s+(.+)", re.IGNORECASE)
_NUMBER: Final = re.compile(r"[0-9]+(\.[0-9]+)?")
_LONGEST_TIME: Final = 20
"""Digits; a time in nanoseconds has 19. Sequence numbers of AWS have 56."""


def parse_position(text: str, allowed: str = ALLOWED) -> Position:
    """Parse a position; LATEST is not resolved here. Raises NotAllowed, naming what is ``allowed``."""
    match text.lower():
        case "latest":
            return Position.latest()
        case "trim_horizon" | "earliest":
            return Position.trim_horizon()
    keyword = _KEYWORD.fullmatch(text)
    if keyword is None:
        return Position.at_timestamp(_seconds(text, allowed))
    match keyword[1].lower():
        case "at_timestamp":
            return Position.at_timestamp(parse_time(keyword[2]))
        case "at_sequence_number":
            return Position.at(_sequence_number(keyword[2]))
        case _:
            return Position.after(_sequence_number(keyword[2]))


def parse_position_of_all_shards(text: str, allowed: str = ALLOWED) -> Position:
    """Parse a position for every shard of a stream, so no record of one of them."""
    position = parse_position(text, allowed)
    if position.sequence_number is not None:
        raise NotAllowed(f"{allowed}; a sequence number is a record of one shard", text)
    return position


def resolved(position: Position, now: float, written: str) -> Position:
    """Replace LATEST by the time ``now``. Raises NotAllowed for a time in the future."""
    if position.timestamp is not None and position.timestamp > now:
        raise NotAllowed("a time that is not in the future (latest is now)", written)
    return position.resolved(now)


def parse_time(time: Any) -> float:
    """Convert a text or a number to seconds since the epoch. Raises NotAllowed."""
    if isinstance(time, bool) or not isinstance(time, (str, int, float)):
        raise NotAllowed("a time, in ISO 8601 or in seconds since the epoch", time)
    if isinstance(time, str):
        return _seconds(time, "a time in ISO 8601 with its zone, as in 2026-01-31T12:00:00Z")
    return _bounded(float(time) if abs(time) <= _LAST_EPOCH_SECOND else math.inf, time)


def _seconds(text: str, allowed: str) -> float:
    if _NUMBER.fullmatch(text):
        if len(text.partition(".")[0]) >= _LONGEST_TIME:
            raise NotAllowed(
                "at most seconds since the epoch as a bare number; a sequence number has its keyword before it: "
                "at_sequence_number or after_sequence_number",
                text,
            )
        return _bounded(float(text), text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise NotAllowed(allowed, text) from error
    if moment.tzinfo is None:
        raise NotAllowed(
            f"a time with its zone: choose {moment.isoformat()}Z, which is UTC, or another zone, as in "
            f"{moment.isoformat()}+01:00",
            text,
        )
    return _bounded(moment.timestamp(), text)


def _bounded(seconds: float, written: Any) -> float:
    if not 0 <= seconds <= _LAST_EPOCH_SECOND:
        expected = "a time between 1970 and 9999; a number means seconds since the epoch, not milliseconds"
        if seconds > _LAST_EPOCH_SECOND:
            expected += ", and this looks like milliseconds"
        raise NotAllowed(expected, written)
    return seconds


def _sequence_number(text: str) -> SequenceNumber:
    if not text[0].isdigit():  # SHARD_START and SHARD_END name no record
        raise NotAllowed("a sequence number, as in 123 or 123:4", text)
    try:
        return SequenceNumber.parse(text)
    except InvalidSequenceNumber as error:
        raise NotAllowed("a sequence number, as in 123 or 123:4", text) from error
