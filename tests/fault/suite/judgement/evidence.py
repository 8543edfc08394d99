"""Everything that is known of a run once it is over: what the checkers judge."""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from shard_state import Checkpoint, SequenceNumber
from tests.fault.suite.consumers.delivery_log import NO_EPOCH, Entry, Kind, RecordId
from tests.fault.suite.judgement.zookeeper_history import Ownership, StoredCheckpoint
from tests.fault.suite.producer import Put

KILLED: Final = "SIGKILL of a consumer"
KILLED_LEADER: Final = "SIGKILL of the leader"
STOPPED: Final = "SIGSTOP beyond the session"
STOPPED_LEADER: Final = "SIGSTOP of the leader"
CLOSED: Final = "clean stop and start"

KILLS: Final = frozenset({KILLED, KILLED_LEADER})
SUSPENSIONS: Final = frozenset({STOPPED, STOPPED_LEADER})

_DOUBTFUL: Final = 6
"""From so many records on that failed in a row guarantees.md promises to count no failure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    record: RecordId
    attempts: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What one process took at one moment."""

    life: str
    resident_bytes: int
    threads: int
    descriptors: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """What one process answered when it was asked whether it is alive."""

    life: str
    time: float
    status: int | None
    """None: nothing, in time."""
    said: str = ""


