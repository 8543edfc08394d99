"""The trees of tuples as far as one process has to do with them, in one micro-batch.

A tuple that stays in its process needs no edge: it is enough to count those that are not acked. And nearly every
tuple is acked when its bolt returns, which is before the ``emit`` that made it returns. So only those are counted
that are not: a bolt holds them, or has failed them. A tree is open here while it has any.
"""

from array import array
from collections.abc import Callable, Iterable
from random import getrandbits
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
        """The root whose tuple is at hand, or 0. It is set before that tuple is sent."""
        self.opened: dict[int, int] = {}
        """By root: how many of its tuples are held here or failed; without those of 0."""
        self.ends: dict[int, TreeEnd] = {}
        """The trees that cannot complete, as was seen here."""
        self.touched: set[int] = set()
        """The roots whose tuples came to a bolt with state."""

    def begin(self) -> None:
        """Begin a micro-batch."""
        self._began = self.clock()
        self._resets.clear()
        self.current = 0
        self.opened.clear()
        self.ends.clear()
        self.touched.clear()

    def leave(self) -> bool:
        """End with the root at hand.

        Returns:
            Whether its tree is open, after what was done here.
        """
        return self.current in self.opened

    def count(self, roots: Iterable[int], tuples: int) -> None:
        """Take in that a tuple of these trees is held, or failed (1), or that one that was held is acked (-1).

        A thread of a bolt may ack beside us, though it must not. It gets its turn where something is called: so
        nothing is called between reading a count and writing it.
        """
        opened = self.opened
        for root in roots:
            held = opened[root] + tuples if root in opened else tuples
            if held:
                opened[root] = held
            else:
                del opened[root]

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

    An acker hears of a tuple that leaves the process when it is made, and when it has come to where it goes: its
    edge, each time. At the end it hears of the trees that are open here: a random number for each.

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
        self._value = 0
        """The edges of the tree at hand, XORed."""

    def leave(self) -> bool:
        """See ``Trees``."""
        root, value = self.current, self._value
        self.current = 0
        if value:
            self._roots.append(root)
            self._xors.append(value)
            self._value = 0
            return True
        return root in self.opened

    def tell(self, root: int, others: Iterable[int] | None, edge: int) -> None:
        """Take in the edge of a tuple that leaves, or has come, with its trees; see ``Tuple``."""
        if root == self.current:
            self._value ^= edge
        elif root:
            self._roots.append(root)
            self._xors.append(edge)
        if others is not None:
            for other in others:
                self.tell(other, None, edge)

    def fold(self) -> None:
        """Put the messages together, if they are many."""
        if len(self._roots) >= _FOLD_AT:
            self._fold()

    def take(self) -> tuple[Words, Words]:
        """Take the messages, at the end: a root and what was done to its tree, each."""
        self._roots.extend(self.opened)
        self._xors.extend(getrandbits(64) or 1 for _ in self.opened)
        self._fold()
        words = self._folded.words()
        self._begin_messages()
        return words

    def _fold(self) -> None:
        self._folded.tell_all(self._roots.tobytes(), self._xors.tobytes())
        del self._roots[:], self._xors[:]
