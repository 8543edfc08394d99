"""A stream, its store and a reader of slices, in plain Python: what the models of the shells work on.

The stream knows the truth over all restarts: which records are finished, and how. Everything that is stored or
delivered is checked against it.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto

from shard_state import (
    Checkpoint,
    Fate,
    Order,
    Position,
    PositionType,
    SequenceNumber,
    Shard,
    ShardBound,
    SliceKind,
    SliceOutcome,
    SlicePlan,
    UnackedRecord,
)
from shard_state.checkpoint.checkpoint import fits, next_ownership
from shard_state.checkpoint.hole_map import within
from shard_state.sequence_number import WHOLE


class TreeVerdict(Enum):
    """What the handler does with a record."""

    ACK = auto()
    FAIL = auto()
    REJECT = auto()


@dataclass
class StoredRecord:
    """A record of the stream, and what became of it."""

    shard_id: str
    sequence: SequenceNumber
    key: str | None
    poison: bool
    """It kills the worker that delivers it."""
    finished: bool = False


@dataclass
class StreamShard:
    """One shard of the stream."""

    shard: Shard
    records: list[StoredRecord] = field(default_factory=list)

    def after(self, plan: SlicePlan) -> list[StoredRecord]:
        """List the records from where a slice begins."""
        if plan.position.type is PositionType.TRIM_HORIZON:
            return list(self.records)
        begin = plan.position.sequence_number
        assert begin is not None
        return [record for record in self.records if record.sequence > begin]


class Stream:
    """Shards that are written to, split and merged. Mutable."""

    def __init__(self) -> None:
        self.shards: dict[str, StreamShard] = {}
        self.written = 0

    def open_shard(self, parents: tuple[str, ...] = ()) -> str:
        shard_id = f"shard-{len(self.shards)}"
        for parent in parents:
            before = self.shards[parent]
            before.shard = replace(before.shard, closed=True)
        self.shards[shard_id] = StreamShard(Shard(shard_id=shard_id, parents=parents))
        return shard_id

    def open_shards(self) -> list[str]:
        return [shard_id for shard_id, shard in self.shards.items() if not shard.shard.closed]

    def close_all(self) -> None:
        for shard in self.shards.values():
            shard.shard = replace(shard.shard, closed=True)

    def put(self, shard_id: str, key: str | None, *, poison: bool, sub: int = WHOLE) -> None:
        """Put a record, or the user record ``sub`` of an aggregated one."""
        self.written += 7 if sub in (0, WHOLE) else 0
        sequence = SequenceNumber(self.written, sub)
        self.shards[shard_id].records.append(StoredRecord(shard_id, sequence, key, poison))

    def record(self, shard_id: str, sequence: SequenceNumber) -> StoredRecord:
        return next(record for record in self.shards[shard_id].records if record.sequence == sequence)

    def unfinished(self, shard_id: str) -> list[StoredRecord]:
        return [record for record in self.shards[shard_id].records if not record.finished]

    def check_parents_finished(self, shard_id: str) -> None:
        """No record of a child before every record of its parents is finished (invariant 7)."""
        for parent in self.shards[shard_id].shard.parents:
            assert not self.unfinished(parent)
            self.check_parents_finished(parent)

    def check_claims(self, shard_id: str, checkpoint: Checkpoint) -> None:
        """What a checkpoint covers is finished: a crash loses nothing (invariants 6, 14)."""
        for record in self.shards[shard_id].records:
            if record.sequence <= checkpoint.base or within(checkpoint.holes, record.sequence):
                assert record.finished


class Store:
    """Encoded checkpoints, guarded by their epochs. Mutable."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._encoded: dict[str, bytes] = {}

    def load(self) -> Mapping[str, Checkpoint]:
        return {shard_id: Checkpoint.decode(stored) for shard_id, stored in self._encoded.items()}

    def open(self) -> None:
        """Store every shard, as the first start does."""
        for shard_id, shard in self._stream.shards.items():
            parents = shard.shard.parents
            self._encoded[shard_id] = Checkpoint(start=Position.trim_horizon(), parents=parents).encode()

    def to_begin(self) -> list[str]:
        """Name the shards of which nothing is stored, and whose parents are over."""
        over = self.over()
        return [
            shard_id
            for shard_id, shard in self._stream.shards.items()
            if shard_id not in self._encoded and over.issuperset(shard.shard.parents)
        ]

    def begin(self, shard_id: str) -> None:
        """Store a shard, as another consumer does, who releases it again."""
        parents = self._stream.shards[shard_id].shard.parents
        self.acquire(shard_id, Checkpoint(start=Position.trim_horizon(), parents=parents))

    def acquire(self, shard_id: str, fresh: Checkpoint) -> Checkpoint:
        """Raise the epoch, as whoever becomes the owner does."""
        stored = Checkpoint.decode(self._encoded[shard_id]) if shard_id in self._encoded else None
        now = next_ownership(stored, fresh)
        self._encoded[shard_id] = now.encode()
        return now

    def commit(self, shard_id: str, checkpoint: Checkpoint) -> bool:
        """Store a checkpoint; False if it comes from an epoch that is over (invariant 10)."""
        before = Checkpoint.decode(self._encoded[shard_id])
        if before.epoch != checkpoint.epoch:
            return False
        assert checkpoint.base >= before.base
        self._stream.check_claims(shard_id, checkpoint)
        self._encoded[shard_id] = checkpoint.encode()
        return True

    def over(self) -> set[str]:
        return {shard_id for shard_id, checkpoint in self.load().items() if checkpoint.is_shard_end}


