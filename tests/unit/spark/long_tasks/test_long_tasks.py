"""When micro-batches are handed to a task that stays, and what comes of them when it dies."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import TaskContext, cloudpickle

from kinesis_spout.model.errors import HandlerKilledWorker
from kinesis_spout.model.record import Record
from kinesis_spout.spark.long_tasks.held_task import HeldTask
from kinesis_spout.spark.long_tasks.long_task import IDLE_SECONDS, LongTask, LongTasks
from kinesis_spout.spark.long_tasks.long_task_runner import LongTaskRunner
from kinesis_spout.spark.pickled_handler import PickledHandler
from kinesis_spout.spark.tasks.handler_runner import HandlerJob, _Folder
from kinesis_spout.spark.tasks.handlers import AnyHandler, RecordHandler
from kinesis_spout.spark.tasks.jobs import WORTH_A_TASK_SECONDS
from kinesis_spout.spark.tasks.task import TaskSettings
from kinesis_spout.spark.tasks.work import WorkResult, WorkSlice
from kinesis_spout.testing import InMemoryStream, ManualClock
from shard_state import Fate, Position, SliceKind, SliceOutcome, SlicePlan
from tests.support.waiting import wait_until
from tests.unit.spark.driver.world import StreamClient, task_settings

if TYPE_CHECKING:
    from kinesis_spout.spark.tasks.jobs import Ticks

REST_SECONDS = 10.0
MOST_DELAY_SECONDS = 60.0
_ATTEMPT = """
import sys
from types import SimpleNamespace
from pyspark import TaskContext, cloudpickle
number = int(sys.argv[1])
TaskContext.get = staticmethod(lambda: SimpleNamespace(partitionId=lambda: 0, attemptNumber=lambda: number))
task = cloudpickle.loads(sys.stdin.buffer.read())
list(task(iter([None])))
"""


class Attempt:
    def partitionId(self) -> int:  # noqa: N802 - as PySpark spells it
        return 0

    def attemptNumber(self) -> int:  # noqa: N802
        return 0


class Cluster:
    """Runs long tasks: in threads, or, with ``attempts``, in processes that may die, so often at most."""

    def __init__(self, attempts: int = 0) -> None:
        self.tasks = LongTasks("127.0.0.1", "127.0.0.1")
        self.cores = 2
        self.others_wait = False
        self.tags: list[str] = []
        """Of the jobs that have begun."""
        self.ended: list[str] = []
        self.cancelled: list[str] = []
        self._attempts = attempts
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        """The last of each job, by its tag."""

    def slots(self) -> int:
        return self.cores

    def has_waiting_tasks(self) -> bool:
        return self.others_wait

    def run(self, tag: str, task: HeldTask) -> list[str]:
        self.tags.append(tag)
        try:
            return self._run_in_processes(tag, task) if self._attempts else list(task(iter([None])))
        finally:
            self.ended.append(tag)

    def cancel(self, tag: str) -> None:
        self.cancelled.append(tag)
        if tag in self.processes:
            self.processes[tag].kill()

    def _run_in_processes(self, tag: str, task: HeldTask) -> list[str]:
        for attempt in range(self._attempts):
            command = [sys.executable, "-c", _ATTEMPT, str(attempt)]
            with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
                self.processes[tag] = process
                process.communicate(_pickled(task))
            if not process.returncode:
                return []
        raise HandlerKilledWorker(
            "the Spark job died: Task 0 in stage 1.0: Python worker exited unexpectedly"
        )


def _pickled(task: HeldTask) -> bytes:
    pickled: bytes = cloudpickle.dumps(task)  # type: ignore[no-untyped-call]
    return pickled


class Jobs:
    """A ``BatchRunner`` that handles nothing, and makes what long tasks run."""

    ticks: "Ticks | None" = None
    worth_a_task_seconds = WORTH_A_TASK_SECONDS

    def __init__(self, settings: TaskSettings, handler: AnyHandler, *, is_local: bool) -> None:
        self._settings = settings
        self._handler = PickledHandler.of(handler)
        self._is_local = is_local
        self.tags: list[str] = []
        self.cancelled: list[str] = []
        self.meanwhile: Callable[[], object] = bool

    def job(self, tag: str, tasks: int) -> HandlerJob:
        assert tasks == 1
        return HandlerJob(self._settings, self._handler, _Folder(name=tag, is_read_here=self._is_local))

    def run(self, tag: str, packs: Sequence[Sequence[WorkSlice]]) -> list[WorkResult]:
        self.tags.append(tag)
        self.meanwhile()
        return [WorkResult(plan=each.plan, outcome=SliceOutcome()) for pack in packs for each in pack]

    def settled(self, tag: str, *, is_whole: bool) -> bool:
        del tag
        return is_whole

    def has_begun(self, tag: str) -> bool:
        return tag in self.tags

    def cancel(self, tag: str) -> None:
        self.cancelled.append(tag)

    def close(self) -> None:
        """Nothing is kept."""


class World:
    """A runner with what it stands on. Mutable. Close it."""

    def __init__(
        self, folder: Path, handle: Callable[[Record], Any], *, attempts: int, is_local: bool
    ) -> None:
        self.calls = folder / "calls"
        self.cluster = Cluster(attempts)
        self.clock = ManualClock()
        calls = self.calls

        def noting(record: Record) -> None:
            with calls.open("ab") as file:
                file.write(record.data)
            handle(record)

        settings = task_settings(StreamClient(InMemoryStream("orders", clock=ManualClock())))
        if attempts:
            # The client in memory does not travel, and nothing is read.
            settings = _travelling(settings)
        self.jobs = Jobs(settings, RecordHandler(noting, lambda record: record), is_local=is_local)
        self.runner = LongTaskRunner(self.jobs, self.cluster, life_seconds=10.0, clock=self.clock.monotonic)
        self._numbers = iter(range(1_000))

    def run(self, *payloads: str, kind: SliceKind = SliceKind.CARRIED) -> list[WorkResult]:
        return self.runner.run(f"batch-{next(self._numbers)}", [[work(*payloads, kind=kind)]])

    def begin(self) -> None:
        """Come to the point where small micro-batches are handed over."""
        self.run("a")
        assert self.jobs.tags == ["batch-0"]

    def until_ended(self) -> None:
        wait_until(lambda: self.cluster.tags == self.cluster.ended, "the jobs have ended")

    def close(self) -> None:
        self.runner.close()
        self.cluster.tasks.close()


def _travelling(settings: TaskSettings) -> TaskSettings:
    from dataclasses import replace  # noqa: PLC0415

    from kinesis_spout.kinesis import KinesisClientSettings  # noqa: PLC0415

    return replace(settings, client=KinesisClientSettings())


MakeWorld = Callable[..., World]


@pytest.fixture
def make_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeWorld]:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(TaskContext, "get", Attempt)
    made: list[World] = []

    def make(handle: Callable[[Record], Any] = bool, *, attempts: int = 0, is_local: bool = True) -> World:
        made.append(World(tmp_path, handle, attempts=attempts, is_local=is_local))
        return made[-1]

    yield make
    for world in made:
        world.close()


def work(*payloads: str, kind: SliceKind = SliceKind.CARRIED) -> WorkSlice:
    plan = SlicePlan(
        shard_id="shard-1",
        epoch=1,
        kind=kind,
        limit=100,
        max_failures=100,
        position=Position.trim_horizon(),
    )
    records = [
        Record(data=text.encode(), sequence_number=str(number), partition_key="key")
        for number, text in enumerate(payloads, 1)
    ]
    return WorkSlice(plan=plan, records=tuple(records))


def test_the_second_small_micro_batch_begins_a_task_that_is_handed_those_that_follow(
    make_world: MakeWorld,
) -> None:
    def handle(record: Record) -> None:
        if record.data == b"bad":
            raise ValueError("always")

    world = make_world(handle)
    world.begin()
    (first,) = world.run("b", "bad", "c")
    (second,) = world.run("d")

    assert (world.jobs.tags, len(world.cluster.tags)) == (["batch-0"], 1)
    assert world.calls.read_bytes() == b"bbadcd"
    assert (first.outcome.count, first.delivered) == (3, 3)
    (failure,) = first.unfinished
    assert (failure.record.data, failure.error) == (b"bad", "ValueError: always")
    assert second.outcome.count == 1


def test_records_far_apart_cost_jobs_and_hold_no_core(make_world: MakeWorld) -> None:
    world = make_world()
    for _ in range(3):
        world.run("a")
        world.clock.advance(IDLE_SECONDS + 0.1)

    assert (len(world.jobs.tags), world.cluster.tags) == (3, [])


def test_a_task_that_is_handed_nothing_ends_by_itself(make_world: MakeWorld) -> None:
    world = make_world()
    world.begin()
    world.run("b")

    world.until_ended()
    assert len(world.cluster.ended) == 1


def test_a_task_ends_when_it_has_lived_for_long_and_the_next_one_begins(make_world: MakeWorld) -> None:
    world = make_world()
    world.begin()
    for _ in range(24):
        world.run("b")
        world.clock.advance(0.55)

    assert world.jobs.tags == ["batch-0"]
    assert len(set(world.cluster.tags)) == 2


@pytest.mark.parametrize("kind", [SliceKind.READ, None])
def test_a_micro_batch_that_is_not_small_has_all_cores(make_world: MakeWorld, kind: SliceKind | None) -> None:
    world = make_world()
    world.begin()
    world.run("b")
    if kind is None:
        world.runner.run("large", [[work("c")], [work("d")]])
    else:
        world.run("c", kind=kind)

    assert len(world.jobs.tags) == 2
    world.until_ended()


def test_none_begins_while_others_have_all_cores(make_world: MakeWorld) -> None:
    world = make_world()
    world.jobs.meanwhile = lambda: None
    world.begin()
    small = threading.Event()

    def run_small() -> None:
        world.jobs.meanwhile = lambda: None
        world.run("b")
        small.set()

    world.jobs.meanwhile = run_small
    world.run("c", kind=SliceKind.READ)

    assert small.is_set()
    assert world.cluster.tags == []


def test_a_cluster_with_one_slot_has_none(make_world: MakeWorld) -> None:
    world = make_world()
    world.cluster.cores = 1
    world.begin()
    world.run("b")

    assert (len(world.jobs.tags), world.cluster.tags) == (2, [])


def test_all_queries_of_an_application_leave_half_of_the_slots_free(make_world: MakeWorld) -> None:
    first, second = make_world(), make_world()
    second.runner._cluster.tasks.close()
    second.cluster.tasks = first.cluster.tasks
    first.begin()
    second.begin()
    first.run("b")
    second.run("b")

    assert (len(first.cluster.tags), second.cluster.tags) == (1, [])


def test_it_makes_room_when_tasks_of_others_wait_in_two_looks(make_world: MakeWorld) -> None:
    world = make_world()
    world.begin()
    world.run("b")
    world.cluster.others_wait = True
    world.clock.advance(0.5)
    world.run("c")
    assert len(world.jobs.tags) == 1, "a task that waits for a moment is no reason"
    world.clock.advance(0.6)
    world.run("d")
    world.clock.advance(0.9)
    world.run("e")
    world.clock.advance(0.5)
    world.run("f")

    assert world.jobs.tags == ["batch-0", "batch-4", "batch-5"]
    world.until_ended()
    world.cluster.others_wait = False
    world.run("g")
    assert len(world.cluster.tags) == 1, "others have waited a moment ago"


def test_a_stop_ends_the_task(make_world: MakeWorld) -> None:
    world = make_world()
    world.begin()
    world.run("b")
    world.runner.close()

    assert len(world.cluster.ended) == 1
    world.run("c")
    assert len(world.jobs.tags) == 2


def test_a_cancel_ends_the_job_that_has_the_micro_batch_and_no_other(make_world: MakeWorld) -> None:
    handled, go_on = threading.Event(), threading.Event()
    _EVENTS["handled"], _EVENTS["go_on"] = handled, go_on
    world = make_world(_wait)
    world.begin()
    thread = threading.Thread(target=lambda: world.run("b"))
    thread.start()
    assert handled.wait(30)
    assert world.runner.has_begun("batch-1")
    assert not world.runner.has_begun("batch-2")
    world.runner.cancel("batch-2")
    assert world.cluster.cancelled == []
    world.runner.cancel("batch-1")
    go_on.set()
    thread.join()

    assert world.cluster.cancelled == world.cluster.tags
    assert not world.runner.has_begun("batch-1")


def test_a_micro_batch_that_is_cancelled_while_it_waits_for_the_task_becomes_no_job(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world()

    def never_begin(tag: str, _: HeldTask) -> list[str]:
        world.cluster.tags.append(tag)
        wait_until(lambda: tag in world.cluster.cancelled, "the job is cancelled")
        world.cluster.ended.append(tag)
        raise HandlerKilledWorker(f"the Spark job died: Job cancelled part of tag {tag}")

    monkeypatch.setattr(world.cluster, "run", never_begin)
    world.begin()
    raised: list[Exception] = []

    def run() -> None:
        try:
            world.run("b")
        except HandlerKilledWorker as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    wait_until(lambda: world.cluster.tags, "a long task is asked for")
    while thread.is_alive():
        world.runner.cancel("batch-1")  # It is repeated, as the engine does.
        thread.join(0.02)

    assert len(raised) == 1
    assert world.jobs.tags == ["batch-0"]


_EVENTS: dict[str, threading.Event] = {}


def _wait(record: Record) -> None:
    del record
    _EVENTS["handled"].set()
    assert _EVENTS["go_on"].wait(30)


def test_while_the_task_is_at_work_another_micro_batch_is_a_job(make_world: MakeWorld) -> None:
    handled, go_on = threading.Event(), threading.Event()
    _EVENTS["handled"], _EVENTS["go_on"] = handled, go_on
    world = make_world(_wait)
    world.begin()
    thread = threading.Thread(target=lambda: world.run("b"))
    thread.start()
    assert handled.wait(30)
    world.run("c")
    go_on.set()
    thread.join()

    assert world.jobs.tags == ["batch-0", "batch-2"]


def test_a_driver_that_cannot_be_reached_costs_jobs_and_is_said_once(
    make_world: MakeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    world = make_world()
    world.begin()
    world.cluster.tasks.close()
    world.run("b")
    world.run("c")

    assert len(world.jobs.tags) == 3
    assert caplog.text.count("cannot be reached") == 1


def dies_at_x(record: Record) -> None:
    if record.data == b"x":
        os._exit(3)


@pytest.mark.parametrize(("attempts", "is_local"), [(1, True), (4, False)])
def test_the_record_that_ends_its_worker_is_blamed_and_nothing_else_comes_again(
    make_world: MakeWorld, *, attempts: int, is_local: bool
) -> None:
    """In local mode Spark does not repeat the task; elsewhere its next attempt says what came of the first."""
    world = make_world(dies_at_x, attempts=attempts, is_local=is_local)
    world.begin()
    assert world.run("a")[0].delivered == 1
    (result,) = world.run("b", "x", "c")

    assert world.calls.read_bytes() == b"abx"
    assert (result.outcome.count, result.delivered, result.lost) == (2, 2, False)
    (failure,) = result.outcome.failures
    assert (failure.index, failure.fate) == (1, Fate.KILLED_WORKER)
    world.until_ended()
    assert not list(Path(tempfile.gettempdir()).glob("batch-*")), "its notes are removed"
    world.run("d")
    assert world.jobs.tags[1:] == (["batch-3"] if is_local else world.jobs.tags[1:])


def test_where_no_notes_are_left_all_slices_of_a_dead_task_are_unclear(make_world: MakeWorld) -> None:
    world = make_world(dies_at_x, attempts=1, is_local=False)
    world.begin()
    with pytest.raises(HandlerKilledWorker):
        world.run("b", "x", "c")

    assert world.calls.read_bytes() == b"bx"


def test_a_worker_that_dies_idle_costs_no_record_anything(make_world: MakeWorld) -> None:
    world = make_world(attempts=1)
    world.begin()
    world.run("b")
    assert world.runner._task is not None
    attempt = world.runner._task._connected
    assert attempt is not None
    attempt.channel.shut()  # as the end of its process does
    world.until_ended()
    (result,) = world.run("c")

    assert result.lost is False
    assert world.calls.read_bytes().count(b"c") + world.jobs.tags.count("batch-2") == 1


def on_a_lost_machine(world: World) -> LongTask:
    """Begin a task and stop its process: the system goes on to acknowledge what is sent to it."""
    world.begin()
    world.run("b")
    task = world.runner._task
    assert task is not None
    os.kill(world.cluster.processes[task.tag].pid, signal.SIGSTOP)
    return task


def test_a_task_on_a_machine_that_is_lost_delays_no_other_micro_batch(make_world: MakeWorld) -> None:
    world = make_world(attempts=1)
    task = on_a_lost_machine(world)
    wait_until(lambda: task.is_over, "it is given up")
    began = time.monotonic()
    while not world.cluster.cancelled:
        world.run("c")
        assert time.monotonic() - began < MOST_DELAY_SECONDS
    world.until_ended()
    world.clock.advance(REST_SECONDS)
    for payload in "de":
        world.run(payload)

    assert world.cluster.cancelled == [task.tag]
    assert world.calls.read_bytes().endswith(b"e"), "another one has begun"


def test_a_stop_does_not_wait_for_a_task_on_a_machine_that_is_lost(make_world: MakeWorld) -> None:
    world = make_world(attempts=1)
    task = on_a_lost_machine(world)
    world.runner.close()

    world.until_ended()
    assert world.cluster.cancelled == [task.tag]
