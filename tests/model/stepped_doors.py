"""Both record doors, stepped: on one thread, by a manual clock."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import Any, Self, cast

import pytest

from kinesis_spout.consumer.ports import Ports
from kinesis_spout.kinesis import ShardGetters
from kinesis_spout.model.clock import Clock
from kinesis_spout.model.errors import KinesisSpoutError
from kinesis_spout.model.record import Record
from kinesis_spout.settings import SpoutConfig
from kinesis_spout.spark.driver.engine import MicroBatchEngine
from kinesis_spout.spark.driver.engine_settings import EngineSettings
from kinesis_spout.spark.tasks.delivery import DeliverySettings, HandlerDelivery, SliceDelivery
from kinesis_spout.spark.tasks.jobs import WORTH_A_TASK_SECONDS, BatchRunner
from kinesis_spout.spark.tasks.task import run_slices
from kinesis_spout.spark.tasks.work import WorkResult, WorkSlice
from kinesis_spout.testing import SteppedSpout
from kinesis_spout.testing.stepped_spout import _SteppedConsumer, _SteppedPrefetcher
from shard_state import SlicePlan
from tests.model.call_faults import Crashed
from tests.model.counted_processes import Door, Process
from tests.model.counted_world import RETRY_LIMIT
from tests.unit.spark.driver.world import MortalHandler, StreamClient, task_settings

_IN_FLIGHT = 3
"""How many tuples are handled before the first of them is acked or failed."""


def _config(process: Process) -> SpoutConfig:
    return SpoutConfig.of(
        stream="orders",
        app="billing",
        initial_position="trim_horizon",
        retry_limit=RETRY_LIMIT,
        retry_backoff_seconds=0.5,
        retry_jitter=0.0,
        commit_interval_seconds=0.5,
        poll_interval_seconds=1.0,
        shard_list_interval_seconds=30.0,
        max_spared_seconds=0,
        order=process.world.scenario.order.value,
    )


class PlainDoor(Door):
    """A ``SteppedSpout``, whose tuples are acked and failed in the reverse of their order, a few together."""

    def __init__(self, process: Process) -> None:
        self._world = process.world
        self._spout = SteppedSpout(config=_config(process), ports=process.ports).open()
        self._handled: list[tuple[str, Record, Exception | None]] = []

    def step(self) -> None:
        while (emitted := self._spout.next_tuple()) is not None:
            record: Record = emitted.values
            error = self._handle(record)
            self._handled.append((emitted.message_id, record, error))
            if len(self._handled) == _IN_FLIGHT:
                self._report()
        self._report()

    def _handle(self, record: Record) -> Exception | None:
        self._world.delivers(record)
        try:
            self._world.call("handler", self._world.handle, record)
        except Exception as error:  # noqa: BLE001 - whatever a handler raises fails its record
            return error
        return None

    def _report(self) -> None:
        while self._handled:
            message_id, record, error = self._handled.pop()
            if error is not None:
                if self._spout.fail(message_id, error):
                    self._world.failed(record)
            elif self._spout.ack(message_id):
                self._world.acked(record)

    def close(self) -> None:
        self._spout.close()


def _nothing() -> None:
    """The end of a job concerns nobody else."""


class SteppedEngine(MicroBatchEngine):
    """A ``MicroBatchEngine`` without threads: polls and jobs run where they are started.

    Args:
        after_job: is called when a job has ended.
        settings: those of the engine, where a test has others.
    """

    def __init__(
        self,
        config: SpoutConfig,
        ports: Ports,
        runner: BatchRunner,
        after_job: Callable[[], None] = _nothing,
        **settings: Any,
    ) -> None:
        chosen: dict[str, Any] = {
            "parallelism": lambda: 2,
            "shards_per_task": 8,
            "max_concurrent_batches": 2,
            "records_per_fetch": 2,
            "poll_seconds": 0.2,
            "idle_poll_seconds": 2.0,
            "max_buffered_bytes": 1024 * 1024,
            "batch_timeout_seconds": None,
            **settings,
        }
        self.stepped = _SteppedConsumer(config, ports, message_timeout_seconds=None)
        super().__init__(self.stepped, runner, EngineSettings(**chosen), "stepped")
        self.polls = self._tip.polls = _SteppedPrefetcher(clock=ports.clock)
        self._running._threads = cast("Any", _ThreadsHere(after_job))
        try:
            self.stepped.start(self)
        except KinesisSpoutError:
            self.stepped.close(commit=False)
            raise

    def poll(self) -> None:
        """Do the chores that are due, and read at the tip."""
        self.stepped.do_chores()
        self.stepped.check()
        self.polls.fetch_due()

    def work(self) -> None:
        """Run the batches that are due, and settle them."""
        with self.stepped.lock:
            self._start_work()
        self._make_calls(0.0)
        if self.stepped.run_is_done and not self._running.batches:
            self._leave()
            self.is_done = True

    @property
    def is_idle(self) -> bool:
        return not self._running.batches

    def crash(self) -> None:
        """End as a killed process does: nothing more is stored."""
        self.stepped.close(commit=False)


class MicroBatchDoor(Door):
    """A ``SteppedEngine`` whose executors are this thread."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._engine = SteppedEngine(
            _config(process), process.ports, _Runner(process), after_job=process.check_alive
        )

    def step(self) -> None:
        self._engine.poll()
        self._process.check_alive()
        self._engine.work()

    def close(self) -> None:
        self._engine.close()


