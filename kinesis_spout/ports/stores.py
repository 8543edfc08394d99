"""The stores: of an application's progress on one stream, and of records that were given up."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from kinesis_spout.model.record import DeadLetter, LetterId, LetterOutcome
from shard_state import Checkpoint, Shard, StartPositions


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointWrite:
    """A checkpoint to be stored, guarded by the epoch inside it."""

    shard_id: str
    checkpoint: Checkpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """Data stored with checkpoints in the same transaction: both or neither.

    An application may have several, by their names. Each replaces its former content as a whole.
    """

    name: str
    data: bytes
    """Not empty: empty means that nothing is stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitResult:
    """The outcome of one commit's writes: each shard is in exactly one of the two sets."""

    committed: frozenset[str] = field(default=frozenset())
    fenced: frozenset[str] = field(default=frozenset())
    """Refused, because a newer epoch owns the shard or our owner node is gone; with an attachment, also because
    that holds for another shard, or for the attachment."""
    attached: bool = False
    """True if the attachment is stored."""


class CheckpointStore(Protocol):
    """Keeps the progress of one application on one stream."""

    def open(
        self, stream_created: float, start: StartPositions, shards: Collection[Shard], *, arn: str = ""
    ) -> StartPositions:
        """Make the application's place on its first start; on later starts, check that it is the right one.

        On the first start every one of ``shards`` gets a checkpoint at its position of ``start`` (which must be
        resolved: not LATEST) with its parents in it, and then the application itself is marked as begun, in this
        order, so that a crash in between repeats the whole. Afterwards ``start`` and ``shards`` are ignored.
        The stream's ``arn`` is stored too: an error can say whose stream the progress is of.

        Returns:
            The start in force: the one of the first start, or of the last that began again.

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
        ``shards`` a checkpoint at its position of ``start`` (which must be resolved: not LATEST), under an
        epoch above every earlier one, and marks the application as begun again by that deployment.
        Attachments are removed, as by ``reset``. The next process to open repairs a crash in between. Any
        other call changes nothing. It waits for members whose session is about to end.

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
        """Read an attachment; None if nothing is stored. May be called from any thread.

        Only a store that has read it can write it: ``commit`` stores an attachment only while no other store
        has written it since this one read it.

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

        With an attachment, all is one transaction, and all of it is stored or nothing. It is refused (every
        write is fenced then) if one write is, if *any* shard that this coordinator owns is another's by now,
        written or not, if none is owned, or if another store wrote the attachment since this one read it. So
        a store that writes an attachment owned, at that moment, every shard that it believes to own.
        ``writes`` may be empty.

        Raises:
            CommitTooLarge: with an attachment: it is more than one transaction takes. Nothing is stored.
            StoreUnavailable: nothing is known to be stored of those not reported; calling again is safe.
        """
        ...

    def reset(self, checkpoints: Mapping[str, Checkpoint]) -> None:
        """Replace the stored progress, for an operator. Epochs continue to grow. Attachments are removed.

        An attachment belongs to the progress that is replaced: with other progress it would count records
        twice, or not at all.

        Raises:
            ConsumerAlive: a member of the application is registered.
        """
        ...


class DeadLetterSink(Protocol):
    """Keeps the records that were given up."""

    def check_writable(self) -> None:
        """Check that letters can be written, if possible without leaving anything behind.

        Called once, before anything is read: a wrong sink must not be noticed only at the first letter.

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

    def read(self, outcome: LetterOutcome | None = None) -> Iterable[DeadLetter]:
        """Return what is stored and not marked, or has this outcome; oldest file first.

        Raises:
            DeadLetterError: names what cannot be read.
        """
        ...

    def mark(self, letter_ids: Collection[LetterId], outcome: LetterOutcome) -> None:
        """Leave these letters, and all copies of them, out of ``read`` from now on, durably.

        Raises:
            DeadLetterError: none, some or all of them may be marked; marking one again does no harm.
        """
        ...

    def close(self) -> None:
        """Release what is held. May be called twice."""
        ...
