"""The least that tracks records one by one: a doubly linked list and a dict.

It keeps what cannot be left out: records in order, the base as the finished prefix, harmless duplicate acks,
an attempt count and a deadline for each delivery. It knows no failures, no holes to be stored and no slices.
"""

from shard_state import SHARD_START, SequenceNumber


class _Node:
    __slots__ = ("attempts", "before", "deadline", "next", "prev")

    def __init__(self, before: SequenceNumber, prev: "_Node | None", deadline: float) -> None:
        self.before = before
        self.prev = prev
        self.next: _Node | None = None
        self.attempts = 1
        self.deadline = deadline


class PlainList:
    """The reference for the tracker and the manager. Mutable."""

    def __init__(self) -> None:
        self.base = SHARD_START
        self._last = SHARD_START
        self._head: _Node | None = None
        self._tail: _Node | None = None
        self._nodes: dict[SequenceNumber, _Node] = {}

    def emit(self, sequence: SequenceNumber, deadline: float) -> None:
        """Track a record that was handed out."""
        if sequence <= self._last:
            raise ValueError(f"expected a record after {self._last}, got {sequence}")
        tail = self._tail
        node = _Node(self._last, tail, deadline)
        if tail is None:
            self._head = node
        else:
            tail.next = node
        self._tail = node
        self._last = sequence
        self._nodes[sequence] = node

    def ack(self, sequence: SequenceNumber) -> bool:
        """Finish a record; False if it is unknown or finished."""
        node = self._nodes.pop(sequence, None)
        if node is None:
            return False
        before, behind = node.prev, node.next
        if before is None:
            self._head = behind
            self.base = self._last if behind is None else behind.before
        else:
            before.next = behind
        if behind is None:
            self._tail = before
        else:
            behind.prev = before
        return True