class LinesOfRecords:
    """What has become of each shard's records under its present ownership. Mutable.

    The shells tell it of every delivery and outcome; it says whether the order holds: a record is not delivered
    before an earlier one of its line (its key, or its shard) that is not finished, nor while one waits that
    failed. A failure that was stored is known to every later owner.
    """

    def __init__(self, order: Order, unfinished: Callable[[str], list[StoredRecord]]) -> None:
        self._order = order
        self._unfinished = unfinished
        self._failed: dict[str, set[SequenceNumber]] = {}
        self._delivered: dict[str, set[SequenceNumber]] = {}

    def begin(self, shard_id: str, checkpoint: Checkpoint) -> None:
        """Begin an ownership with what was stored: the records are read again, in their order."""
        self._failed[shard_id] = {sequence for sequence, _ in checkpoint.attempts}
        self._delivered[shard_id] = set()

    def deliver(self, record: StoredRecord, acked: Collection[SequenceNumber] = ()) -> None:
        """Check a delivery. ``acked`` were acked in the same slice, of which nobody else has heard yet."""
        failed, delivered = self._failed[record.shard_id], self._delivered[record.shard_id]
        for earlier in self._unfinished(record.shard_id):
            if earlier.sequence >= record.sequence:
                break
            if self._is_in_line(earlier, record) and earlier.sequence not in acked:
                assert earlier.sequence in delivered, f"{record} overtakes {earlier}"
                assert earlier.sequence not in failed, f"{record} does not wait for {earlier}, which failed"
        delivered.add(record.sequence)

    def fail(self, record: StoredRecord) -> None:
        self._failed[record.shard_id].add(record.sequence)

    def waited_for(self, shard_id: str) -> set[SequenceNumber]:
        """Name the records that failed and are not finished."""
        return {record.sequence for record in self._unfinished(shard_id)} & self._failed[shard_id]

    def _is_in_line(self, earlier: StoredRecord, record: StoredRecord) -> bool:
        if self._order is Order.KEY:
            return record.key is not None and earlier.key == record.key
        return self._order is Order.SHARD


@dataclass(frozen=True, kw_only=True)
class Delivered:
    """What a reader did with a slice, before anybody heard of it."""

    plan: SlicePlan
    outcome: SliceOutcome
    acked: tuple[StoredRecord, ...]
    failed: tuple[StoredRecord, ...]
    delivered: int
    """How many of its records reached the handler."""
    killed_by: StoredRecord | None
    """The record that ended the worker; then nobody learns of the outcome."""


