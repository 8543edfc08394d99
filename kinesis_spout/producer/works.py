"""What an outbox gives to be done, what it decides by, and what it says of records that ended."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import cast

from kinesis_spout.kinesis.write.put_records import Puttable
from kinesis_spout.model.errors import KinesisSpoutError
from kinesis_spout.producer.ticket import Ticket


@dataclass(slots=True, eq=False)
class Call:
    """A call of PutRecords to make, perhaps again. Mutable."""

    batch: list[Puttable]
    failures: int = 0
    repeat_at: float = -inf


@dataclass(slots=True, eq=False)
class Listing:
    """The shards to list."""


@dataclass(slots=True, eq=False)
class Burial:
    """Records to make dead letters of. Mutable."""

    tickets: list[Ticket]
    error: KinesisSpoutError
    reason: str
    """As `DeadLetter.reason`."""
    is_under_way: bool = False
    failures: int = 0
    repeat_at: float = -inf
    give_up_at: float = inf


@dataclass(slots=True, eq=False)
class Recovery:
    """Records of an earlier producer to fetch from the spool."""


WorkToDo = Call | Listing | Burial | Recovery


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxSettings:
    """What the outbox decides by."""

    linger_seconds: float
    """How long a record may wait for others to fill its call."""
    delivery_timeout_seconds: float
    max_concurrent_calls: int
    wake_records: float
    """When so many new records have come, a call may be full."""
    wake_bytes: float
    is_ordered: bool
    """Whether records of a key wait for each other."""
    has_dead_letters: bool
    max_records: int
    """How many the inbox holds: what shards have their shares of."""
    max_bytes: int
    drops_oldest: bool
    recovers: bool


@dataclass(slots=True)
class Ended:
    """What ended since the shell last looked. Mutable."""

    count: int = 0
    to_tell: list[Ticket] = field(default_factory=list)
    """Those that somebody wants to know of."""
    to_confirm: list[int] = field(default_factory=list)
    """What the spool may forget."""
    failures: list[tuple[int, KinesisSpoutError]] = field(default_factory=list)
    """How many failed, and why."""


def tickets_of(put: Puttable) -> Sequence[Ticket]:
    """Give the tickets that a record carries: the producer holds no others."""
    return cast("Sequence[Ticket]", put.user_records)
