"""Decides which member should own which shard.

A shard is assigned while it may be read: its parents are over, and it is not. Only what must move moves. Every
shard stays where it is while its member takes shards; what nobody has goes to the member farthest below its share;
then shards move from those above their share to those below.

**Load.** The load of a shard is its bytes per second, on the average that its owner says (``observed_rates``),
and a small constant for the work that an idle shard makes too. So idle shards are spread by their number, and busy
ones by their throughput. A shard of which nobody has said a rate counts as an average one.

**When.** What follows from members or shards that come and go is done at once, also moves that even the numbers of
shards. Moves because rates have changed wait, as each of them stops a shard for a moment, and rates differ from
minute to minute: a member gives shards away once it has had too much, at every plan, for ``LASTING_SECONDS``, and
then not before it has had too much for as long again. A shard that was moved rests, twice as long after each move,
up to ``LONGEST_REST_SECONDS``; once it stayed for three times as long again, it begins anew. So load that comes
and goes for minutes, wherever shards are, does not keep moving them. A new leader begins to wait anew.

**Even.** Each member has a share of everything, in proportion to its weight. Its *excess* is what it has beyond
its share: of the load, or of the number of shards; it is negative below. A shard is moved only to a member
whose excess is smaller than its owner's by more than the shard's own load. So every move lowers the sum of the
squares of the excesses, and the moves come to an end, where no single one would improve anything. With equal
loads everybody is then within one shard of its share. (To compare load per weight instead would not do: a heavy
member would get the last shard of many light ones.) Excesses are sums of floats, in an order that depends on
the moves. So what differs by rounding only counts as equal.
"""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from heapq import heapify, heapreplace
from math import fsum
from typing import Final

from shard_state import form_level
from shard_state.assignment.assignment import Assignment
from shard_state.assignment.group_member import GroupMember, MemberMode
from shard_state.checkpoint.checkpoint import Checkpoint
from shard_state.lineage import Lineage, Shard
from shard_state.position import Position

TOLERATED_DIFFERENCE: Final = 0.2
"""Loads, each as a part of its member's share, that differ by no more are left as they are."""

_ROUNDING: Final = 1e-9
"""The least difference that matters, as a part of everything."""


class Balance:
    """The shards of each member, and the ways to move them. Mutable."""

    def __init__(self, loads: Mapping[str, float], weights: Mapping[str, float]) -> None:
        """Begin with members that have nothing.

        Args:
            loads: the load of each shard, more than 0.
            weights: of each member, more than 0.
        """
        total, total_weight = fsum(loads.values()), fsum(weights.values())
        self._loads = loads
        self._least_gap = _ROUNDING * total
        self._load_share = {member: total * weight / total_weight for member, weight in weights.items()}
        self._count_share = {member: len(loads) * weight / total_weight for member, weight in weights.items()}
        self._excess = {member: -share for member, share in self._load_share.items()}
        self._held: dict[str, list[tuple[float, str]]] = {member: [] for member in sorted(weights)}
        """The shards of each member, the least load first."""
        self._movable = self._held
        """The same, without those that rest."""
        self.owners: dict[str, str] = {}

    def rest(self, resting: Collection[str]) -> None:
        """Move none of these shards from now on."""
        if resting:
            self._movable = {
                member: [shard for shard in held if shard[1] not in resting]
                for member, held in self._held.items()
            }

    def give(self, shard_id: str, member: str) -> None:
        load = self._loads[shard_id]
        for of_members in self._both():
            insort(of_members[member], (load, shard_id))
        self._excess[member] += load
        self.owners[shard_id] = member

    def give_all(self, shard_ids: Iterable[str]) -> None:
        """Give shards that nobody has, the largest first, each to the member then farthest below its share."""
        lowest = [(excess, member) for member, excess in self._excess.items()]
        heapify(lowest)
        for shard_id in sorted(shard_ids, key=lambda shard_id: (-self._loads[shard_id], shard_id)):
            member = lowest[0][1]
            self.give(shard_id, member)
            heapreplace(lowest, (self._excess[member], member))

    def even_counts(self) -> None:
        """Make all moves that improve the number of shards, and not only the load."""
        while move := self._next_move(self._counts_differ):
            self._make(*move)

    def even_loads(self, givers: Collection[str]) -> None:
        """Make all moves from some members that are worth it."""
        while move := self._next_move(lambda giver, taker: giver in givers and self._differ(giver, taker)):
            self._make(*move)

    def overloaded(self) -> frozenset[str]:
        """Name the members from whom a move is worth it."""
        ranked = self._ranked()
        return frozenset(giver for giver in ranked if self._move_from(giver, ranked, self._differ))

    def _ranked(self) -> list[str]:
        return sorted(self._held, key=lambda member: (self._excess[member], member))

    def _next_move(self, may: Callable[[str, str], bool]) -> tuple[str, str, str] | None:
        """Find a move between the two farthest apart of those that may: the shard, from whom, to whom."""
        ranked = self._ranked()
        moves = (self._move_from(giver, ranked, may) for giver in reversed(ranked))
        return next(filter(None, moves), None)

    def _move_from(
        self, giver: str, ranked: list[str], may: Callable[[str, str], bool]
    ) -> tuple[str, str, str] | None:
        for taker in ranked:
            gap = self._excess[giver] - self._excess[taker] - self._least_gap
            if not self._movable[giver] or self._movable[giver][0][0] >= gap:
                break
            if may(giver, taker):
                return self._best_shard(giver, gap), giver, taker
        return None

    def _best_shard(self, giver: str, gap: float) -> str:
        """Name the shard that evens a gap best: whose load is nearest to half of it, and less than it."""
        held = self._movable[giver]
        above = bisect_left(held, (gap / 2, ""))
        nearest = held[bisect_left(held, (held[above - 1][0], ""))] if above else held[0]
        if above < len(held) and held[above][0] < gap:
            nearest = min(nearest, held[above], key=lambda shard: (abs(shard[0] - gap / 2), shard))
        return nearest[1]

    def _make(self, shard_id: str, giver: str, taker: str) -> None:
        load = self._loads[shard_id]
        for of_members in self._both():
            del of_members[giver][bisect_left(of_members[giver], (load, shard_id))]
        self._excess[giver] -= load
        self.give(shard_id, taker)

    def _both(self) -> list[dict[str, list[tuple[float, str]]]]:
        return [self._held] if self._movable is self._held else [self._held, self._movable]

    def _counts_differ(self, giver: str, taker: str) -> bool:
        return self._count_excess(giver) - self._count_excess(taker) > 1 + _ROUNDING * len(self._loads)

    def _differ(self, giver: str, taker: str) -> bool:
        relative = (
            self._excess[giver] / self._load_share[giver] - self._excess[taker] / self._load_share[taker]
        )
        return relative > TOLERATED_DIFFERENCE or self._counts_differ(giver, taker)

    def _count_excess(self, member: str) -> float:
        return len(self._held[member]) - self._count_share[member]