class _ThreadsHere:
    """A pool that runs what is submitted at once, on the caller's thread."""

    def __init__(self, after_job: Callable[[], None]) -> None:
        self._after_job = after_job

    def submit(self, work: Callable[..., None], *args: object) -> None:
        work(*args)
        self._after_job()  # a batch takes whatever its job raises as that job's end

    def shutdown(self, *, wait: bool = True, cancel_futures: bool = False) -> None:
        """Nothing is under way."""


class _Runner:
    """A ``BatchRunner`` whose executors are this thread. Each slice is a task of its own."""

    ticks = None
    worth_a_task_seconds = WORTH_A_TASK_SECONDS

    def __init__(self, process: Process) -> None:
        self._world = process.world
        self._settings = task_settings(
            StreamClient(self._world.stream), order=self._world.scenario.order, records_per_fetch=2
        )

    def run(self, tag: str, packs: Sequence[Sequence[WorkSlice]]) -> list[WorkResult]:
        del tag
        with executors_are_here(self._world.clock):
            return [
                result
                for pack in packs
                for work in pack
                for result in run_slices([work], self._settings, self._deliver)
            ]

    def settled(self, tag: str, *, is_whole: bool) -> bool:
        del tag, is_whole
        return True

    def close(self) -> None:
        """Nothing is kept."""

    def _deliver(self, plan: SlicePlan, rules: DeliverySettings) -> SliceDelivery:
        return HandlerDelivery(plan, MortalHandler(self._handle), rules)

    def _handle(self, record: Record) -> None:
        self._world.delivers(record)
        try:
            self._world.call("handler", self._world.handle, record)
        except Exception:
            self._world.failed(record)
            raise
        self._world.acked(record)

    def has_begun(self, tag: str) -> bool:
        del tag
        return True

    def cancel(self, tag: str) -> None:
        """Nothing is under way."""


class _PoolHere:
    """A ``ThreadPoolExecutor`` of this thread."""

    def __init__(self, max_workers: int) -> None:
        del max_workers

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is under way."""

    def submit(self, work: Callable[[], Any]) -> "Future[Any]":
        future: Future[Any] = Future()
        try:
            future.set_result(work())
        except (Exception, Crashed) as error:  # noqa: BLE001 - it is who asks for the result that gets it
            future.set_exception(error)
        return future


@contextmanager
def executors_are_here(clock: Clock) -> Iterator[None]:
    """Let tasks fetch on this thread, and keep to the read limits by this clock."""
    task = "kinesis_spout.spark.tasks.task"
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(f"{task}.ThreadPoolExecutor", _PoolHere)
        patches.setattr(f"{task}.ShardGetters", partial(ShardGetters, clock=clock, jitter=lambda: 0.0))
        yield
