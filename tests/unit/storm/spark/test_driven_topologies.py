"""Topologies as the driver runs them, with everything around them but Spark and the real ZooKeeper."""

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from kinesis_spout import KinesisSpout
from kinesis_spout.consumer.ports import Ports
from kinesis_spout.kinesis.pace import ShardPaces
from kinesis_spout.model.clock import SystemClock
from kinesis_spout.settings import SpoutConfig
from kinesis_spout.spark.driver import query as driver_query
from kinesis_spout.storm import (
    BasicBolt,
    Bolt,
    Count,
    FailedException,
    KeyValueState,
    OutputCollector,
    Seconds,
    Spout,
    StatefulBolt,
    TaskContext,
    TopologyBuilder,
    Tuple,
    Window,
    WindowedBolt,
)
from kinesis_spout.storm.spark import kept_runs
from kinesis_spout.storm.spark.topology_query import TopologyQuery
from kinesis_spout.storm.state.files import StateFiles
from kinesis_spout.storm.state.manifest import StateManifest
from kinesis_spout.storm.state.partition import StatePartition
from kinesis_spout.testing import InMemoryShardGetter, InMemoryShardLister
from shard_state import Position
from tests.support.spark.spark_here import SparkHere
from tests.support.storm.components import TimedKeys
from tests.support.waiting import wait_until
from tests.unit.spark.driver.world import EngineWorld, task_settings

WINDOWS: list[tuple[Any, ...]] = []
"""The windows that were executed. Here, as bolts are copies."""
FAILURES_LEFT: list[int] = []
"""One for each time that ``FailsAtFirst`` still fails. Here, as bolts are copies."""
COUNTED: list[list[str]] = []
"""Of each run of a micro-batch that brought any: the words that came to be counted."""
TICKS: list[tuple[str, int]] = []
"""The ticks that came to each bolt and task."""


class NotedWindows(WindowedBolt):
    length = Seconds(0.1)
    tick_seconds = 0.1

    def time_of(self, tup: Tuple) -> float:
        moment: float = tup["time"]
        return moment

    def execute_window(self, key: Any, window: Window) -> None:
        WINDOWS.append((key, *(values["time"] for values in window.tuples)))


class EmitsKeys(WindowedBolt):
    def __init__(self, length: Seconds | Count) -> None:
        self.length = length
        self.tick_seconds = 0.05 if isinstance(length, Seconds) else None

    def declare_output_fields(self) -> list[str]:
        return ["key"]

    def execute_window(self, key: Any, window: Window) -> None:
        del window
        self.emit([key])


class FailsAtFirst(BasicBolt):
    def process(self, tup: Tuple) -> None:
        if FAILURES_LEFT:
            FAILURES_LEFT.pop()
            raise FailedException("not yet")
        WINDOWS.append((tup["key"],))


class ByDefault(WindowedBolt):
    length = Seconds(0.1)

    def execute_window(self, key: Any, window: Window) -> None:
        WINDOWS.append((key, *(values["time"] for values in window.tuples)))


class Words(BasicBolt):
    def declare_output_fields(self) -> list[str]:
        return ["word"]

    def process(self, tup: Tuple) -> None:
        self.emit([tup["sentence"]])


class FailsLater(StatefulBolt):
    """Counts words. Fickle ones fail when it is flushed, long after they are counted."""

    def init_state(self, state: KeyValueState) -> None:
        self._state = state
        self._fickle: list[Tuple] = []
        self._words: list[str] = []

    def execute(self, tup: Tuple) -> None:
        word = tup["word"]
        if not self._words:
            COUNTED.append(self._words)
        self._words.append(word)
        self._state.put(word, self._state.get(word, 0) + 1)
        if word.startswith("fickle"):
            self._fickle.append(tup)
        else:
            self.collector.ack(tup)

    def flush(self) -> None:
        for tup in self._fickle:
            self.collector.fail(tup, "fickle")


class Silent(Spout):
    """Has nothing to emit."""

    def declare_output_fields(self) -> list[str]:
        return ["word"]

    def next_tuple(self) -> None:
        """There is none."""


