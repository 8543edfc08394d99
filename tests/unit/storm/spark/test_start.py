"""What is found out before any spout of a topology is started."""

import time
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest

from kinesis_spout import KinesisSpout
from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.storm import (
    Bolt,
    KeyValueState,
    ShellBolt,
    SpoutOutputCollector,
    StatefulBolt,
    TaskContext,
    TopologyBuilder,
)
from kinesis_spout.storm import Tuple as TupleOfBolt
from kinesis_spout.storm.graph.plan import context_of
from kinesis_spout.storm.hosting.shell_settings import ShellSettings
from kinesis_spout.storm.running.program import program_of
from kinesis_spout.storm.spark import start
from tests.support.storm.scripted_topology import Declared, Scripted

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession


class NotToBeOpened(Declared):
    def open(self, conf: Mapping[str, Any], context: TaskContext, collector: SpoutOutputCollector) -> None:
        del conf, context, collector
        raise AssertionError("the topology is refused, so nothing of it may start")


class Counts(StatefulBolt):
    def init_state(self, state: KeyValueState) -> None:
        self.state = state

    def execute(self, tup: TupleOfBolt) -> None:
        self.collector.ack(tup)


class Held:
    """A grouping that has what cannot be pickled."""

    def __init__(self) -> None:
        self._lock = Lock()

    def choose_tasks(self, tasks: Sequence[int], values: Sequence[Any]) -> Sequence[int]:
        del values
        return tasks[:1]


def with_own_spout() -> TopologyBuilder:
    builder = TopologyBuilder()
    builder.set_spout("mine", NotToBeOpened())
    builder.set_bolt("sink", Scripted()).shuffle_grouping("mine")
    return builder


def with_state(builder: TopologyBuilder | None = None) -> TopologyBuilder:
    builder = builder or TopologyBuilder()
    builder.set_spout("lines", KinesisSpout(stream="s", app="a"), fields=["line"])
    builder.set_bolt("count", Counts()).fields_grouping("lines", ["line"])
    return builder


def with_held_grouping() -> TopologyBuilder:
    builder = with_own_spout()
    builder.set_bolt("chosen", Scripted()).custom_grouping("mine", Held())
    return builder


def with_held_conf() -> TopologyBuilder:
    builder = with_own_spout()
    builder.set_bolt("held", Scripted(), conf={"lock": Lock()}).shuffle_grouping("mine")
    return builder


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (
            lambda: with_state(with_own_spout()),
            {"state": "/x"},
            "expected a KinesisSpout, as 'count' keeps state .* got NotToBeOpened",
        ),
        (with_state, {}, "expected the option state, an address for the state of count, got none"),
        (
            with_state,
            {"state": "/x", "ackers": 0},
            "expected trees that are tracked with the state of 'count', got ackers=0",
        ),
        (
            with_state,
            {"state": "/x", "name": "a/b"},
            "the topology's name, .*='a/b' cannot be a name in ZooKeeper",
        ),
        (with_state, {"state": "relative"}, "expected the address of keyed state to be an absolute path"),
        (
            with_held_grouping,
            {},
            "bolt 'chosen', its custom grouping: expected an object that can be pickled",
        ),
        (with_held_conf, {}, "the conf of 'held': expected an object that can be pickled, got TypeError"),
        (
            with_own_spout,
            {"conf": {"lock": Lock()}},
            "the conf of the topology: expected an object that can be",
        ),
    ],
)
def test_what_cannot_run_is_refused_before_any_spout_is_started(
    make: Callable[[], TopologyBuilder],
    options: dict[str, Any],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    context = SimpleNamespace(applicationId="app", defaultParallelism=2)
    monkeypatch.setattr(start, "classic_context", lambda _: context)
    topology = make().build(**options)
    with pytest.raises(InvalidConfig, match=message):
        topology.run(cast("SparkSession", None))


@pytest.mark.parametrize(
    ("bolt", "at_once"), [(ShellBolt(["count"]), 1), (Scripted(), 3)], ids=["shell bolt", "other bolt"]
)
def test_where_a_process_serves_a_bolt_one_micro_batch_runs_at_a_time(bolt: Bolt, at_once: int) -> None:
    builder = TopologyBuilder()
    builder.set_spout("lines", KinesisSpout(stream="s", app="a", max_concurrent_batches=3), fields=["line"])
    builder.set_bolt("read", Scripted()).shuffle_grouping("lines")
    builder.set_bolt("count", bolt).fields_grouping("lines", ["line"])
    topology = builder.build()
    program = program_of(topology, "lines", parallelism=2)

    config = start.config_of(topology, topology.graph["lines"], program)

    assert config.max_concurrent_batches == at_once


@pytest.mark.parametrize(("of_message", "of_job"), [(0.5, 60), (8, 60), (30, 90)])
def test_a_job_may_take_three_message_time_outs_and_as_long_as_workers_may_take_to_start(
    of_message: float, of_job: float
) -> None:
    builder = TopologyBuilder()
    builder.set_spout("lines", KinesisSpout(stream="s", app="a"), fields=["line"])
    builder.set_bolt("read", Scripted()).shuffle_grouping("lines")
    topology = builder.build(message_timeout_seconds=of_message)
    program = program_of(topology, "lines", parallelism=2)

    config = start.config_of(topology, topology.graph["lines"], program)

    assert config.message_timeout_seconds == of_job


def test_the_spouts_of_a_topology_are_one_run_and_each_has_processes_of_its_own() -> None:
    builder = TopologyBuilder()
    bolt = builder.set_bolt("count", ShellBolt(["count"]))
    for name in ("lines", "letters"):
        builder.set_spout(name, KinesisSpout(stream="s", app="a"), fields=["line"])
        bolt.shuffle_grouping(name)
    topology = builder.build()
    context = cast("SparkContext", SimpleNamespace(applicationId="app", defaultParallelism=2))

    programs = start.programs_of(topology, context)

    keys = [
        ShellSettings.key(
            program.conf,
            context_of(
                topology.graph,
                topology.name,
                topology.graph["count"],
                0,
                processing_time=time.time,
                read_to=time.time,
            ),
        )
        for program in programs.values()
    ]
    assert [key.spout for key in keys] == ["lines", "letters"]
    assert keys[0] == msgspec.structs.replace(keys[1], spout="lines")
    assert keys[0].run