@dataclass(slots=True, kw_only=True)
class Event:
    """A fault that was injected. Mutable: ``end`` comes later. Times are seconds since the epoch."""

    kind: str
    target: str
    begin: float
    end: float | None = None
    life: str = ""
    """Whose, if it is done to one consumer,"""
    shards: tuple[str, ...] = ()
    """and what that one owned."""
    alone: bool = False
    """Whether the world was whole, and nothing else was done to it, when it began."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    ledger: Sequence[Put]
    entries: Sequence[Entry]
    """Of all processes, by time."""
    checkpoints: Sequence[StoredCheckpoint] = ()
    """In the order in which ZooKeeper took them."""
    ownerships: Sequence[Ownership] = ()
    letters: Sequence[Letter] = ()
    parents: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Of each shard."""
    pids: Mapping[str, int] = field(default_factory=dict)
    """Of each life."""
    events: Sequence[Event] = ()
    """The faults, in the order in which they ended."""
    samples: Sequence[Sample] = ()
    probes: Sequence[Probe] = ()
    """By time."""
    retry_limit: int = 3

    @cached_property
    def by_record(self) -> dict[RecordId, list[Entry]]:
        found: dict[RecordId, list[Entry]] = defaultdict(list)
        for entry in self.entries:
            found[entry.record].append(entry)
        return found

    @cached_property
    def shards(self) -> dict[str, list[Put]]:
        """What was put on each shard, in the shard's order."""
        found: dict[str, list[Put]] = defaultdict(list)
        for put in self.ledger:
            found[put.record.shard].append(put)
        return {
            shard: sorted(puts, key=lambda put: put.record.sequence) for shard, puts in sorted(found.items())
        }

    @cached_property
    def lettered(self) -> frozenset[RecordId]:
        return frozenset(letter.record for letter in self.letters)

    def of(self, record: RecordId, *kinds: Kind) -> list[Entry]:
        return [entry for entry in self.by_record.get(record, ()) if entry.kind in kinds]

    def finished_at(self, record: RecordId) -> float | None:
        """Give the first moment at which a record was handled, or durably buried."""
        return _first(self.of(record, Kind.HANDLED, Kind.BURIED))

    def given_up_or_handled_at(self, record: RecordId) -> float | None:
        """Give the first moment from which later records of its key need not wait for a record."""
        return _first(self.of(record, Kind.HANDLED, Kind.EXHAUSTED, Kind.BURIED))

    @cached_property
    def checkpoints_of(self) -> dict[str, list[StoredCheckpoint]]:
        found: dict[str, list[StoredCheckpoint]] = defaultdict(list)
        for stored in self.checkpoints:
            found[stored.shard].append(stored)
        return found

    @cached_property
    def acquisitions(self) -> dict[tuple[str, int], StoredCheckpoint]:
        """By shard and epoch: the write that began the ownership."""
        return {(stored.shard, stored.epoch): stored for stored in self.checkpoints if stored.acquires}

    def epoch_of(self, entry: Entry) -> int:
        """Say under which ownership a delivery was made, also where the door does not tell."""
        if entry.epoch != NO_EPOCH:
            return entry.epoch
        epochs = self.epochs_of_life(self._delivery_of(entry))
        return epochs[-1] if epochs else NO_EPOCH

    def _delivery_of(self, entry: Entry) -> Entry:
        """Give the delivery that a handler has ended.

        A life that lost the shard and got it again may have two under way. Deliveries whose worker died have no
        end: they are among the earlier ones.
        """
        deliveries, ends = (
            [each for each in self.of(entry.record, kind) if each.life == entry.life]
            for kind in (Kind.DELIVERED, Kind.HANDLED)
        )
        if entry not in ends or len(ends) > len(deliveries):
            return entry
        return deliveries[ends.index(entry) - len(ends)]

    def epochs_of_life(self, entry: Entry) -> list[int]:
        """Give the ownerships of the shard that the life had begun when it made a delivery."""
        times, epochs = self._epochs_by_life.get((entry.record.shard, entry.life), ([], []))
        return epochs[: bisect_right(times, entry.time)]

    @cached_property
    def _epochs_by_life(self) -> dict[tuple[str, str], tuple[list[float], list[int]]]:
        lives = {pid: life for life, pid in self.pids.items()}
        pid_of = {ownership.session: ownership.pid for ownership in self.ownerships}
        found: dict[tuple[str, str], tuple[list[float], list[int]]] = defaultdict(lambda: ([], []))
        for stored in self.checkpoints:
            if stored.acquires:
                times, epochs = found[stored.shard, lives.get(pid_of.get(stored.session, 0), "")]
                times.append(stored.time)
                epochs.append(stored.epoch)
        return found

    @cached_property
    def spared(self) -> Counter[tuple[RecordId, int]]:
        """Count the failures that may be the beginning of an outage, by record and ownership.

        By what the listener of each life was told, which is nothing on Spark.
        """
        rows: dict[str, set[RecordId]] = defaultdict(set)
        found: Counter[tuple[RecordId, int]] = Counter()
        for entry in self.entries:
            row = rows[entry.life]
            if entry.kind is Kind.ACKED:
                row.clear()
            elif entry.kind is Kind.FAILED:
                row.add(entry.record)
                found[entry.record, entry.epoch] += len(row) >= _DOUBTFUL
        return found

    @cached_property
    def wakes(self) -> dict[str, list[float]]:
        """When each life was woken up that had been suspended."""
        found: dict[str, list[float]] = defaultdict(list)
        for event in self.events:
            if event.kind in SUSPENSIONS and event.end is not None:
                found[event.life].append(event.end)
        return found

    @cached_property
    def workers(self) -> dict[str, list[float]]:
        """When Python workers of Spark began, by life."""
        found: dict[str, list[float]] = defaultdict(list)
        for entry in self.entries:
            if entry.kind is Kind.NEW_WORKER:
                found[entry.life].append(entry.time)
        return found


def covers(checkpoint: Checkpoint, sequence: int) -> bool:
    """Say whether a checkpoint tells that a record is finished."""
    number = SequenceNumber(sequence)
    return number <= checkpoint.base or any(after < number <= last for after, last in checkpoint.holes)


def stored_attempts(checkpoint: Checkpoint, sequence: int) -> int:
    number = SequenceNumber(sequence)
    return next((count for counted, count in checkpoint.attempts if counted == number), 0)


def _first(entries: Iterable[Entry]) -> float | None:
    return min((entry.time for entry in entries), default=None)
