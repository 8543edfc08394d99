"""The data of every record that is not finished, so that a retry needs no second read.

A record that was given up is retained too, until its dead letter is durable: otherwise a sink that is down
would let the memory grow beyond its cap (invariant 12).
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING

import msgspec

from kinesis_spout.model.record import Record
from shard_state import SequenceNumber

if TYPE_CHECKING:
    from opentelemetry.trace import Span


class Retained(msgspec.Struct, gc=False):
    """One record that was handed out, or is held. Mutable: the record is its latest delivery."""

    record: Record
    record_id: str
    """``Record.message_id``."""
    sequence: SequenceNumber
    size_bytes: int
    epoch: int
    """The epoch of the ownership under which it was read."""
    message_id: str = ""
    """The id of its latest delivery to the user; empty before the first."""
    delivered_at: float = 0.0
    """When that delivery began; monotonic."""
    span: "Span | None" = None
    """The span of the delivery under way, if it is traced."""

    def take_span(self) -> "Span | None":
        """Return the span, which the caller ends, once."""
        span, self.span = self.span, None
        return span


class RetainedRecords:
    """The retained records of one stream, by their ids. Mutable; not thread-safe."""

    def __init__(self) -> None:
        self._by_id: dict[str, Retained] = {}
        self.given_up: deque[Retained] = deque()
        """Those that wait for their dead letters."""
        self.size_bytes = 0
        """Data and keys."""

    def __len__(self) -> int:
        return len(self._by_id) + len(self.given_up)

    def add(self, retained: Retained) -> None:
        self._by_id[retained.record_id] = retained
        self.size_bytes += retained.size_bytes

    def get(self, record_id: str) -> Retained | None:
        return self._by_id.get(record_id)

    def at(self, shard_id: str, sequence: SequenceNumber) -> Retained | None:
        return self._by_id.get(f"{shard_id}:{sequence}")

    def finished(self, retained: Retained) -> None:
        del self._by_id[retained.record_id]
        self.size_bytes -= retained.size_bytes

    def give_up(self, retained: Retained) -> None:
        """Keep a record only until its dead letter is durable."""
        self.given_up.append(self._by_id.pop(retained.record_id))

    def drop_dead_lettered(self, is_dead_lettered: Callable[[Retained], bool]) -> None:
        """Drop those given up, oldest first, up to the first that is not dead-lettered."""
        while self.given_up and is_dead_lettered(self.given_up[0]):
            self.size_bytes -= self.given_up.popleft().size_bytes

    def drop_shards(self, shard_ids: Collection[str]) -> None:
        def is_gone(retained: Retained) -> bool:
            return retained.record.shard_id in shard_ids

        gone = [retained for retained in self._by_id.values() if is_gone(retained)]
        _end_spans(gone)
        for retained in gone:
            self.finished(retained)
        self.size_bytes -= sum(each.size_bytes for each in self.given_up if is_gone(each))
        self.given_up = deque(each for each in self.given_up if not is_gone(each))

    def end_spans(self) -> None:
        """End the spans of all deliveries under way: no outcome counts any more."""
        _end_spans(self._by_id.values())


def _end_spans(ended: Iterable[Retained]) -> None:
    for retained in ended:
        if (span := retained.take_span()) is not None:
            span.end()
