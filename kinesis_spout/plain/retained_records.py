"""The data of every record that is not finished and not in a run, so that a retry needs no second read.

A record that was given up is retained too, until its dead letter is durable: otherwise a sink that is down
would let the memory grow beyond its cap (invariant 12).
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kinesis_spout.model.record import Record
from shard_state import SequenceNumber

if TYPE_CHECKING:
    from opentelemetry.trace import Span


@dataclass(slots=True)
class Retained:
    """One record that was handed out, or is held. Mutable: ``record`` is its latest delivery."""

    record: Record
    sequence: SequenceNumber
    size_bytes: int
    span: "Span | None" = None
    """Of the delivery under way, if it is traced."""

    def take_span(self) -> "Span | None":
        """Return the span, which the caller ends, once."""
        span, self.span = self.span, None
        return span


class RetainedRecords:
    """The retained records of one spout, by their sequence number. Mutable; not thread-safe."""

    def __init__(self, full_at_bytes: Callable[[], int]) -> None:
        self._full_at_bytes = full_at_bytes
        self._of_shard: dict[str, dict[SequenceNumber, Retained]] = {}
        self._in_runs: dict[str, int] = {}
        """Bytes of the open records of runs, which the runs keep, by shard."""
        self._given_up: deque[Retained] = deque()
        self.size_bytes = 0
        """Data and keys."""

    def __len__(self) -> int:
        return sum(map(len, self._of_shard.values())) + len(self._given_up)

    @property
    def is_full(self) -> bool:
        """Whether no fresh record may be added. The last one can have exceeded the limit."""
        return self.size_bytes >= self._full_at_bytes()

    @property
    def free_bytes(self) -> int:
        return self._full_at_bytes() - self.size_bytes

    def add(self, record: Record, sequence: SequenceNumber, size_bytes: int) -> Retained:
        retained = Retained(record, sequence, size_bytes)
        self._of_shard.setdefault(record.shard_id, {})[sequence] = retained
        self.size_bytes += size_bytes
        return retained

    def add_in_runs(self, shard_id: str, size_bytes: int) -> None:
        """Count bytes that records of runs have more now; negative: less."""
        self._in_runs[shard_id] = self._in_runs.get(shard_id, 0) + size_bytes
        self.size_bytes += size_bytes

    def get(self, shard_id: str, sequence: SequenceNumber) -> Retained | None:
        return self._of_shard.get(shard_id, {}).get(sequence)

    def finished(self, shard_id: str, sequence: SequenceNumber) -> Retained | None:
        """Drop a record, and return it; None for unknown ones."""
        retained = self._of_shard.get(shard_id, {}).pop(sequence, None)
        if retained is not None:
            self.size_bytes -= retained.size_bytes
        return retained

    def given_up(self, shard_id: str, sequence: SequenceNumber) -> None:
        """Keep a record only until its dead letter is durable."""
        self._given_up.append(self._of_shard[shard_id].pop(sequence))

    def drop_dead_lettered(self, is_dead_lettered: Callable[[str, SequenceNumber], bool]) -> None:
        """Drop those given up, oldest first, up to the first that is not dead-lettered."""
        while self._given_up:
            oldest = self._given_up[0]
            if not is_dead_lettered(oldest.record.shard_id, oldest.sequence):
                break
            self._given_up.popleft()
            self.size_bytes -= oldest.size_bytes

    def drop_shards(self, shard_ids: Collection[str]) -> None:
        for shard_id in shard_ids:
            self.size_bytes -= self._in_runs.pop(shard_id, 0)
            gone = self._of_shard.pop(shard_id, {})
            _end_spans(gone.values())
            self.size_bytes -= sum(retained.size_bytes for retained in gone.values())
        kept = deque(retained for retained in self._given_up if retained.record.shard_id not in shard_ids)
        self.size_bytes += sum(retained.size_bytes for retained in kept)
        self.size_bytes -= sum(retained.size_bytes for retained in self._given_up)
        self._given_up = kept

    def end_spans(self) -> None:
        """End the spans of all deliveries under way: no outcome counts any more."""
        for of_shard in self._of_shard.values():
            _end_spans(of_shard.values())


def _end_spans(ended: Iterable[Retained]) -> None:
    for retained in ended:
        if (span := retained.take_span()) is not None:
            span.end()
