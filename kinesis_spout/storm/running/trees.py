"""The trees of tuples within one process, in one micro-batch; and who decides them.

A tuple that stays in its process needs no edge: it is enough to count those that are not acked. And nearly
every tuple is acked when its bolt returns, which is before the ``emit`` that made it returns. So only those
are counted that are not: a bolt holds them, or has failed them. A tree is open here while it has any.

For trees that leave the process their acker gets messages: the edge of a tuple when it is packed, and when it
has arrived. At the end it gets the trees that are open here: a random number for each, like an edge that is
never acked. What leaves in one block is sent at once, as it is in the block: that costs next to nothing a
tuple.

**Who decides.** Two things are known of a tree, and each decides where the other knows nothing:

- *The task that held or failed one of its tuples* (``Trees.opened``) decides of all that came to a bolt. It
  decides alone in a topology of one stage, and says which of the trees that an acker finds open failed, and
  where.
- *The XOR of its edges* decides of all that was on its way between two stages: a tuple that left and never
  came (its block was lost, or no task took it), or that came without one of its roots. No bolt has seen it,
  so no bolt holds or failed it. Spark runs a job again that loses a block, so in a job that ends well this
  does not happen; the XOR would reveal it.
"""

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from random import getrandbits
from typing import Final

import numpy as np

from kinesis_spout.model.handler import Failure
from kinesis_spout.storm.acking import Acker, TreeEnd, Words, note_end
from kinesis_spout.storm.running.blocks import AckBlock, Block, ChangesDoNotCount, OpenTrees, TupleBlock

NOBODY_SAID: Final = TreeEnd.after_time_out(
    Failure(error_text="its tree was not complete by the end of the micro-batch")
)
"""The end of a tree that misses an ack, of which no task has said where it stopped."""


def new_root() -> int:
    """Never 0."""
    return getrandbits(64) or 1


class Trees:
    """What was done to trees in this process. Mutable."""

    def __init__(self, clock: Callable[[], float], timeout_seconds: float) -> None:
        self.clock = clock
        self._timeout = timeout_seconds
        self._began = clock()
        self._resets: dict[int, float] = {}
        self._told = Acker()
        self.reset_at = self._began
        """When the time-out of a tree was last restarted."""
        self.has_left = False
        """Whether a tuple has left the process since this was last set to False, of whatever tree."""
        self.opened: dict[int, int] = {}
        """By root: how many of its tuples are held here or failed; without those of 0."""
        self.ends: dict[int, TreeEnd] = {}
        self.touched: set[int] = set()
        """The roots that have changed state here, or could have."""

    def begin(self) -> None:
        self.begin_waiting()
        self._told = Acker()
        self.has_left = False
        self.opened.clear()
        self.ends.clear()
        self.touched.clear()

    def begin_waiting(self) -> None:
        self._began = self.clock()
        self._resets.clear()

    def count(self, roots: Iterable[int], tuples: int) -> None:
        """A tuple of these trees is held, or failed (1), or one that was held is acked (-1).

        A thread of a bolt can ack at the same time, though it must not. It gets its turn where something is
        called: so nothing is called between reading a count and writing it.
        """
        opened = self.opened
        for root in roots:
            held = opened[root] + tuples if root in opened else tuples
            if held:
                opened[root] = held
            else:
                del opened[root]

    def end(self, root: int, end: TreeEnd) -> None:
        note_end(self.ends, root, end)

    def reset_timeout(self, roots: Iterable[int]) -> None:
        self.reset_at = self.clock()
        self._resets.update(dict.fromkeys(roots, self.reset_at))

    def is_overdue(self, roots: Iterable[int]) -> bool:
        until = self.clock() - self._timeout
        return any(self._resets.get(root, self._began) <= until for root in roots)

    def tell(self, block: TupleBlock) -> None:
        if not block.edges:
            return
        self._told.tell_all(block.roots, block.edges)
        edges = array("Q", block.edges) if block.others else ()
        for at, others in block.others.items():
            for root in others:
                self._told.tell(root, edges[at])

    def take(self) -> tuple[Words, Words]:
        told, self._told = self._told, Acker()
        told.tell_all(array("Q", self.opened), array("Q", (new_root() for _ in self.opened)))
        return told.words()

    def ack_blocks(self, ackers: int) -> Iterator[AckBlock]:
        roots, values = self.take()
        of_acker = roots % np.uint64(ackers)
        for acker in range(ackers):
            here = of_acker == acker
            ends = {root: end for root, end in self.ends.items() if root % ackers == acker}
            touched = array("Q", (root for root in self.touched if root % ackers == acker))
            if ends or touched or here.any():
                yield AckBlock(
                    acker=acker,
                    roots=roots[here].tobytes(),
                    values=values[here].tobytes(),
                    ends=ends,
                    touched=touched.tobytes(),
                )

    def decided(self, root: int) -> TreeEnd | None:
        """Decide a tree that never left this process, after the end of its stage. None: it is complete."""
        return (self.ends.get(root) or NOBODY_SAID) if root in self.opened else None

    def all_decided(self, numbers: Mapping[int, int]) -> dict[int, TreeEnd]:
        """Decide trees as ``decided`` does, given by root. Gives the ends of incomplete ones, by number."""
        found = {number: self.decided(root) for root, number in numbers.items()}
        return {number: end for number, end in found.items() if end is not None}


def open_trees(numbers: Mapping[int, int], ackers: int, batch: int) -> Iterator[tuple[int, OpenTrees]]:
    for acker in range(ackers):
        roots = array("Q", (root for root in numbers if root % ackers == acker))
        if roots:
            words = array("Q", (numbers[root] for root in roots)).tobytes()
            yield acker, OpenTrees(acker=acker, batch=batch, roots=roots.tobytes(), numbers=words)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfinished:
    batch: int
    ends: Mapping[int, TreeEnd]
    opened: OpenTrees = field(repr=False)


def decide(blocks: Iterable[Block]) -> Iterator[Unfinished | Block]:
    """Decide the trees of an acker's task, once all their messages have come. Other blocks are passed on.

    If an incomplete tree has changed state, that comes first.
    """
    acker = Acker()
    opened: list[OpenTrees] = []
    touched: set[int] = set()
    for block in blocks:
        if isinstance(block, OpenTrees):
            opened.append(block)
        elif isinstance(block, AckBlock):
            acker.tell_all(block.roots, block.values)
            touched.update(array("Q", block.touched))
            for root, end in block.ends.items():
                acker.fail(root, end)
        else:
            yield block
    unfinished = acker.unfinished()
    if not touched.isdisjoint(unfinished):
        yield ChangesDoNotCount()
    for trees in opened if unfinished else ():
        numbers = array("Q", trees.numbers)
        ended = [(numbers[at], root) for at, root in enumerate(array("Q", trees.roots)) if root in unfinished]
        if ended:
            yield Unfinished(
                batch=trees.batch,
                ends={number: unfinished[root] or NOBODY_SAID for number, root in ended},
                opened=trees,
            )
