"""What travels between stages: tuples for one task, packed; and what became of trees, for one acker.

A block is bytes and a few words about them, so that whoever only passes it on does not unpack it: packed, a tuple
costs a third of what it costs alone.
"""

import pickle
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any, Final

from kinesis_spout.topology.acking import TreeEnd
from kinesis_spout.topology.components.tuples import Source
from kinesis_spout.topology.running.component_counts import ComponentCounts

FULL_BLOCK: Final = 5_000
"""Tuples. More in one block save next to nothing, and take memory at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TupleBlock:
    """Tuples of one stream of one task, for one task of a later stage."""

    component: str
    index: int
    """Which of the component's tasks they are for."""
    source: Source
    values: bytes = field(repr=False)
    roots: bytes = field(repr=False)
    """One word for each tuple; 0 without a tree."""
    edges: bytes = field(repr=False)
    others: Mapping[int, dict[int, int]] = field(default_factory=dict)
    """The other edges of those tuples that are part of several trees, by their number in the block."""

    def tuples(self) -> Iterator[tuple[Sequence[Any], int, int, dict[int, int] | None]]:
        """Unpack the tuples: values, root, edge and other edges of each; see ``Tuple``."""
        # The bytes are our own, made a moment ago by another task of the same job.
        values = pickle.loads(self.values)  # noqa: S301
        others = map(self.others.get, range(len(values))) if self.others else repeat(None)
        return zip(values, array("Q", self.roots), array("Q", self.edges), others, strict=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AckBlock:
    """What a task did to the trees of one acker."""

    acker: int
    roots: bytes = field(repr=False)
    values: bytes = field(repr=False)
    """What it did to each, XORed."""
    ends: Mapping[int, TreeEnd] = field(default_factory=dict)
    touched: bytes = field(default=b"", repr=False)
    """The roots whose tuples came to a bolt with state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTrees:
    """Trees that were not done when their spout's tuples had gone through the first stage, for one acker."""

    acker: int
    batch: int
    """Of which slice of the micro-batch the tuples are."""
    roots: bytes = field(repr=False)
    numbers: bytes = field(repr=False)
    """Which tuple of that slice each is, as words."""
    tuples: bytes = field(default=b"", repr=False)
    """What they were made of, for the case that they fail."""


class ForDriver:
    """What no stage looks at: it is for whoever collects the end of the job."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CountsBlock(ForDriver):
    """What components have done."""

    counts: Mapping[str, ComponentCounts]


Block = TupleBlock | AckBlock | OpenTrees | ForDriver


class Parcel:
    """A block that is being filled. Mutable."""

    __slots__ = ("component", "edges", "index", "others", "roots", "source", "values")

    def __init__(self, component: str, index: int, source: Source) -> None:
        self.component = component
        self.index = index
        self.source = source
        # The same ones for ever: who fills them keeps their methods at hand.
        self.values: list[Sequence[Any]] = []
        self.roots = array("Q")
        self.edges = array("Q")
        self.others: dict[int, dict[int, int]] = {}

    def clear(self) -> None:
        """Begin anew."""
        self.values.clear()
        del self.roots[:], self.edges[:]
        self.others.clear()

    def block(self) -> TupleBlock:
        """Pack what is in it."""
        return TupleBlock(
            component=self.component,
            index=self.index,
            source=self.source,
            values=pickle.dumps(self.values, pickle.HIGHEST_PROTOCOL),
            roots=self.roots.tobytes(),
            edges=self.edges.tobytes(),
            others=dict(self.others),
        )
