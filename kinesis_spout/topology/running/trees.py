"""The trees of tuples as far as one process has to do with them, in one micro-batch."""

from collections.abc import Callable, Iterable

from kinesis_spout.topology.acking import TreeEnd, note_end


class Trees:
    """What was done here to trees. Mutable.

    Args:
        clock: monotonic.
        timeout_seconds: the message time-out.
    """

    def __init__(self, clock: Callable[[], float], timeout_seconds: float) -> None:
        self._clock = clock
        self._timeout = timeout_seconds
        self._began = clock()
        self._resets: dict[int, float] = {}
        self.current = 0
        """The root at hand, or 0: what is done to its tree is XORed into ``value``, which costs less."""
        self.value = 0
        self.values: dict[int, int] = {}
        """By root: the ids of the edges that were made or acked, XORed; without those where that is 0."""
        self.ends: dict[int, TreeEnd] = {}
        """The trees that cannot complete, as was seen here."""
        self.touched: set[int] = set()
        """The roots whose tuples came to a bolt with state."""

    def begin(self) -> None:
        """Begin a micro-batch."""
        self._began = self._clock()
        self._resets.clear()
        self.current = self.value = 0
        self.values.clear()
        self.ends.clear()
        self.touched.clear()

    def leave(self) -> None:
        """End with the root at hand. It is set, with a ``value`` of 0, before one of its tuples is sent.

        Tuples come depth first, so most of what follows then is of the same tree.
        """
        if self.value:
            self.xor(self.current, self.value)
            self.value = 0
        self.current = 0

    def xor(self, root: int, value: int) -> None:
        """Take in edges that were made or acked."""
        value ^= self.values.get(root, 0)
        if value:
            self.values[root] = value
        else:
            self.values.pop(root, None)

    def end(self, root: int, end: TreeEnd) -> None:
        """Take in that a tree cannot complete."""
        note_end(self.ends, root, end)

    def reset_timeout(self, roots: Iterable[int]) -> None:
        """Let the time-out of trees begin now."""
        self._resets.update(dict.fromkeys(roots, self._clock()))

    def is_overdue(self, roots: Iterable[int]) -> bool:
        """Tell whether the time-out of one of these trees is over."""
        until = self._clock() - self._timeout
        return any(self._resets.get(root, self._began) <= until for root in roots)
