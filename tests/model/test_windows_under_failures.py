"""Windows and ticks while calls of what comes after them fail at a rate: no result is lost, and each counts once.

Keys go idle, so tuples close some windows and ticks the others. A window's numbers are noted in the state of
a second bolt, and then given to a sink that fails: so a tree that fails has touched the state of two bolts.
"""

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any, ClassVar

import pytest

from kinesis_spout.storm import (
    BasicBolt,
    Count,
    FailedException,
    KeyValueState,
    Seconds,
    StatefulBolt,
    TopologyBuilder,
    Tuple,
)
from kinesis_spout.testing import ManualClock
from tests.support.storm.windowed_topology import ByEventTime, Items, Numbers, Records, forget_failures

pytestmark = pytest.mark.no_second_run

KEYS = [f"k{number}" for number in range(12)]
RECORDS = 400


class Flushes(StatefulBolt):
    """Gathers the numbers of each key, and emits them on each tick; now and then the tick raises half-way."""

    tick_seconds = 5.0
    random = Random()

    def declare_output_fields(self) -> list[str]:
        return ["key", "numbers", "start", "end"]

    def init_state(self, state: KeyValueState) -> None:
        self._state = state

    def execute(self, tup: Tuple) -> None:
        if not tup.is_tick:
            self._state.put(tup["key"], [*self._state.get(tup["key"], []), tup["number"]])
            self.collector.ack(tup)
            return
        for key, numbers in self._state.items():
            self._state.delete(key)
            if Flushes.random.random() < 0.02:
                raise FailedException("the tick fails half-way")
            self.collector.emit([key, tuple(numbers), 0, 0], [tup] if len(numbers) % 2 else ())


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


def run(
    bolt: StatefulBolt, rate: float, seed: int, *, is_far: bool, guarantee: str, ackers: int | None
) -> tuple[Counter[Any], Counter[Any], set[int]]:
    """Give how often each window was taken, how often it is in the state, and the numbers in open windows."""
    forget_failures()
    Sink.rate, Sink.random, Flushes.random = rate, Random(seed), Random(seed)
    Sink.taken.clear()
    draw, clock = Random(seed), ManualClock(1_000.0)
    builder = TopologyBuilder()
    builder.set_spout("records", Records())
    builder.set_bolt("items", Items()).shuffle_grouping("records")
    builder.set_bolt("windows", bolt, 2).fields_grouping("items", ["key"])
    builder.set_bolt("ledger", Ledger(), 2).fields_grouping("windows", ["key"])
    sink = builder.set_bolt("sink", Sink(), 2)
    if is_far:
        sink.fields_grouping("ledger", ["key"])
    else:
        sink.shuffle_grouping("ledger")
    built = builder.build(state_guarantee=guarantee, ackers=ackers)
    local = built.local(clock.monotonic, clock.time)
    waiting: list[Any] = []
    new = [(number, draw.choice(KEYS)) for number in range(RECORDS)]
    batches = idle = 0
    while new or waiting or local.failed_results or idle < 3:
        drawn, new = new[:20], new[20:]
        batch = [*waiting, *([[(key, number, clock.time())]] for number, key in drawn)]
        idle = 0 if batch or local.failed_results else idle + 1
        waiting = [list(values) for values, _ in local.run(batch).failed]
        clock.advance(2 if new else 300)
        batches += 1
        assert batches < 2_000, f"no end with seed {seed}"
        if draw.random() < 0.05:
            local.close()  # Workers are replaced.
    kept = local.state.get("ledger", {})
    return (
        Sink.taken.copy(),
        Counter((key, each) for key, windows in kept.items() for each in windows),
        {row[2][1] for windows in local.state.get("windows", {}).values() for row in windows.rows},
    )


BOLTS: dict[str, Callable[[], StatefulBolt]] = {
    "by count": lambda: Numbers(Count(3)),
    "by time": lambda: Numbers(Seconds(5)),
    "by event time": lambda: ByEventTime(Seconds(5), lateness_seconds=600),
    "on ticks": Flushes,
}


@pytest.mark.parametrize("rate", [0.001, 0.05, 0.3, 0.9])
@pytest.mark.parametrize("is_far", [False, True])
@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
@pytest.mark.parametrize("made", BOLTS)
def test_each_result_reaches_the_sink_and_counts_once(
    made: str, guarantee: str, rate: float, *, is_far: bool
) -> None:
    for seed in range(3):
        ackers = 2 if seed == 2 else None

        taken, kept, left = run(BOLTS[made](), rate, seed, is_far=is_far, guarantee=guarantee, ackers=ackers)

        numbers = Counter(number for _, window in kept for number in window)
        assert numbers == Counter(set(range(RECORDS)) - left), "each number is in one window"
        assert set(kept) <= set(taken), "each window was taken"
        if guarantee == "exactly_once":
            assert set(kept.values()) == {1}, "each window is in the state once"
