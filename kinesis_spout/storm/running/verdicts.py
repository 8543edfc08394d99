"""Decides trees: what an acker's task does with all that it was told, and what the only stage does by itself.

Two things are known of a tree, and each decides where the other knows nothing:

- *Who held or failed one of its tuples* (``Trees.opened``) decides of all that came to a bolt. It decides alone in
  a topology of one stage, and says which of the trees that an acker finds open failed, and where.
- *The XOR of its edges* decides of all that was on its way between two stages: a tuple that left and never came
  (its block was lost, or nobody took it), or that came without one of its roots. No bolt has seen it, so nobody
  holds or failed it. Spark runs a job again that loses a block, so in a job that ends well this does not happen;
  the XOR is what would tell.

A process tells an acker of what it holds as an edge that nobody acks, so the acker needs only the XOR.
"""

from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from kinesis_spout.model.handler import Failure
from kinesis_spout.storm.acking import Acker, TreeEnd
from kinesis_spout.storm.running.blocks import AckBlock, Block, ChangesDoNotCount, OpenTrees
from kinesis_spout.storm.running.trees import Trees

NOBODY_SAID: Final = TreeEnd.after_time_out(
    Failure(error_text="its tree was not complete by the end of the micro-batch")
)
"""The end of a tree that misses an ack, of which no task has said where it stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfinished:
    """Those of ``OpenTrees`` that did not complete."""

    batch: int
    ends: Mapping[int, TreeEnd]
    """By the tuple's number in its batch."""
    opened: OpenTrees = field(repr=False)


def decide_here(trees: Trees, root: int) -> TreeEnd | None:
    """Decide a tree that never left this process, after the end of its stage. None: it is complete."""
    return (trees.ends.get(root) or NOBODY_SAID) if root in trees.opened else None


def decide(blocks: Iterable[Block]) -> Iterator[Unfinished | Block]:
    """Decide the trees of an acker's task, once all that concerns them has come. Other blocks are passed on.

    If a tree did not complete that has changed state, that is told first.
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
