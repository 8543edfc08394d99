"""An application as it was seen last: its shards, members and retries, and what an operator should look at."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from kinesis_spout.operations.errors import NotFound
from kinesis_spout.operations.group import GroupView
from kinesis_spout.operations.shards import ShardState, ShardView
from kinesis_spout.operations.watch.live_status import LiveRetry, LiveShard, LiveStatus
from shard_state import OperatorPause, SequenceNumber

_STILL_SECONDS: Final = 30.0
"""A shard with a backlog needs attention after this time without a commit; usually one comes every second."""
_MAX_CHARS: Final = 500
_ALARMING: Final = frozenset(
    {ShardState.UNREADABLE, ShardState.GONE, ShardState.PAUSED, ShardState.PAUSED_BY_OPERATOR}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardSight:
    """A shard as it was seen last."""

    view: ShardView
    live: LiveShard | None = None
    """Its owner's words."""
    unmoved_seconds: float = 0.0
    """The time without a move of its checkpoint, while it was looked at and had a backlog."""

    @property
    def lag_millis(self) -> float | None:
        """The lag by its owner's words, else by a read at its checkpoint."""
        if self.live is not None and self.live.lag_millis is not None:
            return self.live.lag_millis
        return self.view.lag_millis

    @property
    def oldest_unread_millis(self) -> float | None:
        """As read at its checkpoint, unless its owner has said since that there is none."""
        is_at_tip = self.live is not None and self.live.lag_millis == 0
        return None if is_at_tip else self.view.oldest_unread_millis

    @property
    def has_backlog(self) -> bool:
        """Say whether records are known to lie behind its checkpoint."""
        return bool(self.lag_millis) or self.oldest_unread_millis is not None

    @property
    def attention(self) -> str | None:
        """Why an operator should look at it; None if nothing is known to be wrong."""
        view, live = self.view, self.live
        told: str | None = None
        if view.problem is not None:
            told = view.problem
        elif view.state in _ALARMING:
            told = view.pause or view.state.value
        elif live is not None and live.read_error:
            told = live.read_error
        elif live is not None and live.stalled:
            told = "it has records to deliver, and has not moved, its owner says"
        elif view.state is ShardState.READY and self.has_backlog:
            told = "it has a backlog, and no member owns it"
        elif (
            view.state is ShardState.READING
            and self.unmoved_seconds >= _STILL_SECONDS
            and (live is None or live.stalled is None)  # its owner knows better
        ):
            told = f"it has a backlog, and its checkpoint has not moved for {self.unmoved_seconds:.0f} s"
        return told and told[:_MAX_CHARS]

    @property
    def retries(self) -> int:
        """Deliveries after the first of what is unfinished, as stored."""
        attempts = () if self.view.checkpoint is None else self.view.checkpoint.attempts
        return sum(count - 1 for _, count in attempts)

    @property
    def holes(self) -> int:
        if self.live is not None and self.live.holes is not None:
            return self.live.holes
        return 0 if self.view.checkpoint is None else len(self.view.checkpoint.holes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """An application as it was seen last."""

    at: float
    """Seconds since the epoch."""
    group: GroupView
    paused: OperatorPause
    shards: Sequence[ShardSight]
    live: Mapping[str, LiveStatus] = field(default_factory=dict)
    """By member; those that name no address are not in it."""
    lags_age_seconds: float | None = None
    """The age of the lags that were read from the stream; None if there are none."""
    problems: Sequence[str] = ()
    """Errors of reading."""

    def shard(self, shard_id: str) -> ShardSight:
        for each in self.shards:
            if each.view.shard_id == shard_id:
                return each
        raise NotFound(f"expected a shard that is listed or stored, got {shard_id[:200]!r}")

    @property
    def retrying(self) -> list[LiveRetry]:
        """The records that wait for a retry: as their owner says, else as stored."""
        said = [each for status in self.live.values() for each in status.retrying or ()]
        telling = {name for name, status in self.live.items() if status.retrying is not None}
        stored = [
            LiveRetry(shard_id=each.view.shard_id, sequence_number=str(sequence), attempts=attempts)
            for each in self.shards
            if each.view.checkpoint is not None and each.view.owner not in telling
            for sequence, attempts in each.view.checkpoint.attempts
        ]
        return said + stored


def seen_shards(
    views: Iterable[ShardView],
    lags: Mapping[str, ShardView],
    live: Mapping[str, LiveStatus],
    moved: Mapping[str, tuple[SequenceNumber, float]],
) -> list[ShardSight]:
    """Put together what ZooKeeper, the stream and the members say of each shard.

    ``moved`` says since when each shard's checkpoint is what it is.
    """
    by_shard = {shard.shard_id: shard for status in live.values() for shard in status.shards}
    now = time.monotonic()
    sights = []
    for stored in views:
        view, found = stored, lags.get(stored.shard_id)
        if found is not None and view.read_from is not None:
            view = replace(
                view,
                lag_millis=found.lag_millis,
                oldest_unread_millis=found.oldest_unread_millis,
                problem=view.problem or found.problem,
            )
        sight = ShardSight(view=view, live=by_shard.get(view.shard_id))
        if sight.has_backlog and view.shard_id in moved:
            sight = replace(sight, unmoved_seconds=now - moved[view.shard_id][1])
        sights.append(sight)
    return sights
