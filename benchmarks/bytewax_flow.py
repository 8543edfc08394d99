"""A dataflow of bytewax over tuples in memory: what ``bench_topology`` stands beside.

python bytewax_flow.py <map|keyed|words> <tuples>

It prints the CPU seconds of the run. Nothing is read from a stream, and nothing is acked: after a failure bytewax
goes back to its last snapshot, with all records since.
"""

import random
import sys
import time
from typing import Any, Final

import bytewax.operators as op
from bytewax.dataflow import Dataflow
from bytewax.inputs import DynamicSource, StatelessSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.testing import run_main
from canned_backlog import sentence

_BATCH: Final = 1_000
_RANDOM: Final = random.Random(1)
_SENTENCES: Final = [sentence(_RANDOM, 100).decode() for _ in range(_BATCH)]
Item = tuple[str, str]


class _Tuples(DynamicSource[Item]):
    """So many tuples of a key and a text."""

    def __init__(self, count: int) -> None:
        self._count = count

    def build(self, *_worker: Any) -> "_Batches":
        return _Batches(self._count)


class _Batches(StatelessSourcePartition[Item]):
    def __init__(self, left: int) -> None:
        self._left = left

    def next_batch(self) -> list[Item]:
        if self._left <= 0:
            raise StopIteration
        self._left -= _BATCH
        return [(str(number), _SENTENCES[number]) for number in range(_BATCH)]


class _Nowhere(DynamicSink[Any]):
    def build(self, *_worker: Any) -> "_Dropping":
        return _Dropping()


class _Dropping(StatelessSinkPartition[Any]):
    def write_batch(self, items: list[Any]) -> None:
        del items


def _same(item: Item) -> Item:
    return item


def _counted(seen: int | None, text: str) -> tuple[int, str]:
    return (seen or 0) + 1, text


def _words(item: Item) -> list[Item]:
    return [(word, "") for word in item[1].split()]


def _flow(way: str, tuples: int) -> Dataflow:
    flow = Dataflow("benchmark")
    if way == "words":
        words: Any = op.flat_map("words", op.input("tuples", flow, _Tuples(tuples)), _words)
        op.output("nowhere", op.stateful_map("count", words, _counted), _Nowhere())
        return flow
    stream: Any = op.map("same", op.input("tuples", flow, _Tuples(tuples)), _same)
    if way == "keyed":
        stream = op.stateful_map("count", stream, _counted)
    op.output("nowhere", stream, _Nowhere())
    return flow


def main() -> None:
    way, tuples = sys.argv[1], int(sys.argv[2])
    run_main(_flow(way, tuples))  # imports, and the first calls of everything
    began = time.process_time()
    run_main(_flow(way, tuples))
    print(time.process_time() - began)


main()
