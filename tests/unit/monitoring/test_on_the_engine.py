"""What micro-batches answer to probes: a red answer where something stands still, and none where nothing does."""

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kinesis_spout.model.errors import Unavailable
from kinesis_spout.model.record import Record
from kinesis_spout.monitoring import MonitoringServer
from kinesis_spout.monitoring import server as server_module
from kinesis_spout.monitoring.readings import Sources
from kinesis_spout.monitoring.server import Awake
from kinesis_spout.ports import Page, ShardGetter
from kinesis_spout.testing import InMemoryShardGetter, ManualClock
from shard_state import Position
from tests.support.probes import get, reasons
from tests.support.process_clock import ProcessClock
from tests.support.waiting import wait_until
from tests.unit.spark.driver.world import FIRST, SECOND, Diary, EngineWorld, RunningQuery

QUICK: dict[str, Any] = {"stalled_after_seconds": 0.6}
ANY = "127.0.0.1:0"


@contextmanager
def engine_world(shards: int) -> Iterator[EngineWorld]:
    """A world in which nothing stands still because the machine is busy."""
    with ProcessClock() as clock:
        made = EngineWorld(shards, clock)
        try:
            yield made
        finally:
            made.close()


@pytest.fixture
def world() -> Iterator[EngineWorld]:
    with engine_world(shards=2) as made:
        yield made


def passes(world: EngineWorld, seconds: float) -> None:
    """Let so much of the world's time pass."""
    until = world.clock.monotonic() + seconds
    wait_until(lambda: world.clock.monotonic() > until, f"{seconds:g} s have passed")


class Faults:
    """Of the driver's reads, by shard. Mutable."""

    def __init__(self, world: EngineWorld) -> None:
        self.failing: set[str] = set()
        self.hanging: set[str] = set()
        self.goes_on = threading.Event()
        """Set to let reads that hang go on."""
        self._stream = world.stream
        world.fresh_getter = self._open

    def _open(self, shard_id: str, position: Position) -> ShardGetter:
        faults = self

        class Getter(InMemoryShardGetter):
            def read(self, limit: int = 10_000) -> Page:
                if shard_id in faults.hanging:
                    faults.goes_on.wait(60)
                if shard_id in faults.failing:
                    raise Unavailable("the endpoint does not answer")
                return super().read(limit)

        return Getter(self._stream, shard_id, position)


def at_tip(world: EngineWorld, running: RunningQuery, *shard_ids: str) -> None:
    """Let the shards reach their tips, where the driver polls."""
    for shard_id in shard_ids or (FIRST, SECOND):
        world.until_stored(world.put_in(shard_id, "before")[0])
    wait_until(
        lambda: all(shard.view.tip_seen_at > 0 for shard in running.engine._shards.by_id.values()), "tips"
    )


def is_ready(server: MonitoringServer) -> bool:
    return get(server.address, "/readyz")[0] == 200


def named(server: MonitoringServer) -> set[str]:
    return {str(reason["shard_id"]) for reason in reasons(server.address)}


@contextmanager
def never_red(server: MonitoringServer, *, most_seconds: float = 0.0) -> Iterator[None]:
    """Ask all the time; fail if it was not ready for longer than ``most_seconds``."""
    over, red, longest, said = threading.Event(), 0.0, 0.0, ""

    def ask() -> None:
        nonlocal red, longest, said
        while not over.wait(0.05):
            status, text = get(server.address, "/readyz")
            red = 0.0 if status == 200 else red or time.monotonic()
            if red and time.monotonic() - red >= longest:
                longest, said = time.monotonic() - red, text
            assert get(server.address, "/livez")[0] == 200

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        yield
    finally:
        over.set()
        asking.join()
    assert longest <= most_seconds, f"not ready for {longest:.1f} s: {said}"
    assert most_seconds or not said, said


# What stands still is seen, and named


