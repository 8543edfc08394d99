"""The state of each shard, from the stream's list and the stored progress together, without owning a shard.

``watch.sight`` decides whether a shard stands still: it also knows its owner's words.
"""

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from kinesis_spout.model.errors import KinesisError
from kinesis_spout.operations.group import GroupView
from kinesis_spout.operations.stored_progress import StoredProgress
from kinesis_spout.operations.world import StreamAccess, World
from shard_state import Checkpoint, Position, Shard
from shard_state.lineage import blocking_parents, parents_first

_READERS: Final = 16


class ShardState(StrEnum):
    """A shard's life as seen from outside; compare ``shard_state.ShardPhase``, which an owner sees.

    They are in the order of ``urgency``.
    """

    STALLED = "stalled"
    """A member owns it, it has records to deliver, and none was delivered, finished or stored for a while."""
    UNREADABLE = "unreadable"
    GONE = "gone"
    """Retention trimmed it before it was over."""
    PAUSED = "paused"
    """A consumer owns it, and has paused: practically every record fails."""
    PAUSED_BY_OPERATOR = "paused by an operator"
    """Nothing of it is handed out until it is resumed."""
    READY = "ready"
    """It can be read, and no member owns it."""
    READING = "reading"
    WAITING = "waiting"
    """A parent is not over."""
    NOT_BEGUN = "not begun"
    OVER = "over"
    """Its end was read, and everything in it is finished."""

    @property
    def urgency(self) -> int:
        """Its place in a list that shows first what an operator should look at, and last what is over."""
        return _URGENCY[self]


_URGENCY: Final = {state: place for place, state in enumerate(ShardState)}
_WITH_A_BACKLOG: Final = frozenset(
    {
        ShardState.WAITING,
        ShardState.READY,
        ShardState.READING,
        ShardState.PAUSED,
        ShardState.PAUSED_BY_OPERATOR,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardView:
    shard_id: str
    state: ShardState
    parents: tuple[str, ...] = ()
    closed: bool = False
    hash_range: tuple[int, int] | None = None
    """None where the stream does not list it."""
    owner: str | None = None
    assigned_to: str | None = None
    pause: str | None = None
    """Its owner's words about its pause; None if it has not paused."""
    checkpoint: Checkpoint | None = None
    """None where nothing is stored, or where it cannot be read."""
    lag_millis: int | None = None
    """``MillisBehindLatest`` of a read of one record at the checkpoint; None if none was made."""
    oldest_unread_millis: int | None = None
    """The age of that record; None if there is none."""
    problem: str | None = None
    stored_at: float | None = None
    """When its progress was stored last, by ZooKeeper's clock; seconds since the epoch."""

    @property
    def read_from(self) -> Position | None:
        """The beginning of the backlog; None if there is nothing to read."""
        if self.state not in _WITH_A_BACKLOG:
            return None
        return Position.trim_horizon() if self.checkpoint is None else self.checkpoint.read_from

    def document(self) -> dict[str, Any]:
        checkpoint = self.checkpoint
        unfinished = () if checkpoint is None else checkpoint.attempts
        return {
            "shard_id": self.shard_id,
            "state": self.state.value,
            "parents": list(self.parents),
            "closed": self.closed,
            "owner": self.owner,
            "pause": self.pause,
            "epoch": None if checkpoint is None else checkpoint.epoch,
            "checkpoint": None if checkpoint is None else str(checkpoint.base),
            "start": None if checkpoint is None else str(checkpoint.start),
            "lag_millis": self.lag_millis,
            "oldest_unread_millis": self.oldest_unread_millis,
            "data_losses": 0 if checkpoint is None else checkpoint.data_losses,
            "holes": 0 if checkpoint is None else len(checkpoint.holes),
            "unfinished": unfinished_document(unfinished),
            "retries": sum(attempts - 1 for _, attempts in unfinished),
            "problem": self.problem,
            "assigned_to": self.assigned_to,
        }


def unfinished_document(attempts: Iterable[tuple[Any, int]]) -> list[dict[str, Any]]:
    return [{"sequence_number": str(sequence), "attempts": count} for sequence, count in attempts]


def describe(listed: Iterable[Shard], progress: StoredProgress, group: GroupView) -> list[ShardView]:
    """Every shard that is listed or stored, parents before children, without its lag."""
    by_id = {shard.shard_id: shard for shard in listed}
    begun = progress.store.read_application() is not None
    owners, pauses = progress.store.owners(), progress.coordinator.pauses()
    operator_pause = progress.group.paused()
    stored, problems, stored_at = progress.read_shards()
    over = {shard_id for shard_id, checkpoint in stored.items() if checkpoint and checkpoint.is_shard_end}
    unlisted = [Shard(shard_id=shard_id, closed=True) for shard_id in stored if shard_id not in by_id]

    def state_of(shard: Shard) -> ShardState:
        shard_id = shard.shard_id
        checks = (
            (shard_id in problems, ShardState.UNREADABLE),
            (shard_id in over, ShardState.OVER),
            (shard_id not in by_id, ShardState.GONE),
            (not begun, ShardState.NOT_BEGUN),
            (shard_id in owners and operator_pause.covers(shard_id), ShardState.PAUSED_BY_OPERATOR),
            (owners.get(shard_id) in pauses, ShardState.PAUSED),
            (shard_id in owners, ShardState.READING),
            (bool(blocking_parents(shard, by_id, stored, over)), ShardState.WAITING),
            (operator_pause.covers(shard_id), ShardState.PAUSED_BY_OPERATOR),
        )
        return next((state for holds, state in checks if holds), ShardState.READY)

    return [
        ShardView(
            shard_id=shard.shard_id,
            state=state_of(shard),
            parents=shard.parents,
            closed=shard.closed,
            hash_range=shard.hash_range if shard.shard_id in by_id else None,
            owner=owners.get(shard.shard_id),
            assigned_to=group.assignment.owners.get(shard.shard_id),
            pause=pauses.get(owners.get(shard.shard_id, "")),
            checkpoint=stored.get(shard.shard_id),
            problem=problems.get(shard.shard_id),
            stored_at=stored_at.get(shard.shard_id),
        )
        for shard in parents_first([*by_id.values(), *unlisted])
    ]


def with_lags(views: Sequence[ShardView], stream: StreamAccess, world: World) -> list[ShardView]:
    """Read one record of each shard that has a backlog, at its checkpoint."""
    found: dict[str, ShardView] = {}
    now = world.time()
    with ThreadPoolExecutor(_READERS, "kinesis-spout-lag") as readers:
        reads = [
            readers.submit(_with_lag, view, view.read_from, stream, now)
            for view in views
            if view.read_from is not None
        ]
        with world.listener.progress("reading each shard's lag", len(reads)) as advance:
            for read in as_completed(reads):
                view = read.result()
                found[view.shard_id] = view
                advance(1)
    return [found.get(view.shard_id, view) for view in views]


def _with_lag(view: ShardView, position: Position, stream: StreamAccess, now: float) -> ShardView:
    try:
        # Behind a user record lies what follows its aggregate, if all of that is done.
        page = stream.open_getter(view.shard_id, position).read(2 if position.is_done else 1)
    except KinesisError as error:
        return replace(view, problem=str(error))
    arrived = page.records[0].arrival_timestamp if page.records else None
    return replace(
        view,
        lag_millis=page.millis_behind_latest,
        oldest_unread_millis=None if arrived is None else max(0, round((now - arrived) * 1000)),
    )
