"""A spout of the user's own: what it is given, what it may emit, and what is counted of it. No job is run."""

import logging
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from typing import Any

import pytest

from kinesis_spout.model.errors import HandlerKilledWorker, InvalidConfig
from kinesis_spout.storm import SpoutOutputCollector, Stream, TaskContext, TopologyBuilder
from kinesis_spout.storm.graph.plan import context_of
from kinesis_spout.storm.running.blocks import StageReport
from kinesis_spout.storm.running.counts import ComponentCounts
from kinesis_spout.storm.spark import own_spout
from kinesis_spout.storm.spark.job import TopologyJobs
from kinesis_spout.storm.spark.own_spout import GatheringCollector, OwnSpoutQuery, SpoutHangs
from kinesis_spout.testing import ManualClock
from tests.support.spark.spark_here import SparkHere
from tests.support.storm.scripted_topology import Declared, Scripted, UnloadableError, acks
from tests.support.waiting import wait_until


class Silent(Declared):
    """Emits nothing; reports a metric when it is opened."""

    def open(self, conf: Mapping[str, Any], context: TaskContext, collector: SpoutOutputCollector) -> None:
        super().open(conf, context, collector)
        self.conf = conf
        collector.report_metric("opened", 1)

    def next_tuple(self) -> None:
        pass


class EmitsUnfit(Silent):
    """Emits two values that can travel and three that cannot, the last of them without an id."""

    def __init__(self) -> None:
        super().__init__()
        self.acked: list[int] = []
        self.failed: dict[int, str] = {}
        self.remaining: list[tuple[object, int | None]] = [
            (lambda: "travels, as functions do", 0),
            (Lock(), 1),
            (UnloadableError(4, "no"), 2),
        ]
        self.remaining += [("b", 3), ([Lock()], None)]

    def open(self, conf: Mapping[str, Any], context: TaskContext, collector: SpoutOutputCollector) -> None:
        super().open(conf, context, collector)
        self.collector = collector

    def next_tuple(self) -> None:
        if self.remaining:
            value, message_id = self.remaining.pop(0)
            self.collector.emit((value,), message_id)

    def ack(self, message_id: int) -> None:
        self.acked.append(message_id)

    def fail(self, message_id: int, reason: str) -> None:
        self.failed[message_id] = reason


class EmitsOne(Silent):
    """Emits one value; keeps why it failed or timed out."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: list[tuple[str, int, str]] = []
        self.emitted = False

    def open(self, conf: Mapping[str, Any], context: TaskContext, collector: SpoutOutputCollector) -> None:
        super().open(conf, context, collector)
        self.collector = collector

    def next_tuple(self) -> None:
        if not self.emitted:
            self.emitted = True
            self.collector.emit(("a",), 1)

    def fail(self, message_id: int, reason: str) -> None:
        self.ends.append(("failed", message_id, reason))

    def timed_out(self, message_id: int, reason: str) -> None:
        self.ends.append(("timed out", message_id, reason))


class DyingJobs:
    """Lets no job end by itself: each waits until it is cancelled, and then says what Spark says. Mutable."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.running, self.cancelled = threading.Event(), threading.Event()
        self.has_begun = threading.Event()
        self.has_begun.set()
        self.asked = 0
        monkeypatch.setattr(own_spout, "cancel", lambda *_: self.cancelled.set())
        monkeypatch.setattr(own_spout, "has_begun", self._asked)
        monkeypatch.setattr(own_spout, "_LOOK_SECONDS", 0.01)
        monkeypatch.setattr(own_spout, "_JOIN_SECONDS", 0.05)
        monkeypatch.setattr(TopologyJobs, "run", self._run)

    def _asked(self, *_: object) -> bool:
        self.asked += 1
        return self.has_begun.is_set()

    def _run(self, *_: object, **_by_name: object) -> None:
        self.running.set()
        assert self.cancelled.wait(120)
        raise HandlerKilledWorker(
            "the Spark job died: org.apache.spark.SparkException: [SPARK_JOB_CANCELLED] Job 3 cancelled as part "
            "of cancellation of tag"
        )


class EmitsSlowly(Silent):
    """Takes some time for each value; emits nothing more after some."""

    def __init__(self, clock: ManualClock, seconds: float, values: int) -> None:
        super().__init__()
        self.clock, self.seconds, self.remaining = clock, seconds, values

    def next_tuple(self) -> None:
        if self.remaining:
            self.remaining -= 1
            self.clock.advance(self.seconds)
            self.collector.emit((self.remaining,), self.remaining)


class NeverReturns(Silent):
    """Emits one message after the other in its first call, as they come."""

    def __init__(self) -> None:
        super().__init__()
        self.next_message, self.called, self.closed = (
            threading.Semaphore(),
            threading.Event(),
            threading.Event(),
        )

    def next_tuple(self) -> None:
        while self.next_message.acquire():
            self.collector.emit(("message",), 1)
            self.called.set()

    def close(self) -> None:
        self.closed.set()


