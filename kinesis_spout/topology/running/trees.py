"""The trees of tuples as far as one process has to do with them, in one micro-batch."""

from array import array
from collections.abc import Callable, Iterable
from typing import Final

from kinesis_spout.topology.acking import Acker, TreeEnd, Words, note_end

_FOLD_AT: Final = 65_536
"""After so many messages for the ackers they are folded into one a tree."""


class Trees:
    """What was done here to trees that are decided here. Mutable.

    Args:
        clock: monotonic.
        timeout_seconds: the message time-out.
    """

    def __init__(self, clock: Callable[[], float], timeout_seconds: float) -> None:
        self.clock = clock
        self._timeout = timeout_seconds
        self._began = clock()
        self._resets: dict[int, float] = {}
        self.reset_at = self._began
        """When the time-out of a tree was last begun anew."""
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
        self._began = self.clock()
        self._resets.clear()
        self.current = self.value = 0
        self.values.clear()
        self.ends.clear()
        self.touched.clear()

    def leave(self) -> bool:
        """End with the root at hand. It is set, with a ``value`` of 0, before one of its tuples is sent.

        Tuples come depth first, so most of what follows then is of the same tree.

        Returns:
            Whether the tree is open, after what was done here.
        """
        root, value = self.current, self.value
        if value:
            self.xor(root, value)
            self.value = 0
        self.current = 0
        return root in self.values

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
        self.reset_at = self.clock()
        self._resets.update(dict.fromkeys(roots, self.reset_at))

    def is_overdue(self, roots: Iterable[int]) -> bool:
        """Tell whether the time-out of one of these trees is over."""
        until = self.clock() - self._timeout
        return any(self._resets.get(root, self._began) <= until for root in roots)


class ToldTrees(Trees):
    """What was done here to trees that ackers decide. Mutable.

    Only a message is noted each time, in 16 bytes: to look up its tree among thousands costs more, and it is the
    acker that puts them together. Many messages are put together here before, so that they take no more room than
    the trees do.
    """

    def __init__(self, clock: Callable[[], float], timeout_seconds: float) -> None:
        super().__init__(clock, timeout_seconds)
        self._begin_messages()

    def begin(self) -> None:
        """Begin a micro-batch."""
        super().begin()
        self._begin_messages()

    def _begin_messages(self) -> None:
        self._roots = array("Q")
        self._xors = array("Q")
        self._folded = Acker()

    def leave(self) -> bool:
        """See ``Trees``."""
        value = self.value
        if value:
            self._roots.append(self.current)
            self._xors.append(value)
            self.value = 0
        self.current = 0
        return value != 0

    def xor(self, root: int, value: int) -> None:
        """Take in edges that were made or acked."""
        if root == self.current:
            self.value ^= value
        elif value:
            self._roots.append(root)
            self._xors.append(value)

    def fold(self) -> None:
        """Put the messages together, if they are many."""
        if len(self._roots) >= _FOLD_AT:
            self._fold()

    def take(self) -> tuple[Words, Words]:
        """Take the messages: a root and what was done to its tree, each; there may be several of a tree."""
        self._fold()
        words = self._folded.words()
        self._begin_messages()
        return words

    def _fold(self) -> None:
        self._folded.tell_all(self._roots.tobytes(), self._xors.tobytes())
        del self._roots[:], self._xors[:]
