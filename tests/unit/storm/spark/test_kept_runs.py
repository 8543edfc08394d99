"""Which bolts a Python worker goes on with, and which ones it begins anew."""

import gc
import pickle
from collections.abc import Iterator

import pytest

from kinesis_spout.storm import Bolt, KeyValueState, StatefulBolt, TopologyBuilder, Tuple
from kinesis_spout.storm.running.blocks import StageReport, TupleBlock
from kinesis_spout.storm.spark import kept_runs
from kinesis_spout.storm.spark.kept_runs import KeptRun, ShippedProgram
from kinesis_spout.storm.state.key_values import PartitionState
from kinesis_spout.testing import ManualClock
from tests.support.storm.components import Sentences

cleaned_up: list[int] = []
"""Tasks, by their bolts' cleanup."""


class Cleaned(Bolt):
    """Tells when it ends."""

    def execute(self, tup: Tuple) -> None:
        self.collector.ack(tup)

    def cleanup(self) -> None:
        cleaned_up.append(1)


class Keeps(StatefulBolt):
    """Keeps what comes."""

    def init_state(self, state: KeyValueState) -> None:
        self.state = state

    def execute(self, tup: Tuple) -> None:
        self.state.put(tup[0], True)
        self.collector.ack(tup)


@pytest.fixture(autouse=True)
def empty_worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    kept_runs._kept.clear()
    cleaned_up.clear()
    monkeypatch.setattr(kept_runs, "_MOST_KEPT", 3)
    yield
    kept_runs._kept.clear()


def shipped() -> ShippedProgram:
    """Give a program as an executor gets it."""
    builder = TopologyBuilder()
    builder.set_spout("sentences", Sentences())
    builder.set_bolt("end", Cleaned()).shuffle_grouping("sentences")
    program = builder.build("words")._programs(1)["sentences"]
    arrived: ShippedProgram = pickle.loads(pickle.dumps(ShippedProgram(program, None)))
    return arrived


def used(program: ShippedProgram, partition: int = 0) -> KeptRun:
    with program.stage(0, partition) as kept:
        return kept


def test_the_next_task_of_a_partition_goes_on_with_the_same_bolts() -> None:
    program = shipped()
    again: ShippedProgram = pickle.loads(pickle.dumps(program))
    assert used(program).run is used(again).run


def test_a_run_that_rests_keeps_nothing_of_the_micro_batch_that_it_has_ended() -> None:
    builder = TopologyBuilder()
    builder.set_spout("words", Sentences())
    builder.set_bolt("keep", Keeps()).fields_grouping("words", ["sentence"])
    program = builder.build("words", state="/nowhere")._programs(1)["words"]
    with ShippedProgram(program, None).stage(0, 0) as first:
        first.run.begin()
        for number in range(10):
            first.run.emit_root((f"word {number}",), number + 1)
        first.run.finish()
        (block,) = [each for _, each in first.run.outbox.take() if isinstance(each, TupleBlock)]
    with ShippedProgram(program, None).stage(1, 0) as second:
        reports = list(second.run.run([(0, block)], lambda _, index: PartitionState(index, 1)))
        assert (
            sum(len(each.touched) for _, each in reports if isinstance(each, StageReport)) == 10 * 8
        )  # bytes

    assert second.run.trees.touched == set()
    assert [each for each in gc.get_referrers(block) if type(each) is list] == []


def test_other_partitions_and_other_starts_of_a_topology_have_bolts_of_their_own() -> None:
    program = shipped()
    runs = {id(used(program, 0).run), id(used(program, 1).run), id(used(shipped(), 0).run)}
    assert len(runs) == 3


def test_after_a_micro_batch_that_failed_the_bolts_are_cleaned_up_and_made_anew() -> None:
    program = shipped()
    before = used(program)
    with pytest.raises(OSError, match="amid"), program.stage(0, 0):
        raise OSError("amid the micro-batch")
    assert cleaned_up == [1]
    assert used(program).run is not before.run


def test_one_that_was_not_used_for_long_is_given_up_when_a_task_of_another_topology_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = ManualClock()
    monkeypatch.setattr(kept_runs, "monotonic", clock.monotonic)
    stopped, going_on = shipped(), shipped()
    used(stopped)
    for _ in range(3):
        assert cleaned_up == []
        clock.advance(kept_runs._IDLE_SECONDS / 2.5)
        used(going_on)

    assert cleaned_up == [1]
    assert len(kept_runs._kept) == 1


def test_of_too_many_the_one_is_given_up_that_was_used_longest_ago() -> None:
    program = shipped()
    first, second, third = (used(program, partition) for partition in range(3))
    assert used(program, 0).run is first.run

    used(program, 3)

    assert cleaned_up == [1]
    assert used(program, 0).run is first.run
    assert used(program, 2).run is third.run
    assert used(program, 1).run is not second.run
