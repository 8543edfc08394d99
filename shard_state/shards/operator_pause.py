"""What an operator has paused: some shards, or the whole application.

A shard that is paused so keeps its owner. What is in flight of it may end, and is committed; nothing more of it is
handed out, retries included, until the operator ends the pause. The other pause is the circuit breaker's
(``BreakerPause``): it begins and ends by itself.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorPause:
    """What is paused by an operator."""

    everything: bool = False
    """The application as a whole, with shards that come later."""
    shards: frozenset[str] = frozenset()
    """Shards that are paused by themselves."""

    def covers(self, shard_id: str) -> bool:
        """Tell whether a shard is paused."""
        return self.everything or shard_id in self.shards

    def __bool__(self) -> bool:
        return self.everything or bool(self.shards)
