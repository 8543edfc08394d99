"""What becomes of the ticks of a micro-batch whose state does not count."""

from time import monotonic
from types import SimpleNamespace
from typing import Any

import pytest

from kinesis_spout.model.errors import HandlerKilledWorker
from kinesis_spout.storm import KeyValueState, StatefulBolt, TopologyBuilder, Tuple
from kinesis_spout.storm.running.trees import verdict_of
from kinesis_spout.storm.spark.job import JobResult
from kinesis_spout.storm.spark.runner import TopologyRunner
from kinesis_spout.storm.state.manifest import StateManifest
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
