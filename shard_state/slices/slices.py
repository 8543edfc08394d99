"""The slices of a micro-batch, and their outcomes.

A slice is one contiguous piece of one shard, or a set of its due retries. Planning knows only the beginning
of a fresh slice; its outcome says how far it came. Within a shard at most one fresh slice and one slice of
retries are out at a time, so fresh slices never overlap.
"""

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple

from shard_state.checkpoint.checkpoint import Hole
from shard_state.position import Position
from shard_state.run_bounds import ShardBound
from shard_state.sequence_number import SequenceNumber


class SliceKind(Enum):
    """The source of a slice's records."""

    READ = auto()
    """An executor reads them from Kinesis: the shard has a backlog."""
    CARRIED = auto()
    """The driver has read them and they travel inside the job: the shard is at its tip, or suspect."""
    RETRY = auto()
    """They failed before, are due, and travel inside the job."""


class Redelivery(NamedTuple):
    """One record of a slice of retries. A tuple, as there are thousands."""

    sequence: SequenceNumber
    attempt: int
    """The number of this delivery, from 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlicePlan:
    """One slice of a micro-batch."""

    shard_id: str
    epoch: int
    kind: SliceKind
    limit: int
    """At most so many records."""
    position: Position
    """The beginning of a READ slice; of a CARRIED one, where its first record was expected.

    It may lie inside an aggregate, which is read from its start again: only what ``position.includes`` is of
    the slice.
    """
    max_failures: int
    """The slice ends early once so many of its records are unfinished: there is no room to track more of them, or
    more holes between them."""
    room: int | None = None
    """The most records to hand out before it is known which of them failed, for all of them may: a user of a whole
    DataFrame tells only afterwards. None: ``max_failures``."""
    holes: tuple[Hole, ...] = ()
    """Records in these are read but not delivered: they were finished before the restart."""
    anchor: SequenceNumber | None = None
    """The holes and attempts count only if this is the first record read; None: they do."""
    attempts: tuple[tuple[SequenceNumber, int], ...] = ()
    """Earlier deliveries, before the restart."""
    blocked_keys: frozenset[str] = frozenset()
    """Records of these partition keys are held, not delivered."""
    retries: tuple[Redelivery, ...] = ()
    """The records of a RETRY slice, in the order of delivery."""
    alone: bool = False
    """Run it in a job of its own: a job with it died before, and this tells who is to blame."""
    deliveries: int | None = None
    """The most of its records that may reach the handler: one is a probe. None: each may."""
    portion: int | None = None
    """A handler that takes several records at a time is given no more than that, nor are more under way at a time;
    None: as many as there are."""
    bound: ShardBound | None = None
    """A READ slice ends before the first record that ends the shard for this run; None: there is none."""

    @property
    def most_deliveries(self) -> int:
        """The most of its records that may reach the handler."""
        return self.limit if self.deliveries is None else self.deliveries

    @property
    def is_fresh(self) -> bool:
        """True if it moves the shard forward, as opposed to retrying."""
        return self.kind is not SliceKind.RETRY


class Fate(Enum):
    """The outcome of a record that was not acked."""

    FAILED = auto()
    """Its handler failed."""
    REJECTED = auto()
    """Its handler said that no retry can help."""
    PUT_OFF = auto()
    """Its handler did not try it: no attempt, within ``MOST_PUT_OFF``."""
    KILLED_WORKER = auto()
    """The worker died, or hung, while it was handled: it is retried alone."""
    HELD = auto()
    """It was not delivered this time, because an earlier record of its key has to come first."""
    SUSPECTED = auto()
    """It is held because it was under way, with others, when the worker died: such records come one at a time."""
    ENDED_PROCESS = auto()
    """As often as it may be delivered it ended the whole process, or its owner's time: it is given up."""
    EXPIRED = auto()
    """It was too old to be delivered this time, and is given up. Nothing waits for that."""


# Looked up in the module, not in the enum, where that costs more: there are thousands.
_HELD: Final = (Fate.HELD, Fate.SUSPECTED)
_NOT_DELIVERED: Final = (*_HELD, Fate.EXPIRED)


class UnackedRecord(NamedTuple):
    """A record of a slice that was not acked. A tuple, as there are thousands."""

    index: int  # type: ignore[assignment]  # a tuple's method, which nobody wants of this one
    """Its index among the records read in the slice, from 0; for retries, among its ``retries``."""
    sequence: SequenceNumber
    previous: SequenceNumber | None
    """The record read just before it in the slice."""
    attempt: int
    """The number of its deliveries so far."""
    fate: Fate = Fate.FAILED
    partition_key: str | None = None
    """The name of the line in which later records wait."""
    delay_seconds: float | None = None
    """The handler's own wish for the delay before the next attempt."""

    @property
    def held(self) -> bool:
        """True if it was not delivered this time, and waits on."""
        return self.fate in _HELD

    @property
    def was_delivered(self) -> bool:
        return self.fate not in _NOT_DELIVERED


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRecord:
    """A record of a slice that was delivered and whose outcome is not known yet.

    It stays in flight when its slice has settled, as if it had been emitted by itself: it is acked or failed
    by itself later, and its message time-out begins when the slice settles. One that failed before (its
    ``attempt`` is above 1) holds up what a failure does: what its order has wait behind it is held.
    """

    index: int
    """Its index in the slice, as a ``FailedRecord`` has it."""
    sequence: SequenceNumber
    previous: SequenceNumber | None
    """The record read just before it in the slice."""
    attempt: int
    """The number of this delivery, from 1, which its ``fail`` has to name."""
    partition_key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceOutcome:
    """The outcome of a slice. For a fresh one, ``first`` .. ``last`` are the records read, all of them.

    A record that is neither in ``failures`` nor in ``open_records`` was acked.
    """

    first: SequenceNumber | None = None
    last: SequenceNumber | None = None
    count: int = 0
    failures: tuple[UnackedRecord, ...] = ()
    open_records: tuple[OpenRecord, ...] = ()
    at_end: bool = False
    """The end of a closed shard was read: nothing follows."""
    at_tip: bool = False
    """Everything written so far was read."""
    at_bound: bool = False
    """The record that follows ends the shard for this run."""

    @property
    def unfinished(self) -> frozenset[SequenceNumber]:
        failed = {failure.sequence for failure in self.failures}
        return frozenset(failed.union(delivery.sequence for delivery in self.open_records))


@dataclass(frozen=True, slots=True, kw_only=True)
class Exhausted:
    """A record that must be dead-lettered; the checkpoint waits for that (invariant 6)."""

    shard_id: str
    sequence: SequenceNumber
    attempts: int
    rejected: bool
    expired: bool = False
    """It became too old before it was delivered (again)."""
