"""Blocks that travel between stages: tuples for one task, packed; messages about trees, for one acker.

A block is bytes and a few words about them, so a process that only passes it on does not unpack it: packed, a
tuple costs a third of what it costs alone.
"""

import pickle
from array import array
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, compress, repeat
from random import randbytes
from typing import Any, Final, Self

import numpy as np

from kinesis_spout.storm.components.tuples import Source, packed, why_not, why_unfit
from kinesis_spout.storm.running.acking import TreeEnd, Words
from kinesis_spout.storm.running.counts import ComponentCounts

_FAR: Final = 0xFFFF
FULL_BLOCK: Final = 5_000
"""Tuples. More in one block save next to nothing, and take memory at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TupleBlock:
    component: str
    index: int
    source: Source
    values: bytes = field(repr=False)
    roots: bytes = field(repr=False)
    """One word for each tuple; 0 without a tree."""
    edges: bytes = field(repr=False)
    """One word for each tuple, the same in all of its trees; none at all without ackers."""
    others: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """The other roots of those tuples that are part of several trees, by their number in the block."""

    def tuples(self) -> Iterator[tuple[Sequence[Any], int, tuple[int, ...] | None]]:
        # The bytes are our own, made a moment ago by another task of the same job.
        values = pickle.loads(self.values)  # noqa: S301
        others = map(self.others.get, range(len(values))) if self.others else repeat(None)
        return zip(values, array("Q", self.roots), others, strict=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AckBlock:
    """Messages of one task about trees, for the acker that has these."""

    roots: bytes = field(repr=False)
    values: bytes = field(repr=False)
    """The XOR of all messages about each."""
    ends: Mapping[int, TreeEnd] = field(default_factory=dict)
    touched: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordBlock:
    """The records of one slice whose trees were open after the first stage, for the case that they fail."""

    batch: int
    """The number of the slice in the micro-batch."""
    records: bytes = field(repr=False)


class ForDriver:
    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StageReport(ForDriver):
    """The report of one task of a stage, or of an acker: its counts, and the trees that are not complete."""

    ends: Mapping[int, TreeEnd] = field(default_factory=dict)
    """By root."""
    touched: bytes = field(default=b"", repr=False)
    """The roots that have changed state, as words."""
    has_groups: bool = False
    """True if it has sent a ``GroupBlock``, too."""
    counts: Mapping[str, ComponentCounts] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupBlock(ForDriver):
    """Trees that one task has put into groups: when one of a group fails, they all do."""

    heads: bytes = field(repr=False)
    """The root of each group, and how many trees it has, as words."""
    steps: bytes = field(repr=False)
    """From each tree to the next one, as half-words: roots that follow each other differ little."""
    far: bytes = field(repr=False)
    """The steps that are ``_FAR`` or more, as words, in their order."""

    @classmethod
    def of(cls, groups: Mapping[int, Sequence[int]]) -> Self:
        heads = array("Q", chain.from_iterable((root, len(members)) for root, members in groups.items()))
        members = np.fromiter(chain.from_iterable(groups.values()), np.uint64)
        steps = np.diff(members, prepend=np.uint64(0))
        near = np.minimum(steps, _FAR).astype(np.uint16)
        return cls(heads=heads.tobytes(), steps=near.tobytes(), far=steps[near == _FAR].tobytes())

    def groups(self) -> dict[int, Words]:
        heads = np.frombuffer(self.heads, np.uint64).reshape(-1, 2)
        near = np.frombuffer(self.steps, np.uint16)
        steps = near.astype(np.uint64)
        steps[near == _FAR] = np.frombuffer(self.far, np.uint64)
        members = np.split(np.cumsum(steps, dtype=np.uint64), np.cumsum(heads[:-1, 1]).astype(np.int64))
        return dict(zip(heads[:, 0].tolist(), members, strict=True))


Block = TupleBlock | AckBlock | RecordBlock | ForDriver
Keyed = tuple[int, Block]
"""A block with the partition that it is for, before that is taken modulo the partitions of the exchange."""

Refuse = Callable[[Collection[int], str], None]
"""Called for a tuple that cannot travel: the roots of its trees, and why."""
Tell = Callable[[TupleBlock], None]
"""Called for tuples that leave."""


class Parcel:
    """A block that is being filled, by one route. Mutable.

    ``refuse`` is called for tuples that cannot travel, ``tell`` for those that do; None: nobody asks.
    """

    __slots__ = ("_refuse", "_tell", "component", "index", "others", "roots", "source", "values")

    def __init__(
        self, component: str, index: int, source: Source, refuse: Refuse, tell: Tell | None = None
    ) -> None:
        self.component = component
        self.index = index
        self.source = source
        self._refuse = refuse
        self._tell = tell
        # The same lists for ever: senders keep their methods at hand.
        self.values: list[Sequence[Any]] = []
        self.roots = array("Q")
        self.others: dict[int, tuple[int, ...]] = {}

    def clear(self) -> None:
        self.values.clear()
        del self.roots[:]
        self.others.clear()

    def drop_last(self, root: int) -> None:
        values, roots, others = self.values, self.roots, self.others
        while values and roots[-1] == root and len(values) - 1 not in others:
            values.pop()
            roots.pop()

    def block(self) -> TupleBlock:
        try:
            values = packed(self.values)
        except Exception:  # noqa: BLE001 - a value's own code may raise anything; which one, is found out now
            self._refuse_unfit()
            values = packed(self.values)
        has_edges = self._tell is not None and any(self.roots)
        block = TupleBlock(
            component=self.component,
            index=self.index,
            source=self.source,
            values=values,
            roots=self.roots.tobytes(),
            edges=randbytes(self.roots.itemsize * len(self.roots)) if has_edges else b"",  # noqa: S311 - unique, not secret
            others=dict(self.others),
        )
        if self._tell is not None:
            self._tell(block)
        return block

    def _refuse_unfit(self) -> None:
        fit: list[bool] = []
        for at, values in enumerate(self.values):
            error = why_not(values)
            fit.append(error is None)
            if error is not None:
                roots = {self.roots[at], *self.others.get(at, ())} - {0}
                self._refuse(roots, why_unfit(self.source.stream, self.source.fields, values, error))
        kept = list(compress(range(len(fit)), fit))
        self.others = {now: self.others[at] for now, at in enumerate(kept) if at in self.others}
        self.values[:] = compress(self.values, fit)
        self.roots[:] = array("Q", compress(self.roots, fit))


class StageOutbox:
    """The output of one stage in one partition: parcels that are being filled, blocks that are ready. Mutable.

    ``partitions`` are those after the exchange; a task lives in its index modulo that.
    """

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions
        self._parcels: list[Parcel] = []
        self._undone: list[Parcel] = []
        """Those for bolts that undo what they did for a tree that failed."""
        self._ready: list[Keyed] = []

    def fill(self, parcel: Parcel, *, is_undone: bool = False) -> Parcel:
        """``is_undone`` if the parcel's task undoes what a failed tree did."""
        self._parcels.append(parcel)
        if is_undone:
            self._undone.append(parcel)
        return parcel

    def clear(self) -> None:
        for parcel in self._parcels:
            parcel.clear()
        self._ready.clear()

    def drop_last(self, root: int) -> None:
        """Drop what a failed tree has sent last to tasks that would undo it; what is packed already stays."""
        for parcel in self._undone:
            parcel.drop_last(root)

    def send(self, parcel: Parcel) -> None:
        self._ready.append((parcel.index % self._partitions, parcel.block()))
        parcel.clear()

    def close(self) -> None:
        for parcel in self._parcels:
            if parcel.values:
                self.send(parcel)

    def add(self, partition: int, block: Block) -> None:
        self._ready.append((partition, block))

    def take(self) -> list[Keyed]:
        ready, self._ready = self._ready, []
        return ready