def test_a_shard_whose_reads_fail_is_named_after_eight_seconds_and_the_other_is_ready(
    world: EngineWorld,
) -> None:
    faults = Faults(world)
    running = world.start(Diary())  # as by default: stalled after eight seconds
    at_tip(world, running)
    with MonitoringServer(ANY, running.query) as server:
        wait_until(lambda: is_ready(server), "it is ready")
        faults.failing.add(FIRST)
        begun = world.clock.monotonic()
        wait_until(lambda: not is_ready(server), "it is not ready")
        assert world.clock.monotonic() - begun > 7, "one failure is no reason yet"
        assert world.clock.monotonic() - begun < 20, "it waits its turn no longer"
        assert named(server) == {FIRST}
        assert "the endpoint does not answer" in reasons(server.address)[0]["reason"]
        shards = json.loads(get(server.address, "/readyz")[1])["consumers"][0]["shards"]
        assert {shard["shard_id"]: shard["ready"] for shard in shards} == {FIRST: False, SECOND: True}
        assert get(server.address, "/livez")[0] == 200
        faults.failing.clear()
        wait_until(lambda: is_ready(server), "it is ready again")


def test_a_handler_that_hangs_is_named_by_its_shard_after_eight_seconds_while_the_other_goes_on(
    world: EngineWorld,
) -> None:
    goes_on = threading.Event()

    hangs = threading.Event()

    def handle(record: Record) -> None:
        if record.data == b"hang":
            hangs.set()
            goes_on.wait(60)

    running = world.start(handle)
    at_tip(world, running)
    with MonitoringServer(ANY, running.query) as server:
        try:
            world.put_in(FIRST, "hang")
            assert hangs.wait(60)
            begun = world.clock.monotonic()
            while is_ready(server):
                world.put_in(SECOND, "goes on")
                passes(world, 0.2)
                assert world.clock.monotonic() - begun < 20, "it waits its turn no longer"
            assert named(server) == {FIRST}
            assert "a slice of it is under way" in reasons(server.address)[0]["reason"]
        finally:
            goes_on.set()
        wait_until(lambda: is_ready(server), "it is ready again")


def test_a_read_that_does_not_end_is_seen(world: EngineWorld) -> None:
    faults = Faults(world)
    running = world.start(Diary(), **QUICK)
    at_tip(world, running)
    with MonitoringServer(ANY, running.query) as server:
        faults.hanging.add(SECOND)
        wait_until(lambda: not is_ready(server), "it is not ready")
        assert named(server) == {SECOND}
        wait_until(lambda: "a read has lasted" in str(reasons(server.address)), "it is said")
        faults.hanging.clear()
        faults.goes_on.set()
        wait_until(lambda: is_ready(server), "it is ready again")


def test_a_slice_that_an_executor_reads_and_does_not_end_is_seen(world: EngineWorld) -> None:
    world.put_in(FIRST, "one")
    running = world.start(Diary(), hanging=True, **QUICK)
    with MonitoringServer(ANY, running.query) as server:
        wait_until(lambda: FIRST in named(server), "the shard is named")
        running.runner.open_gate()
        wait_until(lambda: is_ready(server), "it is ready again")


def test_a_loop_that_hangs_turns_it_dead_after_three_seconds_also_where_it_keeps_the_lock(
    world: EngineWorld,
) -> None:
    running = world.start(Diary())
    at_tip(world, running)
    goes_on = threading.Event()

    def hang() -> None:
        """Run by the engine, under the consumer's lock."""
        goes_on.wait(60)

    with MonitoringServer(ANY, running.query) as server:
        wait_until(lambda: is_ready(server), "it is ready")
        begun = world.clock.monotonic()
        running.engine._calls.put(hang)
        try:
            wait_until(lambda: get(server.address, "/livez")[0] == 503, "it is dead")
            assert world.clock.monotonic() - begun >= 2.5
            assert re.search("its loop has not turned for [0-9.]+ s", get(server.address, "/livez")[1])
            wait_until(lambda: not is_ready(server), "it is not ready")
        finally:
            goes_on.set()
        wait_until(lambda: get(server.address, "/livez")[0] == 200 and is_ready(server), "it is well again")


def test_finished_records_that_were_never_stored_are_a_reason(world: EngineWorld) -> None:
    running = world.start(Diary(), **QUICK)
    at_tip(world, running)
    with MonitoringServer(ANY, running.query) as server:
        world.zookeeper.set_available(available=False)
        try:
            world.put("one")
            wait_until(lambda: "are not stored for" in str(reasons(server.address)), "it is said")
            assert get(server.address, "/livez")[0] == 200
        finally:
            world.zookeeper.set_available(available=True)
        wait_until(lambda: is_ready(server), "it is ready again")


