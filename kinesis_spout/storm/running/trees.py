"""The trees of tuples within one process, in one micro-batch; and who decides them.

A tuple that stays in its process needs no edge: it is enough to count those that are not acked. And nearly
every tuple is acked when its bolt returns, which is before the ``emit`` that made it returns. So only those
are counted that are not: a bolt holds them, or has failed them. A tree is open here while it has any.

**Who decides.** A tuple that leaves for another process arrives there, or the job dies: Spark runs a part of
a job again that loses a block, and a job that was run in two ways does not count. So in a job that ends well
every tuple came to a bolt, and *the tasks that held or failed one of its tuples* decide a tree: each task
reports the trees that are open in it (``Trees.report``). A tree that nobody reports is complete, and costs
nothing however many tuples of it travel.

With ``ackers`` tasks report to ackers, as in Storm, and these to the driver: the trees whose *XOR of edges*
is not 0, see ``acking``. An acker gets the edge of a tuple when it is packed, and when it has arrived. At the
end it gets the trees that are open here: a random number for each, like an edge that is never acked. Edges of
one block are sent at once, as they are in the block. The XOR would also reveal a tuple that left and never
came.
"""

from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from random import getrandbits
from typing import Final, NamedTuple

import numpy as np

from kinesis_spout.model.handler import Failure
from kinesis_spout.storm.running.acking import Acker, TreeEnd, Words, note_end
from kinesis_spout.storm.running.blocks import (
    AckBlock,
    Block,
    GroupBlock,
    StageReport,
    TupleBlock,
)
from kinesis_spout.storm.running.counts import ComponentCounts

NOBODY_SAID: Final = TreeEnd.after_time_out(
    Failure(error_text="its tree was not complete by the end of the micro-batch")
)
"""The end of a tree that misses an ack, of which no task has said where it stopped."""


_PLACE_BITS: Final = 28
_NOT_A_SPOUTS: Final = 1 << 63
_RESULTS: Final = _NOT_A_SPOUTS | 1 << 62


def root_of(batch: int, number: int) -> int:
    """The root of a spout's tuple: which one it is of its batch, such as a slice. Never 0."""
    return ((batch + 1) << _PLACE_BITS) + number


def place_of(root: int) -> tuple[int, int] | None:
    """The batch and the number that ``root_of`` was given; None if it is no spout's tuple."""
    if root & _NOT_A_SPOUTS:
        return None
    return (root >> _PLACE_BITS) - 1, root & ((1 << _PLACE_BITS) - 1)


def acker_of(root: int, ackers: int) -> int:
    """The same for all trees of a batch, so that they need not be divided."""
    return (root >> _PLACE_BITS) % ackers


def new_root() -> int:
    """The root of a tuple that is no spout's, and no result."""
    return _NOT_A_SPOUTS | getrandbits(62)


def new_result_root() -> int:
    return _RESULTS | getrandbits(62)


class Trees:
    """The trees of one process. Mutable."""

    def __init__(self, clock: Callable[[], float], timeout_seconds: float) -> None:
        self.clock = clock
        self._timeout = timeout_seconds
        self._began = clock()
        self._resets: dict[int, float] = {}
        self._told = Acker()
        self.reset_at = self._began
        """When the time-out of a tree was last restarted."""
        self.has_left = False
        """True if a tuple has left the process since this was last set to False, of whatever tree."""
        self.opened: dict[int, int] = {}
        """By root: how many of its tuples are held here or failed; without those of 0."""
        self.ends: dict[int, TreeEnd] = {}
        self.groups: dict[int, Sequence[int]] | None = None
        """By root: the trees that are to fail if that one does. None if nobody would read them."""
        self.touched: set[int] = set()
        """The roots that have changed state here, or could have."""

    def begin(self) -> None:
        self.begin_waiting()
        self._told = Acker()
        self.has_left = False
        self.opened.clear()
        self.ends.clear()
        self.touched.clear()
        if self.groups:
            self.groups.clear()

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

    def root_for(self, roots: Sequence[int]) -> tuple[int, tuple[int, ...] | None]:
        """The root of a tuple that is part of these trees, 0 if of none; and the other roots that it needs."""
        if len(roots) > 1 and self.groups is not None:
            root = new_root()
            self.groups[root] = roots
            return root, None
        members = list(dict.fromkeys(roots))
        if 0 in members:
            members.remove(0)
        return (members[0], tuple(members[1:]) or None) if members else (0, None)

    def end(self, root: int, end: TreeEnd) -> None:
        note_end(self.ends, root, end)

    def reopen(self, root: int) -> None:
        """Forget how a tree ended, which runs again."""
        self.opened.pop(root, None)
        self.ends.pop(root, None)

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

    def report(self, counts: Mapping[str, ComponentCounts]) -> StageReport:
        """Report the trees that are open here, and those that have changed state."""
        return StageReport(
            ends={root: self.ends.get(root, NOBODY_SAID) for root in self.opened},
            touched=array("Q", self.touched).tobytes(),
            has_groups=bool(self.groups),
            counts=counts,
        )

    def ack_blocks(self, ackers: int) -> Iterator[tuple[int, AckBlock]]:
        """Give each acker what it needs to know."""
        roots, values = self.take()
        of_acker = (roots >> np.uint64(_PLACE_BITS)) % np.uint64(ackers)
        for acker in range(ackers):
            here = of_acker == acker
            ends = {root: end for root, end in self.ends.items() if acker_of(root, ackers) == acker}
            touched = array("Q", (root for root in self.touched if acker_of(root, ackers) == acker))
            if ends or touched or here.any():
                yield (
                    acker,
                    AckBlock(
                        roots=roots[here].tobytes(),
                        values=values[here].tobytes(),
                        ends=ends,
                        touched=touched.tobytes(),
                    ),
                )

    def decided(self, root: int) -> TreeEnd | None:
        """Decide a tree that never left this process, after the end of its stage. None: it is complete."""
        return (self.ends.get(root) or NOBODY_SAID) if root in self.opened else None


