"""Every call of a short run meets every fault that it can meet, in both record doors.

A run without faults says which calls there are. Then each of them, one run each, is refused, loses its answer,
kills its process before or after, or sends it to sleep; whoever is alive then finishes the work.
"""

import pytest

from shard_state import Order
from tests.model.counted_world import CountedWorld, Fault, OpenDoor, Scenario, faults_of
from tests.model.stepped_doors import MicroBatchDoor, PlainDoor

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


@pytest.mark.parametrize("scenario", [SPLIT, MERGE, JOINS], ids=["split", "merge", "joins"])
@pytest.mark.parametrize("open_door", [PlainDoor, MicroBatchDoor], ids=["plain", "micro-batch"])
def test_nothing_is_lost_whichever_call_fails(open_door: OpenDoor, scenario: Scenario) -> None:
    calls = calls_of(open_door, scenario)
    for number, call in enumerate(calls):
        for fault in faults_of(call):
            made = calls_of(open_door, scenario, {number: fault})
            assert made[: number + 1] == calls[: number + 1], "the run is the same up to its fault"


def calls_of(open_door: OpenDoor, scenario: Scenario, faults: dict[int, Fault] | None = None) -> list[str]:
    world = CountedWorld(scenario, open_door, faults or {})
    try:
        world.run()
    except BaseException as error:
        error.add_note(
            f"{scenario}, faults: {[(at, fault.name, world.met.get(at)) for at, fault in (faults or {}).items()]}"
        )
        raise
    return world.calls
