"""What the spout needs from the outside, as small protocols.

Each port has one contract test suite in ``tests/contract``, which runs against the fake in
``kinesis_spout.testing`` and against the real thing. Every method is called from one thread at a time per
object, unless it says otherwise.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from kinesis_spout.dead_letter import DeadLetter
from kinesis_spout.record import Record
from shard_state import Checkpoint, Position, Shard, StartPositions


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSummary:
    """Which stream this is. The creation time tells a re-created stream from the one it replaced."""

    name: str
    arn: str
    created: float
    """Seconds since the epoch."""
    retention_hours: int | None = None
    """How long it keeps a record; None where that is not known."""


def is_same_creation(one: float, other: float) -> bool:
    """Tell whether two creation times, in seconds, are of the same stream.

    They come in seconds or in milliseconds. No stream is deleted and made again within a second.
    """
    return abs(one - other) <= 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One answer of GetRecords, or what was pushed since the last page; its aggregated records taken apart."""

    records: Sequence[Record]
    """In shard order; may be empty although more follows, and many more than the limit asked for: that counts an
    aggregated record as one."""
    size_bytes: int
    """What the records' data and keys weigh against the read limit."""
    millis_behind_latest: int
    """How far the end of this page is behind the tip. Some emulators always say 0."""
    at_end: bool
    """The shard is closed, and this is its last page: nothing ever follows."""
    child_shards: tuple[Shard, ...] = ()
    """On the last page of a closed shard: the shards that continue it."""
    kinesis_records: int | None = None
    """How many records these are to Kinesis; None: as many as ``records``."""
    damaged_aggregates: int = 0
    """How many of them begin like an aggregated record and are damaged: they are given as they are."""
    records_outside_shard: int = 0
    """How many user records lie outside the shard by their hash keys. They are given here, and nowhere else."""

    def holds_at_least(self, limit: int) -> bool:
        """Tell whether Kinesis gave as many records as it was asked for: then there are more."""
        count = len(self.records) if self.kinesis_records is None else self.kinesis_records
        return count >= limit

    says_nothing: bool = False
    """Nothing was pushed since the last page. It is empty, and what it says of the tip is what that one said."""
    pushed_at: float | None = None
    """When the last of it was pushed, at the latest: the clock's monotonic time. None: it was asked for now."""


class ShardLister(Protocol):
    """Says which shards a stream has."""

    def summary(self) -> StreamSummary:
        """Describe the stream.

        Raises:
            StreamNotFound, AccessDenied: at once, with what to do.
            KinesisError: with ``retriable`` set, for what may pass.
        """
        ...

    def list_shards(self) -> list[Shard]:
        """List every shard that retention has left, open and closed, all pages."""
        ...


class ShardGetter(Protocol):
    """Reads one shard forward from a position. Not thread-safe."""

    @property
    def position(self) -> Position:
        """From where the next page comes: after the last record fetched (all of an aggregate), or the start."""
        ...

    @property
    def ready_at(self) -> float:
        """The clock's monotonic time before which a read would exceed the shard's read limits, or is in vain."""
        ...

    def read(self, limit: int) -> Page:
        """Fetch at most ``limit`` records (1 to 10,000), waiting for ``ready_at`` first.

        The limit counts the records of Kinesis. Aggregated ones are taken apart: ``Page.records`` are the user
        records inside, from the start position on where that lies in the middle of an aggregate. Where Kinesis
        pushes records, a page is what came since the last read: an empty one, often.

        Iterators are obtained, kept and renewed inside. A throttle moves ``ready_at`` and raises; the place
        in the shard is kept by every error, so that the same call may simply be made again.

        Raises:
            Throttled, Unavailable, KeyUnavailable: retriable; ``ready_at`` says when.
            DataLoss: the position is behind retention or outside the shard, and ``fail_on_data_loss`` is set.
            ShardNotFound, StreamNotFound, AccessDenied: not retriable.
        """
        ...

    def when_ready(self, call: Callable[[], None]) -> None:
        """Have ``call`` made, on any thread, when records, the end or an error came since the last read.

        So a shard is read as soon as Kinesis pushes, and not when the next read is due. A getter that polls
        never makes the call, and a call says nothing of ``ready_at``. Called before the first read.
        """
        ...

    def close(self) -> None:
        """Release what is held; nothing is read any more. On any thread; may be called twice."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointWrite:
    """A checkpoint to be stored, guarded by the epoch inside it."""

    shard_id: str
    checkpoint: Checkpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """What else is to be stored with checkpoints, in their very transaction: both or neither.

    An application may have several, by their names. Each is its whole content, and replaces what was there.
    """

    name: str
    data: bytes
    """Not empty: empty says that nothing is stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitResult:
    """What became of the writes of one commit: each shard is in exactly one of the two sets."""

    committed: frozenset[str] = field(default=frozenset())
    fenced: frozenset[str] = field(default=frozenset())
    """Refused, because a newer epoch owns the shard or our owner node is gone; with an attachment, also because
    that holds for another shard, or for the attachment."""
    attached: bool = False
    """Whether the attachment is stored."""