class TreeVerdict(NamedTuple):
    """The trees of a micro-batch that are not complete."""

    ends: Mapping[int, Mapping[int, TreeEnd]]
    """Those of a spout's tuples, by batch and number: see ``root_of``."""
    failed_results: frozenset[int]
    """The roots of results."""
    has_touched: bool
    """True if one of them has changed state."""


def verdict_of(reports: Iterable[StageReport], groups: Iterable[GroupBlock] = ()) -> TreeVerdict:
    """Decide the trees of a micro-batch by what all of its tasks, or ackers, report."""
    ends: dict[int, TreeEnd] = {}
    touched: list[Words] = [np.empty(0, np.uint64)]
    for report in reports:
        touched.append(np.frombuffer(report.touched, np.uint64))
        for root, end in report.ends.items():
            note_end(ends, root, end)
    if not ends:
        return TreeVerdict({}, frozenset(), has_touched=False)
    members: dict[int, Words] = {}
    for block in groups:
        members.update(block.groups())
    _end_members(ends, members)
    by_batch: defaultdict[int, dict[int, TreeEnd]] = defaultdict(dict)
    for root, end in ends.items():
        place = place_of(root)
        if place is not None:
            by_batch[place[0]][place[1]] = end
    return TreeVerdict(
        by_batch,
        frozenset(root for root in ends if root >= _RESULTS),
        has_touched=_has_any(np.concatenate(touched), ends, members),
    )


def _end_members(ends: dict[int, TreeEnd], members: Mapping[int, Words]) -> None:
    """Fail all trees of each group that has failed, also of a group in the group."""
    waiting = [root for root in ends if root in members]
    while waiting:
        group = waiting.pop()
        for root in members[group].tolist():
            if root in members and root not in ends:
                waiting.append(root)
            if root:  # It is of no tree.
                note_end(ends, root, ends[group])


def _has_any(roots: Words, ends: Mapping[int, TreeEnd], members: Mapping[int, Words]) -> bool:
    """True if one of these, or of the trees in these groups, is not complete."""
    failed = np.fromiter(ends, np.uint64)
    while len(roots):
        if np.isin(failed, roots).any():
            return True
        inner = [members[root] for root in roots.tolist() if root in members]
        roots = np.concatenate(inner) if inner else np.empty(0, np.uint64)
    return False


def acker_decides(blocks: Iterable[Block]) -> Iterator[Block]:
    """Decide the trees of an acker's task, once all their messages have come. Other blocks are passed on."""
    acker = Acker()
    touched = bytearray()
    for block in blocks:
        if isinstance(block, AckBlock):
            acker.tell_all(block.roots, block.values)
            touched += block.touched
            for root, end in block.ends.items():
                acker.fail(root, end)
        else:
            yield block
    unfinished = acker.unfinished()
    if unfinished:
        ends = {root: end or NOBODY_SAID for root, end in unfinished.items()}
        yield StageReport(ends=ends, touched=bytes(touched))
