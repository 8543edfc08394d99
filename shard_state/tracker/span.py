"""A piece of the ack map of one shard: see ``inflight_record_tracker``."""

from collections.abc import Sequence
from dataclasses import dataclass

from shard_state.errors import OutOfOrder
from shard_state.sequence_number import SequenceNumber
from shard_state.tracker.record_life import RecordState


@dataclass(frozen=True, slots=True, kw_only=True)
class Carved:
    """A record that a settled span leaves behind unfinished."""

    index: int
    """Its index in the span, from 0."""
    sequence: SequenceNumber
    previous: SequenceNumber | None
    """The record before it in the span; None for the span's first."""
    state: RecordState
    """WAITING, EXHAUSTED, or IN_FLIGHT: its outcome is not known yet."""
    attempts: int
    """How often it was delivered; 0 if it was held back undelivered."""


class Span:
    """A run of records that share one state. Mutable; linked in shard order."""

    __slots__ = ("attempts", "count", "deadline", "first", "last", "next", "prev", "queued", "state")

    def __init__(
        self, first: SequenceNumber, last: SequenceNumber, count: int, state: RecordState, attempts: int
    ) -> None:
        self.first = first
        self.last = last
        self.count = count
        """How many records. Of a finished span nobody asks."""
        self.state = state
        self.attempts = attempts
        self.prev: Span | None = None
        self.next: Span | None = None
        self.deadline: float | None = None
        """When its delivery times out, if it may."""
        self.queued = 0
        """Its entries in ``Deadlines``."""

    def pieces(self, carved: Sequence[Carved]) -> "list[Span]":
        """Cut this span into its finished runs and the records carved out of it, all unlinked.

        Raises:
            OutOfOrder: the carved records do not fit into it.
        """
        pieces: list[Span] = []
        index, first = 0, self.first
        for record in sorted(carved, key=lambda record: record.index):
            run = record.index - index
            if run < 0 or not self._fits(record, first, run):
                raise OutOfOrder(
                    f"expected failures inside {self.first}..{self.last} ({self.count} records), each once "
                    f"and with the record before it; got {record}"
                )
            if run > 0:
                assert record.previous is not None
                pieces.append(Span(first, record.previous, run, RecordState.FINISHED, 0))
            pieces.append(Span(record.sequence, record.sequence, 1, record.state, record.attempts))
            # The first record of the next run is not known; any number between it and the failure serves as well.
            index, first = record.index + 1, SequenceNumber(record.sequence.number, record.sequence.sub + 1)
        if index < self.count:
            pieces.append(Span(first, self.last, self.count - index, RecordState.FINISHED, 0))
        return pieces

    def _fits(self, record: Carved, earliest: SequenceNumber, run: int) -> bool:
        """Tell whether a record can be at its index, ``run`` finished records after the last one carved out."""
        if run and (record.previous is None or not earliest <= record.previous < record.sequence):
            return False
        is_first, is_last = record.sequence == self.first, record.sequence == self.last
        return (
            earliest <= record.sequence <= self.last
            and record.index < self.count
            and is_first == (record.index == 0)
            and is_last == (record.index == self.count - 1)
        )
