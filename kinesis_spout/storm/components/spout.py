"""The interface of the user's own spouts; ``KinesisSpout`` is not one of them."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from kinesis_spout.storm.components.given import SpoutOutputCollector, TaskContext
from kinesis_spout.storm.components.tuples import OutputFields


class Spout(ABC):
    """Emits tuples when asked, and learns the outcome of each. It runs on the driver, on one thread.

    Its tuples travel inside the next micro-batch. It keeps its own progress: the spout itself must emit again
    what was emitted and neither acked nor failed when the driver ended.
    """

    timeout_seconds: float = 30.0
    """After this long a call that has not returned is named in the log, with the line it is at. Meanwhile nothing
    that it emitted is executed. ``stop`` waits no longer for it."""

    @abstractmethod
    def declare_output_fields(self) -> OutputFields:
        """Name the fields of its tuples, or its streams with the fields of each. Called when it is set."""

    @abstractmethod
    def next_tuple(self) -> None:
        """Emit one tuple, several, or none, and return: they are executed afterwards. Must not block."""

    def open(self, conf: Mapping[str, Any], context: TaskContext, collector: SpoutOutputCollector) -> None:
        """Begin. Called once, before anything else; keeps the collector as ``self.collector``."""
        del conf, context
        self.collector = collector

    def activate(self) -> None:
        """Take in that ``next_tuple`` will be called."""

    def deactivate(self) -> None:
        """Take in that ``next_tuple`` is not called any more, until ``activate``."""

    def ack(self, message_id: Any) -> None:
        """Take in that the whole tree of a tuple is done."""

    def fail(self, message_id: Any, reason: str) -> None:
        """Take in that something in the tree of a tuple failed.

        Args:
            message_id: as emitted.
            reason: the error, and the component that reported it.
        """

    def timed_out(self, message_id: Any, reason: str) -> None:
        """Take in that a tree was not done in time; the reason names the component where it stopped.

        Unless overridden that is a ``fail``.
        """
        self.fail(message_id, reason)

    def close(self) -> None:
        """End. Called when the query stops; not after a crash."""