LASTING_SECONDS: Final = 180.0
"""The time for which a member has too much before shards move because of rates."""

FIRST_REST_SECONDS: Final = 1_800.0
LONGEST_REST_SECONDS: Final = 6 * 3600.0
"""The time for which a shard that was moved because of rates is not moved for them again."""

IDLE_BYTES_PER_SECOND: Final = 10_240.0
"""The cost of a shard besides its records, as bytes per second: a hundredth of what it may take in."""


class AssignmentPlanner:
    """The leader's view of shards, members and their loads. Mutable; pure; not thread-safe."""

    def __init__(self, current: Assignment) -> None:
        """Begin with what the leader before this one has left.

        An assigned shard counts as stored, here and later: its owner may be about to store its first
        checkpoint. It stays assigned, and its children wait for it, even if a list lacks it.
        """
        self._current = current
        self._lineage = Lineage()
        self._over: set[str] = set()
        self._rates: dict[str, float] = {}
        """The last that were observed of the shards that are assigned."""
        self._evened_for: tuple[Mapping[str, float], set[str]] | None = None
        """The members with their weights, and the shards, whose numbers were evened last."""
        self._overloaded_since: dict[str, float] = {}
        """The members that have had too much at every plan since."""
        self._rests: dict[str, tuple[float, float]] = {}
        """The shards that were moved because of rates: until when they rest, and for how long they do."""
        self._next_plan_at: float | None = None
        self._lineage.learn(
            (),
            {
                shard_id: Checkpoint(start=Position.trim_horizon(), parents=current.parents[shard_id])
                for shard_id in current.owners
            },
        )

    @property
    def current(self) -> Assignment:
        return self._current

    @property
    def next_plan_at(self) -> float | None:
        """When to plan again although nothing changes: shards wait to be moved because of their rates."""
        return self._next_plan_at

    def listed(self, shards: Iterable[Shard], stored: Mapping[str, Checkpoint]) -> None:
        """Take in what the stream lists, and what the store holds, where it was loaded: both may lag.

        Args:
            shards: all that ListShards names.
            stored: at least once in a planner's life, before its first plan, the whole store; else {}.

        Raises:
            InvalidLineage: a shard is its own ancestor.
        """
        self._lineage.learn(shards, stored)
        self.over(shard_id for shard_id, checkpoint in stored.items() if checkpoint.is_shard_end)

    def over(self, shard_ids: Iterable[str]) -> None:
        """Take in that the SHARD_END of shards is in the store."""
        self._over.update(shard_ids)

    def plan(self, members: Collection[GroupMember], now: float) -> Assignment | None:
        """Decide who should own what; None if that is what ``current`` says.

        Call it when members or shards have changed, and at ``next_plan_at``. The result is ``current`` from
        now on: write it, before anything else is planned.

        Args:
            members: all living ones.
            now: seconds, of a clock that never goes back.
        """
        for member in members:
            self.over(member.ended)
        free = set(self._lineage.free(self._over))
        self._learn_rates(members, free)
        owners = self._owners(free, self._takers(members), now)
        self._lineage.stored.update(owners)
        planned = Assignment(
            epoch=self._current.epoch,
            members=frozenset(member.name for member in members),
            owners=owners,
            parents={shard_id: self._lineage.shards[shard_id].parents for shard_id in owners},
            all_over=self._all_over(free),
            level=form_level.in_force(self._current.level, (member.reads for member in members)),
        )
        if planned == self._current:
            return None
        self._current = replace(planned, epoch=planned.epoch + 1)
        return self._current

    def _all_over(self, free: set[str]) -> bool:
        if not self._lineage.listed:
            return self._current.all_over
        # A list may lack a shard that is assigned.
        return not free and self._lineage.all_over(self._over)

    def _takers(self, members: Collection[GroupMember]) -> dict[str, float]:
        """Give the members that take shards, with their weights: all that share, else one stand-by."""
        willing = [member for member in members if not member.draining]
        sharing = {member.name: member.weight for member in willing if member.mode is MemberMode.SHARING}
        if sharing or not willing:
            return sharing
        owned = Counter(self._current.owners.values())
        chosen = min(willing, key=lambda member: (-owned[member.name], member.joined, member.name))
        return {chosen.name: chosen.weight}

    def _learn_rates(self, members: Collection[GroupMember], free: set[str]) -> None:
        """Note the rates of shards. A moved shard may still be reported by its earlier member."""
        self._rates = {shard_id: rate for shard_id, rate in self._rates.items() if shard_id in free}
        for member in members:
            for shard_id in member.rates.keys() & free:
                if self._current.owners.get(shard_id) == member.name or shard_id not in self._rates:
                    self._rates[shard_id] = member.rates[shard_id]

    def _owners(self, free: set[str], takers: Mapping[str, float], now: float) -> dict[str, str]:
        self._next_plan_at = None
        if not takers:
            return {}
        balance = Balance(self._loads(free), takers)
        kept = {
            shard_id: owner
            for shard_id, owner in self._current.owners.items()
            if shard_id in free and owner in takers
        }
        for shard_id, owner in kept.items():
            balance.give(shard_id, owner)
        balance.give_all(free - kept.keys())
        if self._evened_for != (takers, free):
            balance.even_counts()
            self._evened_for = takers, free
        self._relieve(balance, now)
        return balance.owners

    def _relieve(self, balance: Balance, now: float) -> None:
        """Move shards from members that have had too much for long enough."""

        def began() -> dict[str, float]:
            return {member: self._overloaded_since.get(member, now) for member in balance.overloaded()}

        self._rests = {
            shard_id: (until, seconds)
            for shard_id, (until, seconds) in self._rests.items()
            if shard_id in balance.owners and now < until + 3 * seconds
        }
        balance.rest({shard_id for shard_id, (until, _) in self._rests.items() if now < until})
        self._overloaded_since = began()
        lasting = {member for member, at in self._overloaded_since.items() if now >= at + LASTING_SECONDS}
        if lasting:
            before = dict(balance.owners)
            balance.even_loads(lasting)
            for shard_id in {each for each, owner in before.items() if balance.owners[each] != owner}:
                _, last = self._rests.get(shard_id, (now, FIRST_REST_SECONDS / 2))
                seconds = min(LONGEST_REST_SECONDS, 2 * last)
                self._rests[shard_id] = now + seconds, seconds
            self._overloaded_since = began()
        if self._overloaded_since:
            self._next_plan_at = min(self._overloaded_since.values()) + LASTING_SECONDS

    def _loads(self, shard_ids: set[str]) -> dict[str, float]:
        average = fsum(self._rates.values()) / len(self._rates) if self._rates else 0.0
        return {
            shard_id: IDLE_BYTES_PER_SECOND + self._rates.get(shard_id, average) for shard_id in shard_ids
        }
