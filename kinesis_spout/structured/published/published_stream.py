"""The progress of a query on one stream, in the place of an application: as a spout would leave it.

A query writes what a consumer writes, under the same fence: it registers as a member, owns the shards that it
reads, and each write is conditional on the ownership's epoch. So the command line shows a query like a spout,
and each can continue where the other ended.

    at its end                     SHARD_END, before anything is written of the children (invariant 8)
    after a record                 that record as the base
    nothing read yet               the start, no base

A query finishes records in order: it leaves no holes. Where a spout left some, the query begins at the base,
and the finished records in them come again.

A base that is stored never goes back (invariant 1). If it is ahead of the query it stays until the query has
passed it: what is finished stays finished, also when another reads it again.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final, Protocol

from kinesis_spout.model.clock import Clock
from kinesis_spout.model.errors import ConsumerAlive
from kinesis_spout.ports import (
    DEFAULT_SESSION_TIMEOUT_SECONDS,
    CheckpointStore,
    CheckpointWrite,
    CommitResult,
    Coordinator,
)
from kinesis_spout.structured.offsets import ShardOffset, StreamOffset
from shard_state import Checkpoint, Position, PositionType, SequenceNumber, Shard, StartPositions
from shard_state.sequence_number import SHARD_END, SHARD_START

OTHERS_SECONDS: Final = DEFAULT_SESSION_TIMEOUT_SECONDS + 5.0
"""How long another member can be present: a killed process is registered until its session ends."""

_log = logging.getLogger(__name__)


class Place(Protocol):
    """Where an application keeps its progress on one stream. ``ZooKeeperBackend`` is one."""

    @property
    def store(self) -> CheckpointStore: ...

    @property
    def coordinator(self) -> Coordinator: ...

    def close(self) -> None:
        """Give everything up and leave. May be called twice, and from any thread."""
        ...


class PublishedStream:
    """Mutable; used by one thread at a time, but for ``close``.

    Every method but ``close`` can raise ``StoreUnavailable``, and the caller repeats it; any other error ends
    the query. ``place`` is connected already; ``what`` names application and stream in messages.
    """

    def __init__(self, place: Place, what: str, clock: Clock) -> None:
        self._place = place
        self._what = what
        self._clock = clock
        self._entered = False
        self._begun = False
        self._held: dict[str, Checkpoint] = {}
        """What is stored of the shards we own."""
        self._over: set[str] = set()
        """The shards whose SHARD_END is stored."""
        self._refused_since: float | None = None

    def enter(self) -> bool:
        """Register as the only living member; False while another one is: call again soon.

        Raises ConsumerAlive if that lasts longer than a dead one's session lives, and StoreError.
        """
        if not self._entered:
            others = self._others()
            if others:
                self._wait_for(others)
                return False
            self._place.coordinator.join()
            self._entered = True
            self._refused_since = None
        return True

    def stored(self, stream: StreamOffset) -> Mapping[str, Checkpoint]:
        """Empty if the application has not begun here. Raises StreamRecreated, CheckpointUnreadable."""
        if not self._place.store.load():
            return {}
        self._begin(stream)
        return self._place.store.load()

    def write(self, done: StreamOffset) -> bool:
        """Store that everything up to ``done`` is processed; begin the application if it has not begun.

        False if some of it could not be stored, because a shard was not ours: call again soon. Raises like
        ``stored``, and ConsumerAlive if another member owns a shard and keeps it.
        """
        if not self.enter():
            return False
        if not self._begun:
            self._begin(done)
        for shard_id in self._place.coordinator.take_lost():
            self._held.pop(shard_id, None)
        ended = (shard_id for shard_id, shard in done.shards.items() if shard.at_end)
        if not self._write_shards(done, ended) or not self._write_shards(done, done.readable()):
            return False
        self._refused_since = None
        return True

    def close(self) -> None:
        """Give the shards up and leave. May be called twice, and from any thread."""
        self._place.close()

    def _begin(self, stream: StreamOffset) -> None:
        # One start for all. Where they differ each is written right afterwards, with the first publication; a
        # crash in between leaves the beginning, from which nothing is lost.
        starts = {shard.position for shard in stream.shards.values()}
        start = starts.pop() if len(starts) == 1 else Position.trim_horizon()
        shards = [
            Shard(shard_id=shard_id, parents=shard.parents) for shard_id, shard in stream.shards.items()
        ]
        self._place.store.open(stream.created, StartPositions(default=start), shards)
        self._over = {
            shard_id for shard_id, checkpoint in self._place.store.load().items() if checkpoint.is_shard_end
        }
        self._begun = True

    def _write_shards(self, done: StreamOffset, shard_ids: Iterable[str]) -> bool:
        ours = True
        writes: list[CheckpointWrite] = []
        for shard_id in shard_ids:
            if shard_id in self._over:
                continue
            shard = done.shards[shard_id]
            held = self._held.get(shard_id) or self._acquire(shard_id, shard)
            if held is None:
                ours = False
                continue
            checkpoint = _advanced(held, shard, self._place.coordinator.member)
            if checkpoint is not None:
                writes.append(CheckpointWrite(shard_id=shard_id, checkpoint=checkpoint))
        result = self._place.store.commit(writes) if writes else CommitResult()
        for write in writes:
            if write.shard_id in result.committed:  # else its ownership is lost, and will be reported so
                self._held[write.shard_id] = write.checkpoint
        self._give_up_over()
        return ours and not result.fenced

    def _acquire(self, shard_id: str, shard: ShardOffset) -> Checkpoint | None:
        coordinator = self._place.coordinator
        fresh = Checkpoint(start=shard.position, parents=shard.parents, app_instance=coordinator.member)
        held = coordinator.acquire(shard_id, fresh)
        if held is None:
            self._wait_for(self._others())
            return None
        if held.base > _base(shard):
            _log.warning(
                "%s: what is stored of %s, %s, is ahead of the query, which is at %s; it is left as it is until "
                "the query has passed it",
                self._what,
                shard_id,
                held.base,
                shard.position,
            )
        self._held[shard_id] = held
        return held

    def _give_up_over(self) -> None:
        over = [shard_id for shard_id, held in self._held.items() if held.is_shard_end]
        self._place.coordinator.release(over)
        for shard_id in over:
            del self._held[shard_id]
        self._over.update(over)

    def _others(self) -> list[str]:
        coordinator = self._place.coordinator
        return [member for member in coordinator.members() if member != coordinator.member]

    def _wait_for(self, others: list[str]) -> None:
        now = self._clock.monotonic()
        names = ", ".join(others) or "a member that has just left"
        if self._refused_since is None:
            self._refused_since = now
            _log.warning(
                "%s: %s is registered; waiting up to %g s, as long as the session of a killed process lives",
                self._what,
                names,
                OTHERS_SECONDS,
            )
        elif now - self._refused_since > OTHERS_SECONDS:
            raise ConsumerAlive(
                f"{self._what}: expected nobody else at work, found {names}, for {OTHERS_SECONDS:g} s: another "
                "consumer or query has this checkpointApp, or this query uses its DataFrame twice. Stop the "
                "other, or give this query another checkpointApp"
            )


def restored(
    stream: StreamOffset,
    stored: Mapping[str, Checkpoint],
    unknown: Callable[[ShardOffset], ShardOffset],
) -> StreamOffset:
    """The offset of the stored checkpoints. ``unknown`` says where a shard without one begins."""
    shards = {shard_id: unknown(shard) for shard_id, shard in stream.shards.items() if shard_id not in stored}
    for shard_id, checkpoint in stored.items():
        listed = stream.shards.get(shard_id)
        shards[shard_id] = ShardOffset(
            position=_position(checkpoint),
            at_end=checkpoint.is_shard_end,
            parents=(checkpoint.parents or ()) if listed is None else listed.parents,
        )
    return StreamOffset(created=stream.created, shards=shards)


def _position(checkpoint: Checkpoint) -> Position:
    base = checkpoint.base
    if base in (SHARD_START, SHARD_END):
        return checkpoint.start
    # Inside an aggregate: from the whole of it again; offsets of queries lie between records of Kinesis.
    return Position.after(base) if base.is_whole else Position.at(SequenceNumber(base.number))


def _base(shard: ShardOffset) -> SequenceNumber:
    if shard.at_end:
        return SHARD_END
    number = shard.position.sequence_number
    if number is None or shard.position.type is not PositionType.AFTER_SEQUENCE_NUMBER:
        return SHARD_START
    return number


def _advanced(held: Checkpoint, shard: ShardOffset, member: str) -> Checkpoint | None:
    """The checkpoint to store; None if it is stored, or a later one."""
    base = _base(shard)
    if base > held.base:
        # The base now covers what the holes held up to here; the holes beyond are given up.
        return replace(held, base=base, holes=(), anchor=None, attempts=(), app_instance=member)
    if base == held.base == SHARD_START and shard.position != held.start and not held.holes:
        return replace(held, start=shard.position, attempts=(), anchor=None, app_instance=member)
    return None
