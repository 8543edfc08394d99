"""Storm's acker: knows for each tree of tuples whether all of it is done, in 16 bytes whatever its size.

Trees are decided by it with the option ``ackers=N``, and otherwise by who holds or failed a tuple: see
``running.trees``. Both decide alike, which the models check.

A tree has a root, a 64-bit id. Each of its tuples is an edge with a random 64-bit id. The acker gets every
edge id twice: when the tuple is made, and when it is acked. It keeps the XOR of all ids of a root. Equal ids
cancel out in any order, so the value is 0 once every tuple that was made was also acked. The probability that
it is 0 by chance before is 2**-64 a message.

A task XORs first and sends one message. A bolt that acks a tuple with the edge ``e`` after emitting the edges
``a`` and ``b`` sends ``e ^ a ^ b``. A task sends the XOR of all that it did to a root, and nothing if that is
0. It sends nothing about tuples that never leave it; see ``running.trees``.

The order of decision is Storm's: a value of 0 is a complete tree, whatever else was said; then a fail counts;
a tree with neither has timed out. (Storm: "Guaranteeing message processing", and its ``Acker``.)
"""

from array import array
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
from msgspec import structs

from kinesis_spout.model.handler import Failure

_FOLD_AT = 65_536
"""After this many messages they are folded into one per tree."""

Words = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeEnd:
    component: str
    """The component that failed one of its tuples, or had it when the time was over. "" if unknown."""
    failure: Failure

    @classmethod
    def after_time_out(cls, failure: Failure, component: str = "") -> Self:
        return cls(component=component, failure=structs.replace(failure, timed_out=True))

    @property
    def timed_out(self) -> bool:
        """True if a tuple was still open when the micro-batch ended; otherwise a bolt failed one."""
        return self.failure.timed_out

    @property
    def reason(self) -> str:
        where = f"{self.component}: " if self.component else ""
        return f"{where}{self.failure.error_text}"

    def __repr__(self) -> str:
        return f"TreeEnd({'timed out' if self.timed_out else 'failed'}, {self.reason!r})"


def note_end(ends: MutableMapping[int, TreeEnd], root: int, end: TreeEnd) -> None:
    """Keep the first fail; without one, the first time-out; without either, that a tuple was put off."""
    known = ends.get(root)
    if known is None or _weight(end) > _weight(known):
        ends[root] = end


def _weight(end: TreeEnd) -> int:
    if end.failure.put_off:
        return 0
    return 1 if end.timed_out else 2


class Acker:
    """The trees of some roots. Mutable; messages can come in any order.

    It holds 16 bytes for each incomplete tree, and 16 for each message since it last folded them.
    """

    def __init__(self) -> None:
        self._roots: Words = np.empty(0, np.uint64)
        self._values: Words = np.empty(0, np.uint64)
        self._new: list[tuple[Words, Words]] = []
        self._new_messages = 0
        self._ends: dict[int, TreeEnd] = {}

    def tell(self, root: int, value: int) -> None:
        """Add the XOR of the ids of edges that were made or acked."""
        self.tell_all(array("Q", (root,)), array("Q", (value,)))

    def tell_all(self, roots: "array[int] | bytes", values: "array[int] | bytes") -> None:
        """Add many messages of ``tell``, given as native 64-bit words."""
        words = np.frombuffer(roots, np.uint64)
        self._new.append((words, np.frombuffer(values, np.uint64)))
        self._new_messages += len(words)
        if self._new_messages >= max(_FOLD_AT, len(self._roots)):
            self._fold()

    def fail(self, root: int, end: TreeEnd) -> None:
        note_end(self._ends, root, end)

    def words(self) -> tuple[Words, Words]:
        """The incomplete trees and their values, as native 64-bit words."""
        self._fold()
        return self._roots, self._values

    def unfinished(self) -> Mapping[int, TreeEnd | None]:
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
