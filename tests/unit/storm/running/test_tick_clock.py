"""Which copies of a bolt tick in which micro-batch."""

from typing import Any

import pytest

from kinesis_spout.storm import Bolt, KeyValueState, StatefulBolt, TopologyBuilder, Tuple
from kinesis_spout.storm.running.clocks import TickClock
from kinesis_spout.storm.running.stage_run import StageRun
from kinesis_spout.storm.state.key_values import PartitionState
from tests.support.storm.components import Sentences

TICKED: list[str] = []
"""In which micro-batch the bolt ticked. Here, as its tasks are copies."""
AT_HAND = [""]
"""The micro-batch that runs."""


class Ticks(Bolt):
    tick_seconds = 10.0

    def execute(self, tup: Tuple) -> None:
        assert tup.is_tick
        TICKED.append(AT_HAND[0])


class TicksWithState(StatefulBolt, Ticks):
    def init_state(self, state: KeyValueState) -> None:
        """It counts nothing."""


class TicksAtHome(Ticks):
    is_sticky = True


class World:
    """A clock, and copies of the one task of a bolt. Mutable."""

    def __init__(self, bolt: Bolt) -> None:
        builder = TopologyBuilder()
        builder.set_spout("words", Sentences())
        builder.set_bolt("ticks", bolt).fields_grouping("words", ["sentence"])
        self.program = builder.build("ticking", state="/nowhere")._programs(1)["words"]
        self.clock = TickClock(self.program.ticks, 0.0)

    def copy(self) -> StageRun:
        return StageRun(self.program, 1, 0, lambda: 0.0)

    def run(self, copy: StageRun, batch: str, **more: Any) -> Any:
        AT_HAND[0] = batch
        ticks = more.get("ticks") or self.clock.ticks(batch)
        list(copy.run((), lambda _, index: PartitionState(index, 1), ticks))
        return ticks


@pytest.fixture
def world(request: pytest.FixtureRequest) -> World:
    TICKED.clear()
    return World(request.param())


@pytest.mark.parametrize("world", [TicksWithState, TicksAtHome], indirect=True)
def test_a_task_whose_copies_remember_as_one_ticks_once_whichever_of_them_runs(world: World) -> None:
    one, other = world.copy(), world.copy()
    world.clock.advance(10.0)
    for batch in ("a", "b", "c"):
        world.run(one if batch == "b" else other, batch)
    assert TICKED == ["a"]


@pytest.mark.parametrize("world", [TicksWithState], indirect=True)
def test_a_task_with_state_ticks_in_each_run_of_a_micro_batch_and_again_if_that_did_not_count(
    world: World,
) -> None:
    one, other = world.copy(), world.copy()
    world.clock.advance(10.0)
    ticks = world.run(one, "a")
    world.run(other, "a", ticks=ticks)
    world.clock.did_not_count(ticks)
    world.run(one, "b")
    world.run(one, "c")
    assert TICKED == ["a", "a", "b"]


@pytest.mark.parametrize("world", [Ticks], indirect=True)
def test_each_copy_of_a_task_without_state_ticks_once_for_its_caches(world: World) -> None:
    one, other = world.copy(), world.copy()
    world.clock.advance(10.0)
    world.run(one, "a")
    world.run(one, "b")
    world.run(other, "c")
    world.run(other, "d")
    assert TICKED == ["a", "c"]
