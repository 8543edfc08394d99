"""How shards are spread over members, by their loads and by their number.

Each member has a share of everything, in proportion to its weight. Its *excess* is what it has beyond its share:
of the load, or of the number of shards; it is negative below. A shard is moved only to a member whose excess is
smaller than its owner's by more than the shard's own load. So every move lowers the sum of the squares of the
excesses, and the moves come to an end, where no single one would improve anything. With equal loads everybody is
then within one shard of its share. (To compare load per weight instead would not do: a heavy member would get the
last shard of many light ones.)

Excesses are sums of floats, in an order that depends on the moves. So what differs by rounding only counts as
equal.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterable, Mapping
from heapq import heapify, heapreplace
from math import fsum
from typing import Final

TOLERATED_DIFFERENCE: Final = 0.2
"""Loads, each as a part of its member's share, that differ by no more are left as they are."""

_ROUNDING: Final = 1e-9
"""What a difference must exceed, as a part of everything."""


class Balance:
    """Which member has which shards, and how they could be moved. Mutable."""

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
        self.owners: dict[str, str] = {}

    def give(self, shard_id: str, member: str) -> None:
        load = self._loads[shard_id]
        insort(self._held[member], (load, shard_id))
        self._excess[member] += load
        self.owners[shard_id] = member

    def give_all(self, shard_ids: Iterable[str]) -> None:
        """Give shards that nobody has, the largest first, each to whoever is then farthest below its share."""
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
            if not self._held[giver] or self._held[giver][0][0] >= gap:
                break
            if may(giver, taker):
                return self._best_shard(giver, gap), giver, taker
        return None

    def _best_shard(self, giver: str, gap: float) -> str:
        """Name the shard that evens a gap best: whose load is nearest to half of it, and less than it."""
        held = self._held[giver]
        above = bisect_left(held, (gap / 2, ""))
        nearest = held[bisect_left(held, (held[above - 1][0], ""))] if above else held[0]
        if above < len(held) and held[above][0] < gap:
            nearest = min(nearest, held[above], key=lambda shard: (abs(shard[0] - gap / 2), shard))
        return nearest[1]

    def _make(self, shard_id: str, giver: str, taker: str) -> None:
        load = self._loads[shard_id]
        del self._held[giver][bisect_left(self._held[giver], (load, shard_id))]
        self._excess[giver] -= load
        self.give(shard_id, taker)

    def _counts_differ(self, giver: str, taker: str) -> bool:
        return self._count_excess(giver) - self._count_excess(taker) > 1 + _ROUNDING * len(self._loads)

    def _differ(self, giver: str, taker: str) -> bool:
        relative = (
            self._excess[giver] / self._load_share[giver] - self._excess[taker] / self._load_share[taker]
        )
        return relative > TOLERATED_DIFFERENCE or self._counts_differ(giver, taker)

    def _count_excess(self, member: str) -> float:
        return len(self._held[member]) - self._count_share[member]
