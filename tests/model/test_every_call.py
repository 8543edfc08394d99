"""Every call of a short run meets every fault that it can meet, in both record doors.

A run without faults says which calls there are. Then each of them, one run each, is refused, loses its answer,
kills its process before or after, or sends it to sleep; whoever is alive then finishes the work. Two faults in one
run are too many to try all: so many of them are drawn.

    KINESIS_SPOUT_FAULT_PAIRS=1000 KINESIS_SPOUT_FAULT_SEED=7 pytest tests/model/test_every_call.py

tries more of them, in each door and scenario: 1,000 take about a minute each.
"""

import logging
import os
import random
from collections.abc import Mapping

import pytest

from shard_state import Order
from tests.model.call_faults import Fault, faults_of
from tests.model.counted_processes import OpenDoor
from tests.model.counted_world import CountedWorld, Scenario
from tests.model.stepped_doors import MicroBatchDoor, PlainDoor

pytestmark = pytest.mark.no_second_run

PAIRS = int(os.environ.get("KINESIS_SPOUT_FAULT_PAIRS", "20"))
SEED = int(os.environ.get("KINESIS_SPOUT_FAULT_SEED", "1"))

SPLIT = Scenario(
    order=Order.UNORDERED,
    first=("acks a", "fails-once b", "acks b", "fails a", "acks c"),
    second=("acks a", "rejects b", "acks c"),
    later=("acks a", "fails-once b"),
)
MERGE = Scenario(
    order=Order.KEY,
    first=("fails-once a", "acks a", "acks b", "fails b", "acks b"),
    second=("acks a", "fails-once b", "acks b"),
    merges=True,
    later=("acks a", "fails-once b", "acks b"),
)
JOINS = Scenario(
    order=Order.SHARD,
    first=("acks a", "fails-once b", "acks c"),
    second=("acks a", "acks b", "fails c", "acks c"),
    later=("acks a", "acks b"),
    joins_after=2,
)
AGGREGATES = Scenario(
    order=Order.UNORDERED,
    first=(("acks a", "fails-once b", "acks b", "rejects a"), ("acks c",)),
    second=("acks a",),
    later=(("acks a", "acks b"),),
)
AGGREGATES_IN_ORDER = Scenario(
    order=Order.KEY,
    first=(("fails-once a", "acks a", "acks b"), "acks b"),
    second=(("rejects b", "acks c"),),
    merges=True,
    later=(("acks a", "acks b"),),
)
WORLDS = pytest.mark.parametrize(
    ("open_door", "scenario"),
    [
        pytest.param(PlainDoor, SPLIT, id="plain-split"),
        pytest.param(PlainDoor, JOINS, id="plain-joins"),
        pytest.param(MicroBatchDoor, MERGE, id="micro-batch-merge"),
        pytest.param(MicroBatchDoor, JOINS, id="micro-batch-joins"),
        pytest.param(PlainDoor, AGGREGATES_IN_ORDER, id="plain-aggregates"),
        pytest.param(MicroBatchDoor, AGGREGATES, id="micro-batch-aggregates"),
    ],
)


@WORLDS
def test_nothing_is_lost_whichever_call_fails(open_door: OpenDoor, scenario: Scenario) -> None:
    calls = run(open_door, scenario).calls
    for number, call in enumerate(calls):
        for fault in faults_of(call):
            made = run(open_door, scenario, {number: fault}).calls
            assert made[: number + 1] == calls[: number + 1], "the run is the same up to its fault"


@pytest.mark.parametrize("open_door", [PlainDoor, MicroBatchDoor], ids=["plain", "micro-batch"])
def test_nothing_is_lost_at_whichever_call_a_living_member_hangs(open_door: OpenDoor) -> None:
    calls = run(open_door, JOINS).calls
    taken = [
        run(open_door, JOINS, {number: Fault.HANGS}).taken_from_the_living for number in range(len(calls))
    ]
    assert any(taken), "or nobody was fenced"


@WORLDS
def test_nothing_is_lost_whichever_two_calls_fail(open_door: OpenDoor, scenario: Scenario) -> None:
    draws = random.Random(SEED)
    calls = run(open_door, scenario).calls
    for _ in range(PAIRS):
        first = draws.randrange(len(calls))
        faults = {first: draws.choice([*faults_of(calls[first]), Fault.HANGS])}
        after = run(open_door, scenario, faults).calls
        if first + 1 < len(after):
            second = draws.randrange(first + 1, len(after))
            run(
                open_door,
                scenario,
                {**faults, second: draws.choice([*faults_of(after[second]), Fault.HANGS])},
            )


def test_a_door_that_acks_what_it_has_not_handled_is_found_out() -> None:
    """Or the worlds above would prove nothing."""

    class Hasty(PlainDoor):
        def step(self) -> None:
            while (emitted := self._spout.next_tuple()) is not None:
                self._spout.ack(emitted.message_id)

    with pytest.raises(AssertionError, match="is stored as finished"):
        run(Hasty, SPLIT)


def run(open_door: OpenDoor, scenario: Scenario, faults: Mapping[int, Fault] | None = None) -> CountedWorld:
    """Run everything, with what the calls of these numbers meet."""
    world = CountedWorld(scenario, open_door, faults or {})
    before = random.getstate()
    random.seed(SEED)  # back-off has jitter
    try:
        world.run()
    except BaseException as error:
        met = [(number, fault.name, world.met.get(number)) for number, fault in (faults or {}).items()]
        error.add_note(f"faults: {met}")
        raise
    finally:
        random.setstate(before)
    return world


@pytest.fixture(autouse=True)
def _without_logs(caplog: pytest.LogCaptureFixture) -> None:
    """Thousands of runs in which everything fails have much to say."""
    caplog.set_level(logging.CRITICAL, logger="kinesis_spout")