class CheckpointStore(Protocol):
    """Keeps the progress of one application on one stream."""

    def open(self, stream_created: float, start: StartPositions, shards: Collection[Shard]) -> StartPositions:
        """Make the application's place on its first start; on later starts, check that it is the right one.

        On the first start every one of ``shards`` gets a checkpoint at its position of ``start`` (which must be
        resolved: not LATEST) with its parents in it, and then the application itself is marked as begun, in this
        order, so that a crash in between repeats the whole. Afterwards ``start`` and ``shards`` are ignored.

        Returns:
            The start that is in force: the one of the first start, or of the last that began again.

        Raises:
            InvalidConfig: this is the first start, and it names shards that are not among ``shards``, or too many.
            StreamRecreated: what is stored was made for a stream created at another time.
            CheckpointUnreadable: what is stored cannot be read.
            StoreUnavailable: retriable.
        """
        ...

    def begin_again(
        self, deployment: str, start: StartPositions, shards: Collection[Shard]
    ) -> StartPositions | None:
        """Have the application begin again at ``start``, once for each deployment. Called after ``open``.

        The first process of a deployment that calls this, while no member is registered, gives every one of
        ``shards`` a checkpoint at its position of ``start`` (which must be resolved: not LATEST), under an epoch
        above every earlier one, and marks the application as begun again by that deployment. Attachments are
        removed, as by ``reset``. A crash in between is made good by whoever opens next. Any other call changes
        nothing. It waits for members whose session is about to end.

        Returns:
            The start that was in force before, if this call has done it; None if it was done before.

        Raises:
            InvalidConfig: the start names shards that are not among ``shards``, or too many; nothing is changed.
            ConsumerAlive: names the members that live, of another deployment.
            StoreUnavailable: retriable.
        """
        ...

    def load(self) -> Mapping[str, Checkpoint]:
        """Read every shard's checkpoint.

        Raises:
            CheckpointUnreadable: names the shard; never skipped, never replaced by a fresh start.
            ProgressLost: what ``open`` found or made is gone, or is another application's beginning.
            StoreUnavailable: retriable.
        """
        ...

    def check_begun(self) -> None:
        """Make sure that what ``open`` found or made is still there.

        Raises:
            ProgressLost: it is gone, or is another application's beginning.
            StoreUnavailable: retriable.
        """
        ...

    def attached(self, name: str) -> bytes | None:
        """Read an attachment; None where nothing is stored. May be called from any thread.

        Reading is what entitles to write: ``commit`` stores an attachment only while nobody else has written it
        since this store read it.

        Raises:
            ProgressLost: as ``load``.
            StoreUnavailable: retriable.
        """
        ...

    def commit(self, writes: Sequence[CheckpointWrite], attachment: Attachment | None = None) -> CommitResult:
        """Store all the writes, in as few transactions as their size allows (normally one).

        Each write takes effect only if this coordinator still owns the shard under the write's epoch, checked
        by the store itself in the same transaction. One fenced shard does not stop the others. A transaction
        whose outcome is unknown (connection lost) is resolved by re-reading before this returns.

        With an attachment, all is one transaction, and all of it is stored or nothing. It is refused (every write
        is fenced then) if one write is, if *any* shard that this coordinator owns is another's by now, written or
        not, if none is owned, or if somebody else wrote the attachment since it was read here. So who stores an
        attachment owned, at that moment, every shard that it believes to own. ``writes`` may be empty.

        Raises:
            CommitTooLarge: with an attachment: it is more than one transaction takes. Nothing is stored.
            StoreUnavailable: nothing is known to be stored of those not reported; calling again is safe.
        """
        ...

    def reset(self, checkpoints: Mapping[str, Checkpoint]) -> None:
        """Replace the stored progress, for an operator. Epochs go on growing. Attachments are removed.

        What was attached belongs to the progress that is replaced: with another one it would count records
        twice, or not at all.

        Raises:
            ConsumerAlive: a member of the application is registered.
        """
        ...


class DeadLetterSink(Protocol):
    """Keeps the records that were given up."""

    def check_writable(self) -> None:
        """Find out that letters can be written, as far as that is possible without leaving anything behind.

        Called once, before anything is read: a sink that is wrong must not be noticed at the first letter.

        Raises:
            DeadLetterError: says what is wrong.
        """
        ...

    def write(self, letters: Sequence[DeadLetter]) -> None:
        """Make the letters durable before returning (invariant 6). At least once: a repeat may store twice.

        Raises:
            DeadLetterError: retriable; none, some or all of them may be stored.
        """
        ...

    def read(self) -> Iterable[DeadLetter]:
        """Give back what is stored and was not redriven, oldest file first.

        Raises:
            DeadLetterError: names what cannot be read.
        """
        ...

    def close(self) -> None:
        """Release what is held. May be called twice."""
        ...