class NotesTicks(Bolt):
    """Never gets a tuple."""

    tick_seconds = 0.1

    def __init__(self, name: str) -> None:
        self._name = name

    def prepare(self, conf: Mapping[str, Any], context: TaskContext, collector: OutputCollector) -> None:
        super().prepare(conf, context, collector)
        self._index = context.index

    def execute(self, tup: Tuple) -> None:
        assert tup.is_tick
        TICKS.append((self._name, self._index))


class World(EngineWorld):
    """Mutable. Runs topologies with state at an address, until it is closed."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self.spark = SparkHere()
        self._address = address
        self._started: list[TopologyQuery] = []

    def spout(self, **settings: Any) -> KinesisSpout:
        process = self.zookeeper.process(f"member-{len(self._started)}")

        def open_getter(shard_id: str, position: Position) -> InMemoryShardGetter:
            return InMemoryShardGetter(self.stream, shard_id, position)

        ports = Ports(
            lister=InMemoryShardLister(self.stream),
            open_getter=open_getter,
            store=process.store,
            coordinator=process.coordinator,
            group=process.group,
            dead_letters=self.dead_letters,
            paces=ShardPaces(SystemClock()),
        )
        config = SpoutConfig.of(
            **{
                "stream": "orders",
                "app": "billing",
                "initial_position": "trim_horizon",
                "retry_backoff_seconds": 0.01,
                "max_spared_seconds": 0,
                "retry_jitter": 0.0,
                "commit_interval_seconds": 0.02,
                "poll_interval_seconds": 0.2,
                "idle_poll_interval_seconds": 0.2,
                "shard_list_interval_seconds": 0.2,
                **settings,
            }
        )
        return KinesisSpout(config=config, ports=ports, scheme="text")

    def run(
        self,
        first: BasicBolt,
        second: StatefulBolt,
        by: str,
        third: BasicBolt | None = None,
        *,
        guarantee: str = "exactly_once",
        tasks: int = 1,
        **settings: Any,
    ) -> TopologyQuery:
        builder = TopologyBuilder()
        builder.set_spout("lines", self.spout(**settings), fields=["sentence"])
        builder.set_bolt("first", first).shuffle_grouping("lines")
        builder.set_bolt("second", second, tasks).fields_grouping("first", [by])
        if third is not None:
            builder.set_bolt("third", third, 2).fields_grouping("second", [by])
        built = builder.build("driven", state=self._address, state_guarantee=guarantee)
        query = built.run(self.spark.session)
        self._started.append(query)
        return query

    def state(self) -> dict[Any, Any]:
        """Read what is committed of the second bolt."""
        with self.zookeeper.lock:
            manifest = StateManifest.decode(self.zookeeper.attached["driven"].data)
        part = StatePartition(StateFiles(self._address), manifest.place("second", 0))
        part.load(manifest.files("second", 0))
        return dict(part.state.items())

    def close(self) -> None:
        for query in self._started:
            query.stop()
        super().close()


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    world = World(str(tmp_path / "state"))
    in_memory = task_settings(world.client).client
    monkeypatch.setattr(driver_query, "client_settings", lambda _: in_memory)
    WINDOWS.clear()
    COUNTED.clear()
    TICKS.clear()
    yield world
    world.close()
    kept_runs._kept.clear()


def test_the_windows_of_an_idle_stream_are_closed_by_the_wall_clock_and_that_is_committed(
    world: World,
) -> None:
    moment = time.time()
    [record] = world.put(f"a {moment}")
    query = world.run(TimedKeys(), NotedWindows(), "key")
    wait_until(lambda: [("a", moment)] == WINDOWS, "its window is executed, although nothing comes any more")
    world.until_stored(record)
    wait_until(lambda: world.state() == {}, "the closed window is forgotten, and that is stored")
    assert world.stored().base == record.sequence
    assert query.spouts["lines"].counters.delivered == 1


def test_the_windows_of_an_idle_stream_are_closed_without_any_setting(world: World) -> None:
    world.put("a 1")
    world.run(TimedKeys(), ByDefault(), "key")
    wait_until(lambda: WINDOWS == [("a", 1.0)], "its window is executed, although nothing comes any more")


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
@pytest.mark.parametrize("length", [Seconds(0.1), Count(1)])
def test_what_comes_of_a_window_is_emitted_again_until_it_is_done_also_while_nothing_comes(
    world: World, length: Seconds | Count, guarantee: str
) -> None:
    FAILURES_LEFT[:] = [1, 1]
    [record] = world.put("a 1")
    query = world.run(TimedKeys(), EmitsKeys(length), "key", FailsAtFirst(), guarantee=guarantee)
    wait_until(lambda: WINDOWS == [("a",)], "the sink has taken it")
    assert FAILURES_LEFT == []
    world.until_stored(record)
    assert query.spouts["lines"].counters.delivered == 1
    assert query.components["second"].last_error.startswith("ResultFails: 1 tuples that it emitted")
    wait_until(lambda: world.state() == {}, "nothing is left")


def test_what_waits_to_be_emitted_again_outlives_a_restart_with_other_tasks(world: World) -> None:
    FAILURES_LEFT[:] = [1] * 1_000
    records = world.put("a 1", "b 1", "c 1")
    with world.run(TimedKeys(), EmitsKeys(Count(1)), "key", FailsAtFirst()) as query:
        world.until_stored(records[-1])
        query.stop()
    kept_runs._kept.clear()  # The workers of before are gone, too.
    FAILURES_LEFT.clear()

    with world.run(TimedKeys(), EmitsKeys(Count(1)), "key", FailsAtFirst(), tasks=3) as query:
        wait_until(lambda: sorted(WINDOWS) == [("a",), ("b",), ("c",)], "all were taken")
    assert query.spouts["lines"].counters.delivered == 0


def test_windows_that_a_restart_finds_open_are_closed_without_another_record(world: World) -> None:
    moment = time.time() + 2
    [record] = world.put(f"a {moment}")
    with world.run(TimedKeys(), NotedWindows(), "key") as query:
        query.processAllAvailable()
    assert world.stored().base == record.sequence
    kept_runs._kept.clear()  # The workers of before are gone, too.

    with world.run(TimedKeys(), NotedWindows(), "key") as query:
        wait_until(lambda: [("a", moment)] == WINDOWS, "the window is executed")
    assert query.spouts["lines"].counters.delivered == 0


def test_after_failures_behind_state_a_micro_batch_is_run_carefully_and_only_what_fails_is_undone(
    world: World,
) -> None:
    fickle = [f"fickle-{number}" for number in range(12)]
    world.put("steady-1", *fickle, "steady-2")
    with world.run(Words(), FailsLater(), "word", retry_limit=1) as query:
        query.processAllAvailable()
        assert query.exception() is None

    sizes = [len(words) for words in COUNTED]
    assert sizes == [14, 14, 12], "at once in vain, then carefully; and those that failed once more"
    assert world.state() == {"steady-1": 1, "steady-2": 1}
    letters = {letter.data.decode(): letter.error for letter in world.dead_letters.letters}
    assert letters == dict.fromkeys(fickle, "second: fickle")


def test_bolts_of_every_spout_tick_while_it_has_nothing_to_emit_and_only_as_often_as_they_want(
    world: World,
) -> None:
    builder = TopologyBuilder()
    builder.set_spout("left", Silent())
    builder.set_spout("right", Silent())
    builder.set_spout("untimed", Silent())
    builder.set_bolt("of both", NotesTicks("of both"), 2).fields_grouping("left", ["word"]).fields_grouping(
        "right", ["word"]
    )
    builder.set_bolt("fused", NotesTicks("fused")).shuffle_grouping("left")
    builder.set_bolt("idle", Words()).shuffle_grouping("untimed")

    def jobs_of() -> Counter[str]:
        return Counter(job.split("-")[1] for job in list(world.spark.jobs))

    began = time.monotonic()
    with builder.build("ticking").run(world.spark.session):
        wait_until(lambda: min(jobs_of()["right"], jobs_of()["left"]) >= 3, "each has ticked several times")
    jobs = jobs_of()

    assert set(jobs) == {"left", "right"}
    assert jobs["left"] <= (time.monotonic() - began) / NotesTicks.tick_seconds
    assert Counter(TICKS) == {
        ("of both", 0): jobs.total(),
        ("of both", 1): jobs.total(),
        ("fused", 0): jobs["left"],
    }
