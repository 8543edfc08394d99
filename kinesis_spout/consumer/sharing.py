"""This member's share of the shards: what to acquire, what to give up, and what it reports of itself.

A member *leaves* an owned shard that is assigned to another: it hands out nothing more of it, waits until
none of it is in flight, at most ``hand_over_timeout_seconds``, commits the progress and deletes the owner
node. If it is late, the next owner fences it, one session time-out later.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final, NamedTuple

from kinesis_spout.consumer.ports import Ports
from kinesis_spout.settings import SpoutConfig
from kinesis_spout.settings.grammar.http_address import HttpAddress
from shard_state import (
    SHARD_END,
    Assignment,
    Checkpoint,
    GroupMember,
    MemberMode,
    Position,
    Shard,
    StateManager,
    form_level,
)
from shard_state.assignment.observed_rates import OBSERVED_SECONDS, ObservedRates

_TRY_SECONDS: Final = 2.0
"""Between two tries to get a shard that its old owner keeps; freed shards are noticed at once."""


class Wish(NamedTuple):
    shard_id: str
    fresh: Checkpoint
    fences: bool
    """True if its old owner's time to let go is over."""


@dataclass(slots=True)
class _Wanted:
    """A shard that is ours, and not owned yet. Mutable."""

    since: float
    try_at: float = 0.0


class Sharing:
    """Mutable. Call it under the consumer's lock, except ``start`` and ``report`` (they do I/O)."""

    def __init__(
        self, config: SpoutConfig, ports: Ports, manager: StateManager, lock: AbstractContextManager[object]
    ) -> None:
        self._ports = ports
        self._manager = manager
        self._lock = lock
        self._member = ports.coordinator.member
        self._mode = MemberMode(config.mode)
        self._weight = config.weight
        self._http = None if config.http is None else HttpAddress.parse(config.http).advertised
        self._hand_over_seconds = config.hand_over_timeout_seconds
        self._fence_seconds = config.hand_over_timeout_seconds + config.session_timeout_seconds
        self._assignment = Assignment()
        self._taken_in = False
        self.shards = 0
        """The number that is assigned, to all members."""
        self.is_placed = False
        """True if the assignment knows this member."""
        self.ours: frozenset[str] = frozenset()
        """The shards that this member should own."""
        self.leaving: dict[str, float] = {}
        """Owned shards that are another's, and by when they are given up."""
        self._wanted: dict[str, _Wanted] = {}
        """Shards that are ours and that are not owned yet."""
        self._ended: set[str] = set()
        self.read_bytes: defaultdict[str, int] = defaultdict(int)
        """Bytes by shard, since the rates were measured last. The reader adds to it."""
        self._measured_at = 0.0
        self._rates = ObservedRates()
        self._said = GroupMember(name=self._member)

    # The shards that it should own

    @property
    def epoch(self) -> int:
        """The number of assignments that the application has had."""
        return self._assignment.epoch

    @property
    def assigned(self) -> Counter[str]:
        """The number of shards of each living member."""
        shards = Counter(dict.fromkeys(self._assignment.members, 0))
        shards.update(self._assignment.owners.values())
        return shards

    @property
    def is_settled(self) -> bool:
        """True if this member owns what is assigned to it, according to the last assignment it read."""
        return self.is_placed and not self.leaving and not self._unowned() and self.ends_are_known

    @property
    def ends_are_known(self) -> bool:
        """True if the leader has noticed that the shards which this member ended are over."""
        return self._assignment.owners.keys().isdisjoint(self._ended)

    @property
    def all_over(self) -> bool:
        """True if every shard of the stream is over: no record can come without a reshard."""
        return (
            self._taken_in and self._assignment.all_over and self.ends_are_known and not self._manager.owned
        )

    def take_in(self, assignment: Assignment | None, now: float) -> None:
        if assignment is None:
            return
        if not self._taken_in or assignment != self._assignment:
            self._taken_in, self._assignment = True, assignment
            self._manager.listed(*_as_listed(assignment))
            self._ended &= assignment.owners.keys()
            self.ours, self.shards = assignment.of(self._member), len(assignment.owners)
            self.is_placed = self._member in assignment.members
        self.leaving = {
            shard_id: self.leaving.get(shard_id, now + self._hand_over_seconds)
            for shard_id in self._manager.owned - self.ours
        }
        self._manager.leave(self.leaving)
        unowned = self._unowned()
        self._wanted = {shard_id: self._wanted.get(shard_id) or _Wanted(now) for shard_id in unowned}

    def _unowned(self) -> list[str]:
        missing = self.ours - self._manager.owned
        if not missing:
            return []  # as nearly always: the lineage of all shards need not be looked at
        return [shard.shard_id for shard in self._manager.to_acquire() if shard.shard_id in missing]

    def wishes(self, now: float, freed: Collection[str]) -> list[Wish]:
        """The shards to try to acquire now: new ones, those that were freed, and now and then the others."""
        wishes = []
        for shard_id, wanted in self._wanted.items():
            if shard_id in freed or now >= wanted.try_at:
                wanted.try_at = now + _TRY_SECONDS
                fences = now >= wanted.since + self._fence_seconds
                wishes.append(Wish(shard_id, self._manager.fresh_checkpoint(shard_id), fences))
        return wishes

    def left(self, now: float) -> list[str]:
        """The shards to give up now: nothing of them is in flight, or the time for that is over."""
        return [
            shard_id
            for shard_id, until in self.leaving.items()
            if now >= until or self._manager.has_left(shard_id)
        ]

    @property
    def missing(self) -> frozenset[str]:
        return frozenset(self._wanted.keys() - self._manager.owned)

    @property
    def others(self) -> frozenset[str]:
        return frozenset(self._assignment.owners.values()) - {self._member}

    def dropped(self, shard_ids: Iterable[str]) -> None:
        for shard_id in shard_ids:
            self.leaving.pop(shard_id, None)
            self.read_bytes.pop(shard_id, None)

    def ended(self, shard_ids: Iterable[str]) -> None:
        self._ended.update(shard_ids)

    # Its reports of itself

    def start(self, now: float) -> None:
        self._measured_at = now
        self._said = self._says()
        self._ports.coordinator.join(self._said.encode())

    def report(self, now: float) -> None:
        with self._lock:
            if now >= self._measured_at + OBSERVED_SECONDS:
                self._measure(now)
            says = self._says()
        if says != self._said:
            self._ports.coordinator.say(says.encode())
            self._said = says

    def _measure(self, now: float) -> None:
        self._rates.observe(self.read_bytes, self._manager.owned, now - self._measured_at)
        self.read_bytes.clear()
        self._measured_at = now

    def _says(self) -> GroupMember:
        return GroupMember(
            name=self._member,
            mode=self._mode,
            weight=self._weight,
            http=self._http,
            reads=form_level.READS,
            rates=self._rates.said,
            ended=frozenset(self._ended),
        )


def _as_listed(assignment: Assignment) -> tuple[list[Shard], dict[str, Checkpoint]]:
    shards, stored = [], {}
    for shard_id, parents in assignment.parents.items():
        shards.append(Shard(shard_id=shard_id, parents=parents))
        for parent in parents:
            stored[parent] = Checkpoint(start=Position.trim_horizon(), base=SHARD_END)
    return shards, stored
