"""An application as it was seen last: its shards, members and retries, and what an operator should look at."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from kinesis_spout.operations.errors import NotFound
from kinesis_spout.operations.group import GroupView, group_view
from kinesis_spout.operations.shards import ShardState, ShardView, describe, with_lags
from kinesis_spout.operations.watch.live_status import LiveRetry, LiveShard, LiveStatus, ask_members
from kinesis_spout.operations.world import World, begun_progress
from kinesis_spout.settings import SpoutConfig
from shard_state import OperatorPause

_STILL_SECONDS: Final = 30.0
"""A shard whose owner says nothing stands still when for this time records wait and no commit comes; usually one
comes every second."""
_MAX_CHARS: Final = 500
_MOST_LINES: Final = 8
_ALARMING: Final = frozenset(
    {ShardState.UNREADABLE, ShardState.GONE, ShardState.PAUSED, ShardState.PAUSED_BY_OPERATOR}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardSight:
    """A shard as it was seen last."""

    view: ShardView
    live: LiveShard | None = None
    """Its owner's words."""
    unstored_seconds: float = 0.0
    """The time since its progress was stored last."""

    @property
    def state(self) -> ShardState:
        return self.view.state if self._stall is None else ShardState.STALLED

    @property
    def reason(self) -> str | None:
        """Why an operator should look at it; None if nothing is known to be wrong."""
        view, live = self.view, self.live
        told = [self._stall, view.problem]
        if not any(told):
            told = [
                (view.pause or view.state.value) * (view.state in _ALARMING),
                live.read_error if live else None,
                "it has a backlog, and no member owns it"
                * (view.state is ShardState.READY and self.has_backlog),
            ]
        return "; ".join(filter(None, told))[:_MAX_CHARS] or None

    @property
    def _stall(self) -> str | None:
        """Why it is said to stand still; None if it is not."""
        live = self.live
        if self.view.state is not ShardState.READING:
            return None
        if live is not None and live.stalled is not None:  # its owner knows better
            said = (
                live.reason
                or live.read_error
                or "it has records to deliver, and has not moved, its owner says"
            )
            return said if live.stalled else None
        waits = max(self.view.lag_millis or 0, self.view.oldest_unread_millis or 0) / 1000
        if min(waits, self.unstored_seconds) < _STILL_SECONDS:
            return None
        return f"no progress was stored for {self.unstored_seconds:.0f} s, and records wait for {waits:.0f} s"

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
    def retries(self) -> int:
        """Deliveries after the first of what is unfinished, as stored."""
        attempts = () if self.view.checkpoint is None else self.view.checkpoint.attempts
        return sum(count - 1 for _, count in attempts)

    @property
    def holes(self) -> int:
        if self.live is not None and self.live.holes is not None:
            return self.live.holes
        return 0 if self.view.checkpoint is None else len(self.view.checkpoint.holes)

    def document(self) -> dict[str, Any]:
        return self.view.document() | {"state": self.state.value, "reason": self.reason}


def most_urgent_first(shards: Iterable[ShardSight]) -> list[ShardSight]:
    """Parents come before children where nothing else is to say."""
    return sorted(shards, key=lambda each: each.state.urgency)


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

    @property
    def states(self) -> "Counter[ShardState]":
        """The number of shards in each state, the most urgent state first."""
        return Counter(sorted((each.state for each in self.shards), key=lambda state: state.urgency))

    @property
    def lag_millis(self) -> float | None:
        """The most lag of a shard; None if it is known of none."""
        return max((each.lag_millis for each in self.shards if each.lag_millis is not None), default=None)

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardsView:
    """The shards as one look shows them."""

    shards: Sequence[ShardSight]
    group: GroupView

    def document(self) -> dict[str, Any]:
        return self.group.document() | {"shards": [shard.document() for shard in self.shards]}

    @property
    def notes(self) -> list[str]:
        """Lines on what an operator should know; a few of each kind."""
        views = [each.view for each in self.shards]
        handed_over = [
            f"{each.shard_id} is being handed over by {each.owner} to {each.assigned_to}"
            for each in views
            if each.owner is not None and each.assigned_to not in {None, each.owner}
        ]
        pauses = dict.fromkeys((each.owner, each.pause) for each in views if each.pause)
        paused = [f"{owner} has {pause}; `kinesis-spout resume` lets it go on" for owner, pause in pauses]
        if any(each.state is ShardState.PAUSED_BY_OPERATOR for each in views):
            paused.append("an operator has paused shards; `kinesis-spout resume` lets them go on")
        trimmed = [
            f"{each.shard_id}: retention trimmed records before they were read ({lost} times)"
            for each in views
            if (lost := 0 if each.checkpoint is None else each.checkpoint.data_losses)
        ]
        reasons = [
            f"{each.view.shard_id}: {each.reason}"
            for each in self.shards
            if each.view.problem or each.state is ShardState.STALLED
        ]
        return [*_some(handed_over), *_some(paused), *_some(trimmed), *_some(reasons)]


def _some(lines: list[str]) -> list[str]:
    left_out = len(lines) - _MOST_LINES
    more = f"and {left_out:,} more: `kinesis-spout shards --json` has all of them"
    return [*lines[:_MOST_LINES], more] if left_out > 0 else lines


def view_shards(world: World, config: SpoutConfig, *, lag: bool) -> ShardsView:
    """Describe every shard that is listed or stored, the most urgent first; a shard's problem is in its view.

    With ``lag``, one record of each shard is read, at its checkpoint.
    """
    stream = world.stream(config)
    listed = stream.lister.list_shards()
    with begun_progress(world, config) as progress:
        group = group_view(progress)
        views = describe(listed, progress, group)
    now, live = world.time(), ask_members(group.members, config)
    if lag:
        views = with_lags(views, stream, world)
    return ShardsView(shards=most_urgent_first(seen_shards(views, {}, live, now)), group=group)


def seen_shards(
    views: Iterable[ShardView],
    lags: Mapping[str, ShardView],
    live: Mapping[str, LiveStatus],
    now: float,
) -> list[ShardSight]:
    """Put together what ZooKeeper had ``now``, and what the stream and the members say of each shard."""
    said = {(member, shard.shard_id): shard for member, status in live.items() for shard in status.shards}
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
        unstored = 0.0 if view.stored_at is None else now - view.stored_at
        # A member that was cut off may still speak of shards that others own by now.
        owners_words = said.get((view.owner or "", view.shard_id))
        sights.append(ShardSight(view=view, live=owners_words, unstored_seconds=unstored))
    return sights
