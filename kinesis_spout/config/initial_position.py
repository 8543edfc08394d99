"""The setting that says where the first start of an application begins, as text and as a place to read from."""

import re
from datetime import UTC, datetime
from typing import Final

from kinesis_spout.config.refusals import refuse
from shard_state import Position

ALLOWED: Final = "latest, trim_horizon, earliest, an ISO-8601 time with zone, or seconds since the epoch"

_LAST_EPOCH_SECOND: Final = datetime(9999, 12, 31, tzinfo=UTC).timestamp()


def parse_initial_position(text: str) -> Position:
    """Give the place that the text names.

    Raises:
        InvalidConfig: it names none.
    """
    match text.lower():
        case "latest":
            return Position.latest()
        case "trim_horizon" | "earliest":
            return Position.trim_horizon()
    if re.fullmatch(r"\d+(\.\d+)?", text):
        seconds = float(text)
        if seconds > _LAST_EPOCH_SECOND:
            refuse("initial_position", text, "seconds since the epoch; this looks like milliseconds")
        return Position.at_timestamp(seconds)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        refuse("initial_position", text, ALLOWED)
    if moment.tzinfo is None:
        refuse("initial_position", text, "a time with its zone, as in 2026-01-31T12:00:00Z")
    return Position.at_timestamp(moment.timestamp())
