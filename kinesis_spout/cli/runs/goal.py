"""How far a run is on its way to its end: an estimate, for its bar."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

from kinesis_spout.cli.runs.snapshot import Snapshot
from kinesis_spout.settings import SpoutConfig
from shard_state import ShardPhase

_ENDED: Final = frozenset({ShardPhase.AT_BOUND, ShardPhase.FINISHED, ShardPhase.OVER})
_NEARLY: Final = 0.99
"""The most before the run has ended."""


@dataclass(slots=True)
class Goal:
    """Mutable. The share of the way only grows.

    A run up to a time (of its beginning, if it is up to the newest record) is as far as its reads have come in
    time, times the share that is finished of what was read. A run up to records is as far as many of its shards.
    """

    name: str
    """As the user wrote it."""
    time: float | None
    """Seconds since the epoch; None: ends at records of shards."""
    _from: float | None = None
    _reached: float | None = None

    @classmethod
    def of(cls, configs: Sequence[SpoutConfig], *, until_caught_up: bool) -> Self | None:
        """The goal of a run; None if it has none, or not all of its spouts have."""
        if until_caught_up:
            return cls("all that was there", time.time())
        ends = [config.run_end for config in configs]
        if not ends or None in ends:
            return None
        texts = sorted({config.until or "" for config in configs})
        name = texts[0] if len(texts) == 1 and not texts[0].startswith("{") else "the end of each shard"
        now = time.time()
        times = [
            position.resolved(now).timestamp for end in ends if end is not None for position in end.every
        ]
        known = [each for each in times if each is not None]
        return cls(name, max(known) if len(known) == len(times) else None)

    def reached(self, snapshot: Snapshot, now: float) -> float | None:
        """The share of the way, from 0 to 1; None while nothing is known."""
        if snapshot.state == "stopped" and snapshot.is_done:
            return 1.0
        share = self._by_shards(snapshot) if self.time is None else self._by_time(snapshot, self.time, now)
        if share is not None:
            self._reached = max(self._reached or 0.0, min(share, _NEARLY))
        return self._reached

    def _by_shards(self, snapshot: Snapshot) -> float | None:
        if not snapshot.shards:
            return None
        return sum(shard.phase in _ENDED for shard in snapshot.shards) / len(snapshot.shards)

    def _by_time(self, snapshot: Snapshot, end: float, now: float) -> float | None:
        if snapshot.lag_millis is None:
            return None
        at = now - snapshot.lag_millis / 1000
        if self._from is None:
            self._from = at
        read = 1.0 if end <= self._from else min(1.0, (at - self._from) / (end - self._from))
        finished, left = snapshot.counters.finished, snapshot.in_flight + snapshot.waiting
        return read * finished / max(1, finished + left)
