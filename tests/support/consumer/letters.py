"""Dead letters for tests."""

from typing import Any

import msgspec

from kinesis_spout.model.record import DeadLetter

LETTER = DeadLetter(
    application="billing",
    stream="orders",
    shard_id="shardId-000000000000",
    sequence_number="1",
    partition_key="k",
    arrival_timestamp=1769860800.123,
    data=b"x",
    attempts=4,
    error="ValueError: no\nmore",
    reason="exhausted",
    died_at=1769860900.25,
)


def letter(number: int = 1, **changes: Any) -> DeadLetter:
    """Make a letter of the record of this sequence number, with the fields that matter to the test."""
    return msgspec.structs.replace(LETTER, **{"sequence_number": str(number), **changes})
