"""The micro-batch engine over a stream, a ZooKeeper and a sink in memory; its "executors" are this process.

The tasks' own code runs (``run_slices``, the real getter over a client in memory). Only Spark is not there: a
worker dies when the handler raises ``KillsWorker``, a job when a test says so, or when it is cancelled. What a
task noted is found after its death, unless a test is ``blind``. Kinesis' read limits cost no time on the driver;
executors keep to them, by the real clock.
"""

import itertools
import pickle
import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import closing, suppress
from copy import copy
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import TYPE_CHECKING, Any, cast

from kinesis_spout.consumer.consumer import Consumer
from kinesis_spout.consumer.ports import OpenGetter, Ports
from kinesis_spout.kinesis import KinesisClientSettings, ReadSettings
from kinesis_spout.kinesis.pace import ShardPaces
from kinesis_spout.model.clock import Clock, SystemClock
from kinesis_spout.model.errors import HandlerKilledWorker
from kinesis_spout.model.handler import failure_of
from kinesis_spout.model.record import Record
from kinesis_spout.model.scheme import resolve
from kinesis_spout.ports import ShardGetter
from kinesis_spout.settings import SpoutConfig
from kinesis_spout.spark.concurrency.concurrent_calls import ConcurrentCalls
from kinesis_spout.spark.driver.engine import MicroBatchEngine
from kinesis_spout.spark.driver.engine_settings import EngineSettings
from kinesis_spout.spark.driver.query import OneOf, SpoutQuery
from kinesis_spout.spark.tasks import journal
from kinesis_spout.spark.tasks.delivery import Failed
from kinesis_spout.spark.tasks.handlers import delivery_to, record_handler
from kinesis_spout.spark.tasks.jobs import WORTH_A_TASK_SECONDS
from kinesis_spout.spark.tasks.journal import UNDER_WAY, Journal, SliceNotes
from kinesis_spout.spark.tasks.recovery import recover
from kinesis_spout.spark.tasks.task import TaskSettings, run_slices
from kinesis_spout.spark.tasks.work import WorkResult, WorkSlice
from kinesis_spout.testing import (
    InMemoryDeadLetterSink,
    InMemoryShardGetter,
    InMemoryShardLister,
    InMemoryStream,
    InMemoryZooKeeper,
    ManualClock,
)
from shard_state import Checkpoint, Order, Position, Shard, SliceKind
from tests.support.kinesis.in_memory_client import InMemoryKinesisClient
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from mypy_boto3_kinesis import KinesisClient

    from kinesis_spout.spark.tasks.jobs import Ticks

FIRST, SECOND = "shardId-000000000000", "shardId-000000000001"
NEVER = 1e6

Handle = Callable[[Record], Any]
Death = type[HandlerKilledWorker]
"""How a job ends of which nobody knows how far it came."""


class KillsWorker(BaseException):
    """What a handler raises here in place of ending its process."""


class StreamClient(InMemoryKinesisClient):
    """Also lists shards, as the getter asks for when something does not exist."""

    def __init__(self, stream: InMemoryStream) -> None:
        super().__init__(stream)
        self._of = stream

    def list_shards(self, **request: Any) -> dict[str, Any]:
        del request
        return {"Shards": [_listed(shard) for shard in self._of.list_shards()]}


def task_settings(client: InMemoryKinesisClient, **changes: Any) -> TaskSettings:
    """Settings of tasks that reach a client in memory."""

    class InMemorySettings(KinesisClientSettings):
        def connect(self) -> "KinesisClient":
            return cast("KinesisClient", client)

    read = ReadSettings(
        fail_on_data_loss=changes.pop("fail_on_data_loss", True),
        max_records_per_fetch=changes.pop("records_per_fetch", 10_000),
    )
    settings: dict[str, Any] = {
        "stream": "orders",
        "order": Order.UNORDERED,
        "read": read,
        "bytes_per_slice": 64 * 1024 * 1024,
        "max_seconds": 5.0,
        **changes,
    }
    return TaskSettings(client=InMemorySettings(), **settings)


