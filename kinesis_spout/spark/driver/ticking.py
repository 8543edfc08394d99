"""When the ticks of a runner come: with the micro-batches of records, or alone while there are none."""

from kinesis_spout.spark.tasks.jobs import Ticks
from shard_state import StateManager


class Ticking:
    """Keeps ticks back while whatever they lead to could only fail. Mutable; used under the consumer's lock.

    Args:
        ticks: of the runner, if it has any.
        manager: knows what is owned, and what is paused.
    """

    def __init__(self, ticks: Ticks | None, manager: StateManager) -> None:
        self._ticks = ticks
        self._manager = manager

    @property
    def due_at(self) -> float | None:
        """When a batch is to run even if there are no records; monotonic. None: never."""
        return None if self._ticks is None else self._ticks.due_at

    @property
    def may_come_alone(self) -> bool:
        """Whether a batch may run without records.

        Not in a pause of either kind: what a tick emits would fail, as the records do. Not
        without a shard, for then another consumer works, or nobody may.
        """
        manager = self._manager
        return manager.breaker_pause is None and not manager.owned <= manager.paused_shards

    def begins(self, now: float, read_to: float | None) -> None:
        """Take in that a batch is about to run. In a pause it brings no ticks: it is for the one record in it.

        Args:
            now: monotonic.
            read_to: see ``Ticks.advance``.
        """
        if self._ticks is not None and self._manager.breaker_pause is None:
            self._ticks.advance(now, read_to)