class EmitsAtOnce(Silent):
    """Emits five tuples in its first call."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[int] = []
        self.remaining: list[int | None] = [0, 1, None, 3, 4]

    def next_tuple(self) -> None:
        remaining, self.remaining = self.remaining, []
        for message_id in remaining:
            self.collector.emit((message_id,), message_id)

    def ack(self, message_id: int) -> None:
        self.told.append(message_id)


def two_stages(spout: Declared, **conf: Any) -> TopologyBuilder:
    builder = TopologyBuilder()
    builder.set_spout("mine", spout, conf=conf)
    builder.set_bolt("sink", Scripted(acks), 2).fields_grouping("mine", ["value"])
    return builder


def one_stage(spout: Declared) -> TopologyBuilder:
    builder = TopologyBuilder()
    builder.set_spout("mine", spout)
    builder.set_bolt("sink", Scripted(acks), 2).shuffle_grouping("mine")
    return builder


class Ticks(Scripted):
    tick_seconds = 0.01


def ticking(spout: Declared) -> TopologyBuilder:
    builder = TopologyBuilder()
    builder.set_spout("mine", spout)
    builder.set_bolt("sink", Ticks()).shuffle_grouping("mine")
    return builder


@contextmanager
def running(
    spout: Declared,
    make: Callable[..., TopologyBuilder] = two_stages,
    *,
    max_pending: int = 10,
    job_timeout_seconds: float = 10.0,
    clock: Callable[[], float] = time.monotonic,
    **conf: Any,
) -> Iterator[OwnSpoutQuery]:
    topology = make(spout, **conf).build(conf={"colour": "red", "size": 1})
    query = OwnSpoutQuery(
        spout,
        context_of(
            topology.graph,
            topology.name,
            topology.graph["mine"],
            0,
            processing_time=time.time,
            read_to=time.time,
        ),
        SparkHere(),
        program=topology._programs(2)["mine"],
        streams=dict(topology.graph["mine"].streams),
        max_pending=max_pending,
        job_timeout_seconds=job_timeout_seconds,
        name="query",
        clock=clock,
    )
    query.start()
    try:
        yield query
    finally:
        query.stop()


def test_a_spout_is_opened_with_its_own_conf_over_that_of_the_topology() -> None:
    spout = Silent()
    with running(spout, colour="blue"):
        assert (spout.conf["colour"], spout.conf["size"]) == ("blue", 1)
        assert spout.conf["topology.name"] == "topology"


def test_what_a_spout_reports_counts_once_however_often_it_is_asked_for() -> None:
    with running(Silent()) as query:
        query._jobs._take_in([StageReport(counts={"mine": ComponentCounts(emitted=5)})])
        for _ in range(3):
            counts = query.counts["mine"]
            assert (counts.emitted, counts.metrics["opened"].count) == (5, 1)


def test_a_value_that_cannot_travel_fails_its_tuple_alone_or_is_reported_where_it_has_no_id() -> None:
    spout = EmitsUnfit()
    with running(spout, one_stage) as query:
        query.processAllAvailable()
        counts = query.counts["mine"]

    assert spout.acked == [0, 3]
    assert list(spout.failed) == [1, 2]
    for reason, kind in zip(spout.failed.values(), ["lock", "UnloadableError"], strict=True):
        assert reason.startswith(
            "mine: stream 'default', field 'value': expected a value that can be pickled"
        )
        assert f"got {kind}" in reason
    assert (counts.emitted, counts.acked, counts.failed, counts.errors) == (5, 2, 2, 3)
    assert "stream 'default', field 'value'" in counts.last_error
    assert "got list" in counts.last_error


def test_no_more_are_pending_than_may_be_however_many_a_spout_emits_in_one_call() -> None:
    spout = EmitsAtOnce()
    with running(spout, one_stage, max_pending=2) as query:
        query.processAllAvailable()
        batches = [progress["numInputRows"] for progress in query.recentProgress]

    assert batches == [2, 2, 1]
    assert spout.told == [0, 1, 3, 4]


@pytest.mark.parametrize(("seconds", "batches"), [(0.1, [1, 1, 1, 1, 1, 1]), (0.02, [3, 3]), (0.001, [6])])
def test_tuples_of_a_spout_that_makes_them_slowly_are_gathered_for_a_moment_only(
    seconds: float, batches: list[int]
) -> None:
    clock = ManualClock()
    with running(
        EmitsSlowly(clock, seconds, 6), one_stage, max_pending=1_000, clock=clock.monotonic
    ) as query:
        query.processAllAvailable()
        found = [progress["numInputRows"] for progress in query.recentProgress]

    assert found == batches


def test_a_micro_batch_for_ticks_alone_is_in_the_progress_without_rows() -> None:
    with running(Silent(), ticking) as query:
        wait_until(lambda: len(query.recentProgress) >= 2, "two ticks have come")
        first, second = query.recentProgress[:2]

    assert (first["numInputRows"], second["numInputRows"]) == (0, 0)
    assert first["batchId"] < second["batchId"]


def test_a_spout_that_does_not_return_is_named_and_a_stop_ends_the_query_at_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock, spout = ManualClock(), NeverReturns()
    said = (
        r"spout 'mine' has not returned from next_tuple for 30 s \(timeout_seconds\), it is at \S+:\d+, in \w+; "
        r"what it has emitted meanwhile waits for that \(tuples: 1\): expected calls that do not block"
    )
    with caplog.at_level(logging.WARNING), running(spout, clock=clock.monotonic) as query:
        assert spout.called.wait(30)
        assert query.status["message"] == "Waiting for tuples"
        assert caplog.messages == []
        clock.advance(31)
        wait_until(lambda: caplog.messages, "the hanging call is named")
        assert re.match(said, caplog.messages[0])
        assert __file__ in caplog.messages[0]
        assert re.match(said, query.status["message"])
        with pytest.raises(SpoutHangs, match=said):
            query.stop()
        assert not query.isActive
        with pytest.raises(SpoutHangs, match=said):
            query.awaitTermination(30)
        spout.next_message.release()
        assert spout.closed.wait(30)
        query.stop()
    assert len(caplog.messages) == 1


def test_a_tuple_whose_job_took_too_long_is_told_so_in_plain_words(monkeypatch: pytest.MonkeyPatch) -> None:
    DyingJobs(monkeypatch)
    spout = EmitsOne()
    with running(spout, job_timeout_seconds=0.1) as query:
        query.processAllAvailable()
    reason = "timed out: the micro-batch's job had not ended after 0.1 s, and was cancelled"
    assert spout.ends == [("timed out", 1, reason)]


def test_a_job_that_waits_for_its_turn_is_not_cancelled_however_long_that_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jobs, spout, clock = DyingJobs(monkeypatch), EmitsOne(), ManualClock()
    jobs.has_begun.clear()
    with running(spout, job_timeout_seconds=10, clock=clock.monotonic) as query:
        assert jobs.running.wait(30)
        clock.advance(60)
        asked = jobs.asked
        wait_until(lambda: jobs.asked > asked + 2, "it is looked after")
        assert not jobs.cancelled.is_set()
        jobs.has_begun.set()
        asked = jobs.asked
        wait_until(lambda: jobs.asked > asked, "it was seen to run")

        def is_cancelled() -> bool:
            clock.advance(11)
            return jobs.cancelled.is_set()

        wait_until(is_cancelled, "it is cancelled")
        query.processAllAvailable()
    assert spout.ends[0][0] == "timed out"


def test_a_tuple_whose_job_is_cancelled_by_the_stop_is_told_so_in_plain_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jobs, spout = DyingJobs(monkeypatch), EmitsOne()
    with running(spout):
        assert jobs.running.wait(120)
    assert spout.ends == [
        ("timed out", 1, "timed out: the topology was stopped before the micro-batch had ended")
    ]


def test_a_tuple_whose_job_somebody_cancels_on_spark_is_told_so_in_plain_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jobs, spout = DyingJobs(monkeypatch), EmitsOne()
    jobs.cancelled.set()
    with running(spout) as query:
        query.processAllAvailable()
    assert spout.ends == [("timed out", 1, "timed out: somebody cancelled the micro-batch's job on Spark")]


def test_a_spout_may_use_its_list_again_once_it_is_emitted() -> None:
    collector = GatheringCollector("lines", {"default": Stream(("line",))})
    row = [0]
    for number in range(2):
        row[0] = number
        collector.emit(row, message_id=number)
    assert collector.gathered == [([0], 0, "default"), ([1], 1, "default")]


@pytest.mark.parametrize("values", ["a", {"value": 1}, {1}, 5, (each for each in "a"), (1, 2)])
def test_values_that_are_no_tuple_of_the_stream_are_refused_when_they_are_emitted(values: Any) -> None:
    collector = GatheringCollector("mine", {"default": Stream(("value",))})
    with pytest.raises(InvalidConfig, match="spout 'mine', stream 'default': expected "):
        collector.emit(values, 1)
    assert collector.gathered == []


class EmitsWhatCannotBeGrouped(EmitsAtOnce):
    def __init__(self) -> None:
        super().__init__()
        self.failed: list[tuple[int, str]] = []

    def next_tuple(self) -> None:
        remaining, self.remaining = self.remaining, []
        for message_id in remaining:
            self.collector.emit(([] if message_id == 1 else message_id,), message_id)

    def fail(self, message_id: int, reason: str) -> None:
        self.failed.append((message_id, reason))


def test_a_tuple_that_cannot_be_grouped_fails_and_the_others_go_on() -> None:
    spout = EmitsWhatCannotBeGrouped()
    with running(spout) as query:
        query.processAllAvailable()
        errors = query.counts["mine"].errors
    assert spout.told == [0, 3, 4]
    [(message_id, reason)] = spout.failed
    assert message_id == 1
    assert reason.startswith("mine: InvalidConfig: expected to group by str, bytes")
    assert errors == 1
