"""Storm's acker: knows of each tree of tuples whether all of it is done, in 16 bytes whatever its size.

A tree has a root, a random 64-bit id. Each of its tuples is an edge with a random 64-bit id of its own. The
acker is told every edge id twice: when the tuple is made, and when it is acked. It keeps the XOR of all that it
was told about a root. What comes twice cancels out, in any order, so the value is 0 once every tuple that was
made was also acked. That it is 0 by chance before has a probability of 2**-64 a message.

Whoever makes and acks tuples XORs first and tells once. A bolt that acks a tuple with the edge ``e`` after
emitting the edges ``a`` and ``b`` tells ``e ^ a ^ b``. A task tells the XOR of all that it did to a root, and
nothing if that is 0. Of tuples that never leave it it tells nothing; see ``running.trees``.

The order of decision is Storm's: a value of 0 is a complete tree, whatever else was said; then a fail counts; a
tree with neither has timed out. (Storm: "Guaranteeing message processing", and its ``Acker``.)
"""

from array import array
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from kinesis_spout.storm.acking.tree_end import TreeEnd, note_end

_FOLD_AT = 65_536
"""After so many messages they are folded into one a tree."""

Words = npt.NDArray[np.uint64]


class Acker:
    """The trees of some roots. Mutable; messages may come in any order.

    It holds 16 bytes for each tree that is not complete, and 16 for each message since it last folded them.
    """

    def __init__(self) -> None:
        self._roots: Words = np.empty(0, np.uint64)
        self._values: Words = np.empty(0, np.uint64)
        self._new: list[tuple[Words, Words]] = []
        self._new_messages = 0
        self._ends: dict[int, TreeEnd] = {}

    def __len__(self) -> int:
        """Say how many trees are not complete."""
        self._fold()
        return len(self._roots)

    @property
    def size_bytes(self) -> int:
        """What the trees take, without the ends of those that failed."""
        return sum(each.nbytes for pair in [(self._roots, self._values), *self._new] for each in pair)

    def tell(self, root: int, value: int) -> None:
        """Take in that edges of a tree were made or acked: their ids, XORed."""
        self.tell_all(array("Q", (root,)), array("Q", (value,)))

    def tell_all(self, roots: "array[int] | bytes", values: "array[int] | bytes") -> None:
        """Take in many messages of ``tell``, given as native 64-bit words."""
        words = np.frombuffer(roots, np.uint64)
        self._new.append((words, np.frombuffer(values, np.uint64)))
        self._new_messages += len(words)
        if self._new_messages >= max(_FOLD_AT, len(self._roots)):
            self._fold()

    def fail(self, root: int, end: TreeEnd) -> None:
        """Take in that a tree cannot complete. See ``note_end`` for which of several ends counts."""
        note_end(self._ends, root, end)

    def value(self, root: int) -> int:
        """Give the XOR of what was told of a root; 0 if it is complete, or unknown."""
        self._fold()
        at = int(np.searchsorted(self._roots, np.uint64(root)))
        known = at < len(self._roots) and int(self._roots[at]) == root
        return int(self._values[at]) if known else 0

    def words(self) -> tuple[Words, Words]:
        """Give the trees that are not complete and their values, as native 64-bit words."""
        self._fold()
        return self._roots, self._values

    def unfinished(self) -> Mapping[int, TreeEnd | None]:
        """Give the trees that are not complete, each with its end as far as anybody has said.

        A tree that is not complete and has no end was waited for in vain: it has timed out, nobody knows where.
        """
        self._fold()
        return {root: self._ends.get(root) for root in self._roots.tolist()}

    def _fold(self) -> None:
        if not self._new:
            return
        roots = np.concatenate([self._roots, *(roots for roots, _ in self._new)])
        values = np.concatenate([self._values, *(values for _, values in self._new)])
        self._new, self._new_messages = [], 0
        if not len(roots):
            return  # All messages were empty: tasks that only failed tuples.
        order = np.argsort(roots)
        roots, values = roots[order], values[order]
        firsts = np.flatnonzero(np.concatenate(([True], roots[1:] != roots[:-1])))
        values = np.bitwise_xor.reduceat(values, firsts)
        open_trees = values != 0
        self._roots, self._values = roots[firsts][open_trees], values[open_trees]
