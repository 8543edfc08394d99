"""The applications of a ZooKeeper, each on one stream, as a list shows them."""

from dataclasses import dataclass
from typing import Final

from kinesis_spout.operations.shards import ShardState
from kinesis_spout.operations.watch.sight import Sight

UNNAMED: Final = "unnamed"
"""Stands for an application or a stream in the settings of what looks at all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationView:
    app: str
    stream: str
    sight: Sight | None = None
    """None if it was not looked at, or cannot be read."""
    letters: int | None = None
    """The number of its dead letters; None if it is not known."""
    problem: str | None = None

    @property
    def worst(self) -> tuple[ShardState, int] | None:
        """The most urgent state of its shards, and how many are in it; None if none is known."""
        return next(iter(self.sight.states.items()), None) if self.sight else None

    @property
    def urgency(self) -> tuple[bool, bool, int, float]:
        """Sorts a list: first what cannot be read, then the worst states, last what was not looked at."""
        worst = self.worst
        return (
            self.problem is None,
            self.sight is None,
            worst[0].urgency if worst else len(ShardState),
            -((self.sight and self.sight.lag_millis) or 0.0),
        )