class MortalHandler:
    """Does what ``RecordHandler`` does, but ``KillsWorker`` goes through it, as the death of a process does."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._scheme = resolve("raw")

    def __call__(
        self, records: Sequence[Record], until: float, notes: SliceNotes
    ) -> tuple[int, list[Failed]]:
        failed: list[Failed] = []
        for at, record in enumerate(records):
            notes.words[UNDER_WAY] = notes.base + at
            try:
                self._handle(self._scheme(record))
            except KillsWorker:
                raise
            except BaseException as error:  # noqa: BLE001 - as RecordHandler does
                failed.append((at, failure_of(error)))
                notes.failed(*failed[-1])
            if monotonic() >= until:
                return at + 1, failed
        return len(records), failed


def _handler(handle: Handle, config: SpoutConfig) -> Handle | ConcurrentCalls:
    made = record_handler(
        handle,
        resolve("raw"),
        concurrency=config.concurrency,
        timeout_seconds=config.record_timeout_seconds,
    )
    return made if isinstance(made, ConcurrentCalls) else handle


class InProcessRunner:
    """A ``BatchRunner`` without Spark. Mutable."""

    worth_a_task_seconds = WORTH_A_TASK_SECONDS

    def __init__(
        self, settings: TaskSettings, handle: Handle | ConcurrentCalls, *, blind: Death | None = None
    ) -> None:
        self._settings = settings
        self._handle = handle
        self._blind = blind
        self.batches: list[list[WorkSlice]] = []
        """Every batch that was run, in order."""
        self.failures: list[BaseException] = []
        """The next batches fail with these, one each."""
        self.cancelled: list[str] = []
        self.gate = threading.Event()
        """While it is not set, batches hang, until they are cancelled."""
        self.gate.set()
        self._closes_behind_one = False
        self.hanging = 0
        self.begun: set[str] = set()
        self.queueing = False
        """Whether others have the cluster."""
        self.settled_whole: dict[str, bool] = {}
        """Whether all shards were still owned when outcomes were about to be taken in, by tag."""
        self.refuses_outcomes = False
        self.ticks: Ticks | None = None
        self.closed = 0
        """How often the engine has said that there are no further jobs."""
        self.cancels_missed = 0
        """So many cancels come before Spark knows the job."""
        self._met: set[str] = set()
        self._changed = threading.Condition()

    def run(self, tag: str, packs: Sequence[Sequence[WorkSlice]]) -> list[WorkResult]:
        self.batches.append([work for pack in packs for work in pack])
        self.begun.add(tag)
        self._pass_gate(tag)
        if self.failures:
            raise self.failures.pop(0)

        travelled = pickle.loads(pickle.dumps(packs))
        results = [result for pack in travelled for result in self._run_task(pack)]
        returned: list[WorkResult] = pickle.loads(pickle.dumps(results))
        return returned

    def settled(self, tag: str, *, is_whole: bool) -> bool:
        self.settled_whole[tag] = is_whole
        return not self.refuses_outcomes

    def _run_task(self, pack: Sequence[WorkSlice]) -> list[WorkResult]:
        handle = self._handle
        has_marks = isinstance(handle, ConcurrentCalls)
        # A worker has a copy of its own.
        deliver = partial(
            delivery_to, copy(handle) if isinstance(handle, ConcurrentCalls) else MortalHandler(handle)
        )
        with TemporaryDirectory() as folder:
            file = Path(folder, "notes")
            try:
                with closing(Journal(file, len(pack), has_marks=has_marks)) as notes:
                    return list(run_slices(pack, self._settings, deliver, notes))
            except KillsWorker:
                remains = journal.read(file)
        if self._blind:
            raise self._blind("the Spark job died: Python worker exited unexpectedly")
        assert remains is not None
        return recover(pack, remains, self._settings, "the worker died")

    def has_begun(self, tag: str) -> bool:
        return tag in self.begun and not self.queueing

    def cancel(self, tag: str) -> None:
        with self._changed:
            self.cancelled.append(tag)
            if self.cancels_missed:
                self.cancels_missed -= 1
            else:
                self._met.add(tag)
            self._changed.notify_all()

    def close(self) -> None:
        self.closed += 1

    def open_gate(self) -> None:
        with self._changed:
            self.gate.set()
            self._changed.notify_all()

    def let_one_pass(self) -> None:
        """Open the gate for one batch alone."""
        self._closes_behind_one = True
        self.open_gate()

    def slices(self, *kinds: SliceKind) -> list[WorkSlice]:
        return [work for batch in list(self.batches) for work in batch if work.plan.kind in kinds]

    def _pass_gate(self, tag: str) -> None:
        with self._changed:
            self.hanging += 1
            passed = self._changed.wait_for(lambda: self.gate.is_set() or tag in self._met, timeout=120)
            self.hanging -= 1
            assert passed, f"{tag} hung for 120 s"
            if self._closes_behind_one:
                self._closes_behind_one = False
                self.gate.clear()
            elif not self.gate.is_set():
                raise HandlerKilledWorker(f"the Spark job died: Job cancelled part of tag {tag}")


class RunningQuery:
    """A query with everything it is made of."""

    def __init__(self, query: SpoutQuery, runner: InProcessRunner, engine: MicroBatchEngine) -> None:
        self.query = query
        self.runner = runner
        self.engine = engine
        self.consumer = engine.consumer

    def stop(self) -> None:
        self.query.stop()


def texts(count: int, prefix: str = "r") -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]


class EngineWorld:
    """Mutable. Close it at the end."""

    def __init__(self, shards: int = 1, clock: Clock | None = None) -> None:
        self.clock = clock or SystemClock()
        self.stream = InMemoryStream(
            "orders", shards=shards, clock=ManualClock(epoch=self.clock.time() // 1 - 3600.0)
        )
        self.client = StreamClient(self.stream)
        self.zookeeper = InMemoryZooKeeper()
        self.dead_letters = InMemoryDeadLetterSink()
        self.getters_opened: list[tuple[str, Position]] = []
        self.fresh_getter: OpenGetter | None = None
        """What the driver reads shards on with, if not as in memory."""
        self._members = itertools.count(1)
        self._queries: list[RunningQuery] = []

    def put(self, *payloads: str, key: str = "key") -> list[Record]:
        return [self.stream.put(payload.encode(), key) for payload in payloads]

    def start(
        self,
        handle: Handle,
        *,
        hanging: bool = False,
        queueing: bool = False,
        blind: Death | None = None,
        engine: dict[str, Any] | None = None,
        task: dict[str, Any] | None = None,
        paces: ShardPaces | None = None,
        ticks: "Ticks | None" = None,
        **settings: Any,
    ) -> RunningQuery:
        member = f"member-{next(self._members)}"
        process = self.zookeeper.process(member)

        def open_getter(shard_id: str, position: Position) -> ShardGetter:
            self.getters_opened.append((shard_id, position))
            return InMemoryShardGetter(
                self.stream,
                shard_id,
                position,
                settings=ReadSettings(fail_on_data_loss=config.fail_on_data_loss),
            )

        ports = Ports(
            lister=InMemoryShardLister(self.stream),
            open_getter=self.fresh_getter or open_getter,
            open_rereader=open_getter,
            store=process.store,
            coordinator=process.coordinator,
            group=process.group,
            dead_letters=self.dead_letters,
            clock=self.clock,
            paces=paces or ShardPaces(self.clock),
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
                "shard_list_interval_seconds": 0.2,
                "stop_timeout_seconds": 10.0,
                **settings,
            }
        )
        consumer = Consumer(config, ports, message_timeout_seconds=None)
        runner = InProcessRunner(
            task_settings(
                self.client,
                order=Order(config.order),
                fail_on_data_loss=config.fail_on_data_loss,
                **(task or {}),
            ),
            _handler(handle, config),
            blind=blind,
        )
        runner.queueing = queueing
        runner.ticks = ticks
        if hanging:
            runner.gate.clear()
        engine_settings: dict[str, Any] = {
            "parallelism": lambda: 2,
            "shards_per_task": 8,
            "max_concurrent_batches": 2,
            "records_per_fetch": 10_000,
            "poll_seconds": 0.01,
            "idle_poll_seconds": 0.05,
            "max_buffered_bytes": 256 * 1024 * 1024,
            "batch_timeout_seconds": None,
            "death_backoff_seconds": 0.01,
            **(engine or {}),
        }
        made = MicroBatchEngine(consumer, runner, EngineSettings(**engine_settings), "test")
        made.start()
        running = RunningQuery(SpoutQuery(config, OneOf("orders", made), "test"), runner, made)
        self._queries.append(running)
        return running

    def stored(self, shard_id: str = FIRST) -> Checkpoint:
        with self.zookeeper.lock:
            return self.zookeeper.decode(shard_id)

    def until_stored(self, record: Record) -> None:
        wait_until(
            lambda: self.stored(record.shard_id).base == record.sequence,
            f"the checkpoint is {record.message_id}",
        )

    def put_in(self, shard_id: str, *payloads: str) -> list[Record]:
        """Put records into that very shard."""
        for number in itertools.count():
            key = f"key-{number}"
            with self.stream._lock:
                if self.stream._log_for(key).shard.shard_id == shard_id:
                    return self.put(*payloads, key=key)
        raise AssertionError

    def close(self) -> None:
        for running in self._queries:
            running.runner.open_gate()
            with suppress(Exception):
                running.stop()


class Diary:
    """A handler that writes down what it is given. Thread-safe. Mutable.

    Args:
        outcomes: what to raise, by payload, at the first, second... delivery; None acks, and so does the rest.
    """

    def __init__(self, **outcomes: Sequence[BaseException | None]) -> None:
        self._outcomes = {name: list(raised) for name, raised in outcomes.items()}
        self.deliveries: list[tuple[str, int]] = []
        """(payload, attempt)"""

    def __call__(self, record: Record) -> None:
        text = record.data.decode()
        self.deliveries.append((text, record.attempt))
        outcomes = self._outcomes.get(text)
        raised = outcomes.pop(0) if outcomes else None
        if raised is not None:
            raise raised

    @property
    def payloads(self) -> list[str]:
        return [text for text, _ in list(self.deliveries)]

    def attempts(self, payload: str) -> list[int]:
        return [attempt for text, attempt in list(self.deliveries) if text == payload]

    def until(self, payloads: Collection[str]) -> None:
        wait_until(lambda: set(payloads) <= set(self.payloads), f"{payloads} are delivered")


def _listed(shard: Shard) -> dict[str, Any]:
    first, last = shard.hash_range
    parents = dict(zip(("ParentShardId", "AdjacentParentShardId"), shard.parents, strict=False))
    ending = {"EndingSequenceNumber": "9"} if shard.closed else {}
    return {
        "ShardId": shard.shard_id,
        **parents,
        "HashKeyRange": {"StartingHashKey": str(first), "EndingHashKey": str(last)},
        "SequenceNumberRange": {"StartingSequenceNumber": "0", **ending},
    }
