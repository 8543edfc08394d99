"""The rates at which a member reads its shards, as it tells the leader: averages, so that a burst is no load.

An average is exponentially weighted: an observation of ``OBSERVED_SECONDS`` counts for ``WEIGHT``, so that
half of a lasting change is known after some two minutes and nine tenths after eight. The first observation
has no more weight than later ones. A shard observed for less than ``SETTLED_SECONDS`` is left out: the leader
goes on with the rate from the owner before.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import fsum
from typing import Final

OBSERVED_SECONDS: Final = 10.0
"""The time between two observations."""
WEIGHT: Final = 0.05
SETTLED_SECONDS: Final = 60.0

_SHARE_OF_CHANGE: Final = 0.1
"""The part of the load of all shards that must have changed before rates are published again."""


@dataclass(slots=True)
class _Average:
    """The average of one shard. Mutable."""

    total: float = 0.0
    weight: float = 0.0
    seconds: float = 0.0


class ObservedRates:
    """The rates of a member's shards. Mutable."""

    def __init__(self) -> None:
        self._averages: dict[str, _Average] = {}
        self.said: Mapping[str, float] = {}
        """The rate to publish, in bytes per second. It stays the same while rates are about what they were."""

    def observe(self, read_bytes: Mapping[str, int], owned: Collection[str], seconds: float) -> None:
        """Take in how much was read of each shard in some seconds; one that is not owned any more is forgotten.

        Args:
            read_bytes: of the shards that anything was read of.
            owned: all shards of the member.
            seconds: more than 0.
        """
        self._averages = {shard_id: self._averages.get(shard_id) or _Average() for shard_id in owned}
        kept = (1 - WEIGHT) ** (seconds / OBSERVED_SECONDS)
        for shard_id, average in self._averages.items():
            rate = read_bytes.get(shard_id, 0) / seconds
            average.total = kept * average.total + (1 - kept) * rate
            average.weight = kept * average.weight + (1 - kept)
            average.seconds += seconds
        rates = {
            shard_id: average.total / average.weight
            for shard_id, average in self._averages.items()
            if average.seconds >= SETTLED_SECONDS
        }
        if _differ(rates, self.said):
            self.said = rates


def _differ(rates: Mapping[str, float], said: Mapping[str, float]) -> bool:
    """Tell whether rates are worth a write, or name other shards."""
    if rates.keys() != said.keys():
        return True
    change = fsum(abs(rate - said[shard_id]) for shard_id, rate in rates.items())
    return change > _SHARE_OF_CHANGE * max(fsum(rates.values()), fsum(said.values()))
