"""Windows by time while calls of what comes after them fail at a rate: none is lost, and each counts once.

Keys go idle, so tuples close some windows and ticks the others. A window's numbers are noted in the state of
a second bolt, and then given to a sink that fails: so a tree that fails has touched the state of two bolts.
"""

from collections import Counter
from random import Random
from typing import Any, ClassVar

import pytest

from kinesis_spout.storm import (
    BasicBolt,
    FailedException,
    KeyValueState,
    Seconds,
    StatefulBolt,
    TopologyBuilder,
    Tuple,
)
from kinesis_spout.testing import ManualClock
from tests.support.storm.windowed_topology import ByEventTime, Items, Numbers, Records, forget_failures

KEYS = [f"k{number}" for number in range(12)]
RECORDS = 400


class Ledger(StatefulBolt):
    """Keeps the numbers of all windows of a key, and passes them on."""

    def declare_output_fields(self) -> list[str]:
        return ["key", "numbers"]

    def init_state(self, state: KeyValueState) -> None:
        self._state = state

    def execute(self, tup: Tuple) -> None:
        key = tup["key"]
        self._state.put(key, (*self._state.get(key, ()), tup["numbers"]))
        self.collector.emit([key, tup["numbers"]], tup)
        self.collector.ack(tup)


class Sink(BasicBolt):
    """Takes windows, but fails at a rate; half of these after it has taken them."""

    rate = 0.0
    random = Random()
    taken: ClassVar[Counter[tuple[str, tuple[int, ...]]]] = Counter()

    def process(self, tup: Tuple) -> None:
        fails = Sink.random.random() < Sink.rate
        if not fails or Sink.random.random() < 0.5:
            Sink.taken[tup["key"], tup["numbers"]] += 1
        if fails:
            raise FailedException("the sink fails")


def run(bolt: Numbers, rate: float, seed: int) -> tuple[Counter[Any], Counter[Any], int]:
    """Give how often each window was taken, and how often it is in the state; and how many micro-batches ran."""
    forget_failures()
    Sink.rate, Sink.random = rate, Random(seed)
    Sink.taken.clear()
    draw, clock = Random(seed), ManualClock(1_000.0)
    builder = TopologyBuilder()
    builder.set_spout("records", Records())
    builder.set_bolt("items", Items()).shuffle_grouping("records")
    builder.set_bolt("windows", bolt, 2).fields_grouping("items", ["key"])
    builder.set_bolt("ledger", Ledger(), 2).fields_grouping("windows", ["key"])
    builder.set_bolt("sink", Sink()).shuffle_grouping("ledger")
    local = builder.build().local(clock.monotonic, clock.time)
    waiting: list[Any] = []
    new = [(number, draw.choice(KEYS)) for number in range(RECORDS)]
    batches = 0
    while new or waiting or local.state.get("windows") or local.failed_results:
        drawn, new = new[:20], new[20:]
        batch = [*waiting, *([[(key, number, clock.time())]] for number, key in drawn)]
        waiting = [list(values) for values, _ in local.run(batch).failed]
        clock.advance(2)
        batches += 1
        assert batches < 2_000, f"no end with seed {seed}"
    kept = local.state.get("ledger", {})
    return (
        Sink.taken.copy(),
        Counter((key, each) for key, windows in kept.items() for each in windows),
        batches,
    )


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("rate", [0.001, 0.05, 0.3])
@pytest.mark.parametrize("by_event_time", [False, True])
def test_each_window_reaches_the_sink_and_counts_once(rate: float, seed: int, *, by_event_time: bool) -> None:
    length = Seconds(5)
    bolt = ByEventTime(length, lateness_seconds=600) if by_event_time else Numbers(length)

    taken, kept, _ = run(bolt, rate, seed)

    numbers = Counter(number for _, window in kept for number in window)
    assert numbers == Counter(range(RECORDS)), "each number is in one window"
    assert set(kept.values()) == {1}, "each window is in the state once"
    assert set(kept) <= set(taken), "each window was taken"
