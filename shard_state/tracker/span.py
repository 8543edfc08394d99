"""The pieces of the ack map of one shard (see ``inflight_record_tracker``), and when each delivery times out.

Every delivery has the same time-out, so deadlines pass in the order in which deliveries began: they stand in a
queue, and nothing is searched. A delivery that ends costs nothing here: ``Span.deadline`` is cleared, and its
entry is *dead*. So is an older entry of a record that is delivered again: only its span's own deadline counts.
Dead entries are dropped when they come to the front, or when they outnumber the deliveries without an outcome
(invariant 12). The deadlines are a part of their shard's tracker: a shard that is lost takes them along.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from shard_state.blame import History
from shard_state.errors import OutOfOrder
from shard_state.sequence_number import SequenceNumber
from shard_state.tracker.record_life import RecordState

_COMPACT_ABOVE: Final = 64

_FINISHED: Final = RecordState.FINISHED


class Carved(NamedTuple):
    """A record that a settled span leaves behind unfinished. A tuple, as there are thousands."""

    index: int  # type: ignore[assignment]  # a tuple's method, which nobody wants of this one
    """Its index in the span, from 0."""
    sequence: SequenceNumber
    previous: SequenceNumber | None
    """The record before it in the span; None for the span's first."""
    state: RecordState
    """WAITING, EXHAUSTED, or IN_FLIGHT: its outcome is not known yet."""
    attempts: int
    """The number of its deliveries; 0 if it was held back undelivered."""
    history: History | None = None
    """Its history, if it failed."""


class Span:
    """A run of records that share one state. Mutable; linked in shard order."""

    __slots__ = (
        "attempts",
        "count",
        "deadline",
        "first",
        "history",
        "last",
        "next",
        "prev",
        "state",
    )

    def __init__(
        self, first: SequenceNumber, last: SequenceNumber, count: int, state: RecordState, attempts: int
    ) -> None:
        self.first = first
        """The first record; in a finished span it may be the record before."""
        self.last = last
        self.count = count
        """The number of records; not kept up in a finished span."""
        self.state = state
        self.attempts = attempts
        self.history: History | None = None
        """Its history, if it failed under the present ownership."""
        self.prev: Span | None = None
        self.next: Span | None = None
        self.deadline: float | None = None
        """When its delivery times out, if it may."""

    def pieces(self, carved: Sequence[Carved]) -> "list[Span]":
        """Cut this span into its finished runs and the records carved out of it, all unlinked.

        Raises:
            OutOfOrder: the carved records do not fit into it.
        """
        pieces: list[Span] = []
        index, first = 0, self.first
        for record in sorted(carved, key=lambda record: record.index):
            at, sequence, previous, state, attempts, history = record
            run = at - index
            if run < 0 or not self._fits(record, first, run):
                raise OutOfOrder(
                    f"expected failures inside {self.first}..{self.last} ({self.count} records), each once "
                    f"and with the record before it; got {record}"
                )
            if run > 0:
                assert previous is not None
                pieces.append(Span(first, previous, run, _FINISHED, 0))
            piece = Span(sequence, sequence, 1, state, attempts)
            piece.history = history
            pieces.append(piece)
            # The first record of the next run is not known.
            index, first = at + 1, sequence
        if index < self.count:
            pieces.append(Span(first, self.last, self.count - index, _FINISHED, 0))
        return pieces

    def _fits(self, record: Carved, reached: SequenceNumber, run: int) -> bool:
        """Tell whether a record can be at its index, ``run`` finished records after the last one carved out.

        That one is ``reached``; before there was any, it is the span's first record.
        """
        at, sequence, previous = record[:3]
        if run and (previous is None or previous >= sequence):
            return False
        following = previous if run else sequence
        assert following is not None
        if following < reached or (following == reached and run < at):
            return False
        is_first, is_last = sequence == self.first, sequence == self.last
        return (
            sequence <= self.last
            and at < self.count
            and is_first == (at == 0)
            and is_last == (at == self.count - 1)
        )


class Deadlines:
    """The deadlines of the records of one shard that are handed out one by one. Mutable."""

    __slots__ = ("_queue",)

    def __init__(self) -> None:
        self._queue: deque[tuple[float, Span]] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    def start(self, span: Span, deadline: float, unresolved: int) -> None:
        """Note that a delivery began, of one of ``unresolved`` records. Its deadline is the latest of all."""
        span.deadline = deadline
        queue = self._queue
        queue.append((deadline, span))
        if len(queue) > 2 * unresolved + _COMPACT_ABOVE:
            self._queue = deque(entry for entry in queue if entry[1].deadline == entry[0])

    def next(self) -> Span | None:
        while self._queue:
            deadline, span = self._queue[0]
            if span.deadline == deadline:
                return span
            self._queue.popleft()
        return None
