"""When each delivery of one shard times out.

Every delivery has the same time-out, so deadlines pass in the order in which deliveries began: they stand in a
queue, and nothing is searched. A delivery that ends costs nothing here: ``Span.deadline`` is cleared, and its
entry is *dead*. So is an older entry of a record that is delivered again: only a record's last entry counts.
Dead entries are dropped when they come to the front, or when they outnumber the deliveries without an outcome
(invariant 12). The deadlines are a part of their shard's tracker: a shard that is lost takes them along.
"""

from collections import deque
from typing import Final

from shard_state.tracker.span import Span

_COMPACT_ABOVE: Final = 64


class Deadlines:
    """The deadlines of the records of one shard that are handed out one by one. Mutable."""

    __slots__ = ("_queue",)

    def __init__(self) -> None:
        self._queue: deque[Span] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    def start(self, span: Span, deadline: float, unresolved: int) -> None:
        """Note that a delivery began, of one of ``unresolved`` records. Its deadline is the latest of all."""
        span.deadline = deadline
        span.queued += 1
        queue = self._queue
        queue.append(span)
        if len(queue) > 2 * unresolved + _COMPACT_ABOVE:
            self._compact()

    def next(self) -> Span | None:
        """Give the delivery that times out first."""
        while self._queue:
            if _counts(self._queue[0]):
                return self._queue[0]
            self._queue.popleft().queued -= 1
        return None

    def _compact(self) -> None:
        queue, self._queue = self._queue, deque()
        for span in queue:
            if _counts(span):
                self._queue.append(span)
            else:
                span.queued -= 1


def _counts(entry: Span) -> bool:
    """Tell whether the foremost entry of a record is not dead."""
    return entry.deadline is not None and entry.queued == 1
