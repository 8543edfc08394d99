"""Which run of a micro-batch counts, and what becomes of its ticks if none does."""

from dataclasses import replace
from time import monotonic
from types import SimpleNamespace
from typing import Any

import pytest

from kinesis_spout.model.errors import HandlerKilledWorker
from kinesis_spout.model.handler import Failure
from kinesis_spout.model.record import Record
from kinesis_spout.spark.tasks.work import WorkResult
from kinesis_spout.storm import KeyValueState, StatefulBolt, TopologyBuilder, Tuple
from kinesis_spout.storm.running.acking import TreeEnd
from kinesis_spout.storm.running.trees import TreeVerdict, verdict_of
from kinesis_spout.storm.spark.job import JobResult
from kinesis_spout.storm.spark.runner import TopologyRunner
from kinesis_spout.storm.spark.stages import StateReport
from kinesis_spout.storm.spark.tree_delivery import FailedTree, FailedTrees, SliceBlock
from kinesis_spout.storm.state.manifest import StateManifest
from shard_state import Position, SliceKind, SliceOutcome, SlicePlan
from tests.support.spark.spark_here import SparkHere
from tests.support.storm.components import Sentences

STORED_AT = 4_000_000_000.0
"""Later than any machine's clock will be for long."""


class Ticks(StatefulBolt):
    tick_seconds = 10.0

    def init_state(self, state: KeyValueState) -> None:
        """It keeps nothing."""

    def execute(self, tup: Tuple) -> None:
        """It does nothing."""


@pytest.fixture
def runner() -> TopologyRunner:
    """A runner whose jobs find nothing, and whose state is stored whenever a micro-batch is whole."""
    builder = TopologyBuilder()
    builder.set_spout("words", Sentences())
    builder.set_bolt("ticks", Ticks()).fields_grouping("words", ["sentence"])
    program = builder.build("ticking", state="/nowhere")._programs(1)["words"]
    settings: Any = SimpleNamespace(of_one_task=lambda _: None)
    state: Any = SimpleNamespace(
        address="/nowhere",
        begin=lambda: StateManifest(topology="ticking", life="1", time=STORED_AT),
        settled=lambda *_: True,
    )
    made: Any = TopologyRunner(SparkHere(), settings, program=program, to_values=str, state=state)
    made._jobs.run = lambda *_, **__: JobResult.of([], verdict_of([]))
    made.ticks.advance(monotonic() + 10)
    return made  # type: ignore[no-any-return]


def test_they_come_with_the_next_one_when_the_job_dies(
    runner: TopologyRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(*_: object, **__: object) -> None:
        raise HandlerKilledWorker("an executor was lost")

    monkeypatch.setattr(runner._jobs, "run", dies)
    with pytest.raises(HandlerKilledWorker):
        runner.run("a", [])
    assert runner.ticks.ticks("b").new == {"ticks"}


@pytest.mark.parametrize(("is_whole", "again"), [(True, set()), (False, {"ticks"})])
def test_they_come_with_the_next_one_unless_its_state_is_taken_in(
    runner: TopologyRunner, *, is_whole: bool, again: set[str]
) -> None:
    runner.run("a", [])
    assert runner.settled("a", is_whole=is_whole) is is_whole
    assert runner.ticks.ticks("b").new == again


def test_processing_time_goes_on_where_it_was_when_the_state_was_stored(runner: TopologyRunner) -> None:
    runner.run("a", [])
    stored: list[float] = []
    state: Any = runner._state

    def settled(*changes: Any) -> bool:
        stored.append(changes[2])
        return True

    state.settled = settled

    runner.settled("a", is_whole=True)

    assert STORED_AT <= stored[0] < STORED_AT + 60


@pytest.mark.parametrize(
    ("changes", "is_again"),
    [
        ({}, False),
        ({"do_changes_count": False}, True),
        ({"is_cut": True}, True),
        ({"verdict": TreeVerdict({}, frozenset(range(10_000)), has_touched=False)}, False),
        ({"verdict": TreeVerdict({}, frozenset(range(10_001)), has_touched=False)}, True),
    ],
)
def test_a_micro_batch_runs_carefully_where_what_it_changed_at_once_must_not_count(
    runner: TopologyRunner, changes: dict[str, Any], *, is_again: bool
) -> None:
    ran: list[bool] = []
    jobs: Any = runner._jobs

    def run(*_: object, carefully: bool, **__: object) -> JobResult:
        ran.append(carefully)
        nothing = JobResult.of([], verdict_of([]))
        return nothing if carefully else replace(nothing, **changes)

    jobs.run = run
    runner.run("a", [])
    assert ran == ([False, True] if is_again else [False])


def test_a_slice_of_which_more_fail_than_can_be_kept_is_cut_and_what_cannot_be_kept_does_not_count() -> None:
    records = [
        Record(data=b"", sequence_number=str(at), partition_key="", shard_id="shard") for at in range(1, 4)
    ]
    plan = SlicePlan(
        kind=SliceKind.READ,
        shard_id="shard",
        epoch=1,
        position=Position.trim_horizon(),
        limit=9,
        max_failures=1,
    )
    outcome = SliceOutcome(first=records[0].sequence, last=records[2].sequence, count=3)
    block = SliceBlock(batch=5, result=WorkResult(plan=plan, outcome=outcome))
    end = TreeEnd(component="bolt", failure=Failure(error_text="no"))
    failed = [FailedTree(index=at, record=records[at], previous=None, end=end) for at in range(2)]
    nothing = verdict_of([])

    one = JobResult.of([block, FailedTrees(batch=5, failed=tuple(failed[:1]))], nothing)
    both = JobResult.of([block, FailedTrees(batch=5, failed=tuple(failed))], nothing)
    unfit = JobResult.of([StateReport(), StateReport(is_fit=False)], nothing)

    assert [(found.is_cut, found.do_changes_count) for found in (one, both, unfit)] == [
        (False, True),
        (True, True),
        (False, False),
    ]
    assert [len(found.slices[0].outcome.failures) for found in (one, both)] == [1, 1]
