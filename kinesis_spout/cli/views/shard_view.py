"""What can be said of a shard from the stream's list and the stored progress together, without owning it."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from kinesis_spout.cli.stored_progress import StoredProgress
from kinesis_spout.model.errors import CheckpointUnreadable
from shard_state import Checkpoint, Position, Shard
from shard_state.shards.lineage import blocking_parents, parents_first


class ShardState(StrEnum):
    """A shard's life as seen from outside; compare ``shard_state.ShardPhase``, which an owner sees."""

    NOT_BEGUN = "not begun"
    """The application has not begun on the stream."""
    WAITING = "waiting"
    """A parent is not over."""
    READY = "ready"
    """It may be read, and nobody owns it."""
    READING = "reading"
    """A consumer owns it."""
    PAUSED = "paused"
    """A consumer owns it, and has paused: practically every record fails."""
    PAUSED_BY_OPERATOR = "paused by an operator"
    """Nothing of it is handed out until it is resumed."""
    OVER = "over"
    """Its end was read, and everything in it is finished."""
    GONE = "gone"
    """Retention trimmed it before it was over."""
    UNREADABLE = "unreadable"
    """Its checkpoint cannot be read."""


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
class Backlog:
    """How far behind a checkpoint is."""

    lag_millis: int
    """``MillisBehindLatest`` of a read of one record at the checkpoint."""
    oldest_unread_millis: int | None
    """The age of that record; None if there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardView:
    """One shard."""

    shard_id: str
    state: ShardState
    parents: tuple[str, ...] = ()
    closed: bool = False
    owner: str | None = None
    pause: str | None = None
    """What its owner says of its pause; None if it has not paused."""
    checkpoint: Checkpoint | None = None
    """None where nothing is stored, or where it cannot be read."""
    backlog: Backlog | None = None
    problem: str | None = field(default=None)

    @property
    def unfinished(self) -> tuple[tuple[Any, int], ...]:
        """The records beyond the checkpoint that failed and are not finished, and how often each was tried."""
        return () if self.checkpoint is None else self.checkpoint.attempts

    @property
    def read_from(self) -> Position | None:
        """Where the backlog begins; None where there is nothing to read."""
        if self.state not in _WITH_A_BACKLOG:
            return None
        return Position.trim_horizon() if self.checkpoint is None else self.checkpoint.read_from

    def with_backlog(self, backlog: Backlog) -> "ShardView":
        """Add what a read found."""
        return replace(self, backlog=backlog)

    def with_problem(self, problem: str) -> "ShardView":
        """Add why a read failed."""
        return replace(self, problem=problem)

    def document(self) -> dict[str, Any]:
        """Give it as JSON, with keys that stay."""
        checkpoint, backlog = self.checkpoint, self.backlog
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
            "lag_millis": None if backlog is None else backlog.lag_millis,
            "oldest_unread_millis": None if backlog is None else backlog.oldest_unread_millis,
            "holes": 0 if checkpoint is None else len(checkpoint.holes),
            "unfinished": [
                {"sequence_number": str(sequence), "attempts": attempts}
                for sequence, attempts in self.unfinished
            ],
            "retries": sum(attempts - 1 for _, attempts in self.unfinished),
            "problem": self.problem,
        }


def take_view(listed: Iterable[Shard], progress: StoredProgress) -> list[ShardView]:
    """Describe every shard that is listed or stored, parents before children.

    Raises:
        CheckpointUnreadable: the application's mark; an unreadable shard is described as such instead.
        StoreUnavailable: retriable.
    """
    store = progress.store
    by_id = {shard.shard_id: shard for shard in listed}
    begun = store.read_application() is not None
    owners = store.owners()
    pauses = progress.coordinator.pauses()
    operator_pause = progress.group.paused()
    stored_ids = store.shard_ids()
    stored: dict[str, Checkpoint] = {}
    problems: dict[str, str] = {}
    for shard_id in stored_ids:
        try:
            found = store.read_shard(shard_id)
        except CheckpointUnreadable as error:
            problems[shard_id] = str(error)
        else:
            if found is not None:
                stored[shard_id] = found[0]
    over = {shard_id for shard_id, checkpoint in stored.items() if checkpoint.is_shard_end}
    unlisted = [Shard(shard_id=shard_id, closed=True) for shard_id in stored_ids if shard_id not in by_id]

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
            (bool(blocking_parents(shard, by_id, stored_ids, over)), ShardState.WAITING),
            (operator_pause.covers(shard_id), ShardState.PAUSED_BY_OPERATOR),
        )
        return next((state for holds, state in checks if holds), ShardState.READY)

    return [
        ShardView(
            shard_id=shard.shard_id,
            state=state_of(shard),
            parents=shard.parents,
            closed=shard.closed,
            owner=owners.get(shard.shard_id),
            pause=pauses.get(owners.get(shard.shard_id, "")),
            checkpoint=stored.get(shard.shard_id),
            problem=problems.get(shard.shard_id),
        )
        for shard in parents_first([*by_id.values(), *unlisted])
    ]
