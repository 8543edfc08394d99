"""The trees of tuples as far as one process has to do with them, in one micro-batch.

A tuple that stays in its process needs no edge: it is enough to count those that are not acked. And nearly every
tuple is acked when its bolt returns, which is before the ``emit`` that made it returns. So only those are counted
that are not: a bolt holds them, or has failed them. A tree is open here while it has any.
"""

from array import array
from collections.abc import Callable, Iterable
from random import getrandbits

from kinesis_spout.storm.acking import Acker, TreeEnd, Words, note_end
from kinesis_spout.storm.running.blocks import TupleBlock


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
        self.has_left = False
        """Whether a tuple has left the process since this was last set to False, of whatever tree."""
        self.opened: dict[int, int] = {}
        """By root: how many of its tuples are held here or failed; without those of 0."""
        self.ends: dict[int, TreeEnd] = {}
        """The trees that cannot complete, as was seen here."""
        self.touched: set[int] = set()
        """The roots that have changed state here, or may have."""

    def begin(self) -> None:
        """Begin a micro-batch."""
        self.begin_waiting()
        self.has_left = False
        self.opened.clear()
        self.ends.clear()
        self.touched.clear()

    def begin_waiting(self) -> None:
        """Have the time-outs of all trees begin now."""
        self._began = self.clock()
        self._resets.clear()

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

    An acker hears of a tuple that leaves the process when it is packed, and when it has come to where it goes: its
    edge, each time. At the end it hears of the trees that are open here: a random number for each.

    What leaves in one block is told at once, as it is in the block, so that it costs next to nothing a tuple.
    """

    def __init__(self, clock: Callable[[], float], timeout_seconds: float) -> None:
        super().__init__(clock, timeout_seconds)
        self._told = Acker()

    def begin(self) -> None:
        """Begin a micro-batch."""
        super().begin()
        self._told = Acker()

    def tell(self, block: TupleBlock) -> None:
        """Take in the edges of tuples that leave, or have come."""
        if not block.edges:
            return
        self._told.tell_all(block.roots, block.edges)
        edges = array("Q", block.edges) if block.others else ()
        for at, others in block.others.items():
            for root in others:
                self._told.tell(root, edges[at])

    def take(self) -> tuple[Words, Words]:
        """Take the messages, at the end: a root and what was done to its tree, each."""
        told, self._told = self._told, Acker()
        told.tell_all(array("Q", self.opened), array("Q", (getrandbits(64) or 1 for _ in self.opened)))
        return told.words()