def test_a_call_that_keeps_assignments_and_commits_waiting_is_a_reason(
    world: EngineWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No shard stands still where all were lost, and the stream's list, without which none comes, hangs."""
    running = world.start(Diary(), **QUICK)
    at_tip(world, running)
    goes_on = threading.Event()
    with MonitoringServer(ANY, running.query) as server:
        wait_until(lambda: is_ready(server), "it is ready")
        with monkeypatch.context() as patched:
            patched.setattr(running.consumer._leading, "lead", lambda _now: goes_on.wait(60))
            try:
                wait_until(lambda: "a call has lasted" in str(reasons(server.address)), "it is said")
                assert get(server.address, "/livez")[0] == 200
            finally:
                goes_on.set()
        wait_until(lambda: is_ready(server), "it is ready again")


# What is as it should be is never red


def test_a_single_failed_read_of_a_shard_that_was_idle_is_no_reason(world: EngineWorld) -> None:
    faults = Faults(world)
    running = world.start(Diary(), **QUICK)
    at_tip(world, running)
    with MonitoringServer(ANY, running.query) as server, never_red(server):
        passes(world, 1.5)  # idle for longer than it may be still
        faults.failing.add(FIRST)
        wait_until(lambda: running.consumer.retried_error, "a read fails")
        faults.failing.clear()
        wait_until(lambda: not running.consumer.retried_error, "a read works")
        world.put_in(FIRST, "one")
        passes(world, 1.0)


def test_retries_in_back_off_are_no_reason_in_any_order(world: EngineWorld) -> None:
    def handle(record: Record) -> None:
        if record.data == b"poison" and record.attempt < 3:
            raise ValueError

    for order in ("unordered", "key", "shard"):
        settings: dict[str, Any] = {
            **QUICK, "order": order, "app": order, "retry_backoff_seconds": 1.5, "max_spared_seconds": 0,
        }  # fmt: skip
        running = world.start(handle, **settings)
        at_tip(world, running, SECOND)
        with MonitoringServer(ANY, running.query) as server, never_red(server):
            world.put_in(FIRST, "poison", *map(str, range(20)))
            wait_until(lambda: running.query.counters.retried >= 2, "it is retried twice")  # noqa: B023
            wait_until(lambda: not running.consumer.manager.unresolved, "all is finished")  # noqa: B023
        running.stop()


@pytest.mark.parametrize("which", ["max_deliveries_per_second", "max_total_deliveries_per_second"])
def test_a_rate_of_deliveries_is_no_reason(which: str) -> None:
    with engine_world(shards=4) as world:
        for shard in world.stream.list_shards():
            world.put_in(shard.shard_id, *map(str, range(5)))
        rate: dict[str, Any] = {**QUICK, which: 1.0}
        running = world.start(Diary(), **rate)
        with MonitoringServer(ANY, running.query) as server:
            wait_until(lambda: running.query.counters.acked, "it has begun")
            with never_red(server):
                passes(world, 6)
            assert running.query.counters.acked < 20, "the rate held it back"


def test_a_shard_that_waits_at_its_bound_while_others_go_on_is_no_reason(world: EngineWorld) -> None:
    goes_on = threading.Event()

    def handle(record: Record) -> None:
        if record.data == b"slow":
            goes_on.wait(0.05)

    world.put_in(FIRST, "one")
    world.put_in(SECOND, *["slow"] * 60)
    running = world.start(handle, until="latest", **QUICK, max_batch_seconds=0.2, task={"max_seconds": 0.2})
    with MonitoringServer(ANY, running.query) as server:
        with never_red(server, most_seconds=0.0):
            world.put_in(FIRST, *map(str, range(50)))  # behind the bound: a backlog that is for another run
            wait_until(lambda: running.query.is_done, "the run is done")
            passes(world, 1.0)
        assert is_ready(server), "a run that came to its end is ready"
        assert get(server.address, "/livez")[0] == 200
        running.stop()
        assert get(server.address, "/readyz")[0] == 200


def test_a_reshard_and_a_hand_over_are_no_reasons(world: EngineWorld) -> None:
    running = world.start(Diary(), **QUICK)
    at_tip(world, running)
    over = threading.Event()

    def put() -> None:
        while not over.wait(0.01):
            world.put("more", key=str(time.monotonic()))

    putting = threading.Thread(target=put)
    with MonitoringServer(ANY, running.query) as server:
        wait_until(lambda: is_ready(server), "it is ready")
        putting.start()
        try:
            with never_red(server):
                world.stream.split(FIRST)
                wait_until(lambda: len(running.consumer.manager.owned) == 3, "the children are read")
                other = world.start(Diary(), **QUICK)
                wait_until(lambda: other.consumer.manager.owned, "the other has some")
                passes(world, 2.0)
                other.stop()
                wait_until(lambda: len(running.consumer.manager.owned) == 3, "all are back")
        finally:
            over.set()
            putting.join()


def test_a_backlog_under_full_load_is_no_reason() -> None:
    """A task of eight shards, whose handler is slow: each job takes about as long as a job may."""
    with engine_world(shards=8) as world:
        for shard in world.stream.list_shards():
            world.put_in(shard.shard_id, *map(str, range(2_500)))

        def handle(record: Record) -> None:
            del record
            time.sleep(0.0005)

        running = world.start(
            handle, max_batch_seconds=4.0, stalled_after_seconds=3.0, task={"max_seconds": 4.0},
            engine={"shards_per_task": 8, "parallelism": lambda: 1},
        )  # fmt: skip
        with MonitoringServer(ANY, running.query) as server, never_red(server):
            wait_until(lambda: running.query.counters.acked > 10_000, "half of it is done")


def test_a_stop_while_zookeeper_is_away_is_no_death(world: EngineWorld) -> None:
    running = world.start(Diary(), **QUICK)
    at_tip(world, running)
    with MonitoringServer(ANY, running.query) as server:
        world.zookeeper.set_available(available=False)
        stopping = threading.Thread(target=running.stop)
        stopping.start()
        try:
            for _ in range(50):
                assert get(server.address, "/livez") == (200, "alive\n")
                passes(world, 0.1)
        finally:
            world.zookeeper.set_available(available=True)
            stopping.join()


def test_a_process_that_was_stopped_is_alive_when_it_goes_on() -> None:
    program = """
        import time
        from kinesis_spout.monitoring.server import Awake
        awake, until = Awake(), time.monotonic() + 120
        while time.monotonic() < until:
            print(f"{awake.seconds():.1f}", flush=True)
            awake.beat()
            time.sleep(0.2)
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            while float(process.stdout.readline()) < 1:
                pass
            os.kill(process.pid, signal.SIGSTOP)
            time.sleep(2.5)
            os.kill(process.pid, signal.SIGCONT)
            assert any(float(line) < 1 for line in process.stdout), "the gap begins it anew"
        finally:
            process.kill()


def test_time_without_a_gap_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    monkeypatch.setattr(server_module, "monotonic", clock.monotonic)
    awake = Awake()
    for _ in range(3):
        clock.advance(0.5)
        awake.beat()
    assert awake.seconds() == 1.5


# Figures


def test_attempts_ages_and_handling_are_counted_in_micro_batches(world: EngineWorld) -> None:
    def handle(record: Record) -> None:
        time.sleep(0.002)
        if record.data == b"twice" and record.attempt == 1:
            raise ValueError

    running = world.start(handle)
    world.put_in(FIRST, *map(str, range(9)), "twice")
    wait_until(lambda: running.query.counters.acked == 10, "all are acked")
    read: dict[str, Any] = {sample.metric.name: sample.value for sample in Sources([running.query]).read()}
    attempts, handling, ages = (
        read[f"kinesis_spout_{name}"] for name in ("record_attempts", "handler_seconds", "record_age_seconds")
    )
    assert attempts.counts[:2] == (9, 1)
    assert attempts.total == 11
    assert sum(handling.counts) == 11
    assert handling.total >= 11 * 0.002
    assert sum(ages.counts) >= 10
    assert read["kinesis_spout_records_delivered"] == 11


def test_two_members_in_one_process_have_one_series(world: EngineWorld) -> None:
    one, two = world.start(Diary()), world.start(Diary())
    world.put_in(FIRST, "a")
    world.put_in(SECOND, "b")
    wait_until(lambda: one.query.counters.acked + two.query.counters.acked == 2, "both are acked")
    samples = Sources([one.query, two.query]).read()
    series = [(sample.metric.name, tuple(sample.labels.values())) for sample in samples]
    assert len(series) == len(set(series))
    read: dict[str, Any] = {sample.metric.name: sample.value for sample in samples}
    assert read["kinesis_spout_records_acked"] == 2
    assert sum(read["kinesis_spout_record_attempts"].counts) == 2
    assert read["kinesis_spout_members"] == 2