def deliver_slice(
    plan: SlicePlan,
    *,
    records: list[StoredRecord],
    closed: bool,
    order: Order,
    verdict: Callable[[StoredRecord, int], TreeVerdict],
    on_delivery: Callable[[StoredRecord, Collection[SequenceNumber]], None],
) -> Delivered:
    """Do what an executor does with a slice.

    Args:
        plan: the slice.
        records: what follows the slice's position; for a slice of retries, its records.
        closed: whether nothing follows those records.
        order: what a failure holds up.
        verdict: what the handler does with a record, at its n-th delivery.
        on_delivery: told of each delivery, and of which records were acked before it in the slice.
    """
    holes, attempts = plan.holes, dict(plan.attempts)
    if records and not fits(plan.anchor, records[0].sequence):
        holes, attempts = (), {}
    attempts.update({retry.sequence: retry.attempt - 1 for retry in plan.retries})
    blocked: set[str | None] = set(plan.blocked_keys if plan.is_fresh else ())
    stopped = False
    delivered = 0
    read: list[StoredRecord] = []
    acked: list[StoredRecord] = []
    failed: list[StoredRecord] = []
    failures: list[UnackedRecord] = []
    killed_by = None
    wanted = before(plan.bound, records)
    for record in wanted[: plan.limit]:
        if (len(failures) >= plan.max_failures and plan.is_fresh) or delivered >= plan.most_deliveries:
            break
        previous = read[-1].sequence if read else None
        read.append(record)
        if within(holes, record.sequence):
            assert record.finished
            continue
        attempt = attempts.get(record.sequence, 0)
        held = (order is Order.SHARD and stopped) or (order is Order.KEY and record.key in blocked)
        said = TreeVerdict.ACK
        if not held:
            attempt += 1
            delivered += 1
            on_delivery(record, [before.sequence for before in acked])
            if record.poison:
                killed_by = record
                break
            said = verdict(record, attempt)
            if said is TreeVerdict.ACK:
                acked.append(record)
                continue
            failed.append(record)
        stopped = True
        if record.key is not None:
            blocked.add(record.key)
        failures.append(
            UnackedRecord(
                index=len(read) - 1,
                sequence=record.sequence,
                previous=previous,
                attempt=attempt,
                fate=fate_of(held=held, rejected=said is TreeVerdict.REJECT),
                partition_key=record.key,
            )
        )
    has_all = len(read) == len(records)
    return Delivered(
        plan=plan,
        outcome=SliceOutcome(
            first=read[0].sequence if read and plan.is_fresh else None,
            last=read[-1].sequence if read and plan.is_fresh else None,
            count=len(read),
            failures=tuple(failures),
            at_end=plan.is_fresh and has_all and closed,
            at_tip=has_all,
            at_bound=plan.is_fresh and len(read) == len(wanted) < len(records),
        ),
        acked=tuple(acked),
        failed=tuple(failed),
        delivered=delivered,
        killed_by=killed_by,
    )


def fate_of(*, held: bool = False, rejected: bool) -> Fate:
    if held:
        return Fate.HELD
    return Fate.REJECTED if rejected else Fate.FAILED


def before(bound: ShardBound | None, records: list[StoredRecord]) -> list[StoredRecord]:
    """List the records before the first that ends their shard for this run."""
    ends = (at for at, record in enumerate(records) if bound and bound.ends_before(record.sequence, None))
    return records[: next(ends, len(records))]


def all_held(plan: SlicePlan, records: list[StoredRecord]) -> SliceOutcome | None:
    """Give what the shell knows of a slice whose job died: its records, none of them delivered."""
    if plan.kind is SliceKind.READ or not records:
        return None
    holes, attempts = plan.holes, dict(plan.attempts)
    if plan.anchor not in (None, records[0].sequence):
        holes, attempts = (), {}
    attempts.update({retry.sequence: retry.attempt - 1 for retry in plan.retries})
    read: list[StoredRecord] = []
    failures: list[UnackedRecord] = []
    for record in records[: plan.limit]:
        if len(failures) == plan.max_failures:
            break
        if not within(holes, record.sequence):
            failures.append(
                UnackedRecord(
                    index=len(read),
                    sequence=record.sequence,
                    previous=read[-1].sequence if read else None,
                    attempt=attempts.get(record.sequence, 0),
                    fate=Fate.HELD,
                    partition_key=record.key,
                )
            )
        read.append(record)
    return SliceOutcome(
        first=read[0].sequence, last=read[-1].sequence, count=len(read), failures=tuple(failures)
    )
