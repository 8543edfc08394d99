"""A query: how it is started, and the handle on it, shaped like PySpark's ``StreamingQuery``."""

import logging
import math
import threading
import uuid
from typing import Any, Self

from pyspark import SparkContext

from kinesis_spout.consumer.consumer import Consumer
from kinesis_spout.consumer.counters import Counters
from kinesis_spout.consumer.open_ports import client_settings, read_settings
from kinesis_spout.consumer.ports import Companion, Ports
from kinesis_spout.model.errors import InvalidConfig, KinesisSpoutError
from kinesis_spout.settings import SpoutConfig
from kinesis_spout.spark.driver.engine import MicroBatchEngine
from kinesis_spout.spark.driver.engine_settings import EngineSettings
from kinesis_spout.spark.streams.batch_slots import BatchSlots
from kinesis_spout.spark.tasks.coalescing import CoalescingKey
from kinesis_spout.spark.tasks.jobs import BatchRunner
from kinesis_spout.spark.tasks.task import TaskSettings
from shard_state import BreakerPause, Order, ShardStatus

_CAUGHT_UP_CHECK_SECONDS = 0.05

_log = logging.getLogger(__name__)


class SpoutQuery:
    """One running spout on Spark. Its methods may be called from any thread.

    ``id`` is the same over restarts of an application on a stream, ``runId`` is new for each start.
    """

    def __init__(self, consumer: Consumer, engine: MicroBatchEngine, name: str) -> None:
        self._consumer = consumer
        self._engine = engine
        self._name = name
        self._run_id = str(uuid.uuid4())
        self._stop_lock = threading.Lock()
        self._stopped = False
        config = consumer.config
        self._id = str(uuid.uuid5(uuid.NAMESPACE_URL, f"kinesis-spout:{config.app}/{config.stream_name}"))

    @property
    def id(self) -> str:
        """The same for every run of this application on this stream."""
        return self._id

    @property
    def runId(self) -> str:  # noqa: N802 - as StreamingQuery spells it
        """Another for every run."""
        return self._run_id

    @property
    def name(self) -> str:
        """The query's name: the application's, unless another was given."""
        return self._name

    @property
    def isActive(self) -> bool:  # noqa: N802
        """Whether the query runs: it was neither stopped nor ended by an error, nor has it come up to its end."""
        return self._engine.is_active

    @property
    def is_done(self) -> bool:
        """Whether the query has ended by itself: everything up to its `until` is finished, and that is stored."""
        return self._engine.is_done

    @property
    def status(self) -> dict[str, Any]:
        """What the query is doing now, or how it ended: message, isDataAvailable, isTriggerActive."""
        if self.isActive:
            return self._engine.status()
        error = self.exception()
        by_itself = "Done: came up to its end" if self.is_done else "Stopped"
        ended = f"Terminated with exception: {type(error).__name__}: {error}" if error else by_itself
        return {"message": ended, "isDataAvailable": False, "isTriggerActive": False}

    @property
    def lastProgress(self) -> dict[str, Any] | None:  # noqa: N802
        """The progress of the newest micro-batch; None before the first."""
        progress = self.recentProgress
        return progress[-1] if progress else None

    @property
    def recentProgress(self) -> list[dict[str, Any]]:  # noqa: N802
        """The progress of the newest micro-batches, oldest first, at most 100."""
        run = {"id": self._id, "runId": self._run_id}
        return [run | progress for progress in list(self._engine.recent_progress)]

    @property
    def counters(self) -> Counters:
        """What happened since the start."""
        return self._consumer.counters

    @property
    def last_error(self) -> KinesisSpoutError | None:
        """The newest error that is being retried."""
        return self._consumer.last_error

    @property
    def failures(self) -> dict[str, int]:
        """How often the handler failed with each kind of exception, by its type and the line that raised it."""
        with self._consumer.lock:
            return self._consumer.failures.counts

    @property
    def breaker_pause(self) -> BreakerPause | None:
        """The state of a pause, which begins when practically every record failed; None while there is no pause.

        During a pause a single record is tried at a time, at growing intervals, and nothing is given up. The
        first that succeeds (or is rejected) ends the pause.
        """
        with self._consumer.lock:
            return self._consumer.manager.breaker_pause

    def resume(self) -> bool:
        """End the pause now; False if there is no pause."""
        return self._consumer.resume()

    def pause_shards(self, *shard_ids: str) -> None:
        """Pause shards for all members of the application, as an operator does; all shards if none is named.

        What is in flight of them may end, and is stored; nothing more of them is handed out, retries included.
        It is kept in ZooKeeper, over restarts, until ``resume_shards`` or ``kinesis-spout resume``. Members
        notice within about a second.

        Raises:
            InvalidConfig: one is not a shard of the stream.
            StoreUnavailable: ZooKeeper cannot be reached.
        """
        self._consumer.pause_shards(shard_ids)

    def resume_shards(self, *shard_ids: str) -> bool:
        """End pauses of shards that were named to pause them; if none is named, all that an operator has paused.

        Returns:
            Whether there was one.

        Raises:
            StoreUnavailable: ZooKeeper cannot be reached.
        """
        return bool(self._consumer.resume_shards(shard_ids))

    @property
    def paused_by_operator(self) -> str | None:
        """What an operator has paused of this member's shards, in words; None if nothing."""
        return self._engine.paused_by_operator_text()

    @property
    def paused_shards(self) -> frozenset[str]:
        """The shards of this member that an operator has paused, and that it has something left to do with."""
        with self._consumer.lock:
            return self._consumer.manager.paused_shards

    def shards(self) -> list[ShardStatus]:
        """Every known shard as this query sees it, parents before children."""
        with self._consumer.lock:
            return self._consumer.manager.status()

    @property
    def runs_handler(self) -> bool:
        """Whether the calling thread runs the query's handler, on the driver, now."""
        return self._engine.runs_handler

    def share_memory(self, sharers: int) -> None:
        """Keep of `max_buffered_bytes` the share of one stream of so many."""
        self._consumer.sharers = sharers

    def exception(self) -> BaseException | None:
        """The error that ended the query, if one did."""
        try:
            self._consumer.check()
        except Exception as error:  # noqa: BLE001 - it is what is asked for
            return error
        return None

    def awaitTermination(self, timeout: float | None = None) -> bool | None:  # noqa: N802
        """Wait until the query ends; by itself it does only with `until`.

        Args:
            timeout: the most seconds to wait.

        Returns:
            With a timeout, whether the query ended in that time; otherwise None.

        Raises:
            Exception: whatever ended the query, unless it was stopped.
        """
        if timeout is not None and timeout <= 0:
            raise InvalidConfig(f"expected a timeout of more than 0 seconds, got {timeout!r}")
        ended = self._engine.wait(timeout)
        if ended:
            self._consumer.check()
        return None if timeout is None else ended

    def processAllAvailable(self) -> None:  # noqa: N802
        """Wait until everything that is in the stream now is finished: acked, or dead-lettered.

        Never returns while records arrive faster than they are processed. For tests and demonstrations.

        Raises:
            Exception: whatever ended the query.
        """
        since = self._consumer.now
        while not self._engine.wait(_CAUGHT_UP_CHECK_SECONDS):
            if self._engine.is_caught_up(since):
                return
        self._consumer.check()

    def stop(self) -> None:
        """End the query: what is in flight may finish within ``stop_timeout_seconds``, then all is committed.

        May be called twice. An error that ended the query before is not raised here; see ``exception``.
        Called by the query's own handler, on the driver, it returns at once, for the query waits for that very
        handler: the query stops when the handler has returned, and what is raised here otherwise is then
        found in ``exception``.

        Raises:
            KinesisSpoutError: the last commit or dead letters could not be stored; their records come again.
        """
        if self.runs_handler:
            threading.Thread(target=self._stop_apart, name="kinesis-spout-stop").start()
        else:
            self._stop()

    def _stop_apart(self) -> None:
        try:
            self._stop()
        except KinesisSpoutError as error:
            _log.warning("the query was stopped by its handler, and: %s", error)
            self._told_late(error)

    def _told_late(self, error: KinesisSpoutError) -> None:
        self._consumer.end_with(error)

    def _stop(self) -> None:
        with self._stop_lock:
            if self._stopped:
                return
            self._stopped = True
            self._engine.stop(self._consumer.config.stop_timeout_seconds)

    def __repr__(self) -> str:
        config = self._consumer.config
        return (
            f"SpoutQuery(name={self._name!r}, stream={config.stream!r}, app={config.app!r}, "
            f"status={self.status['message']!r})"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def task_settings(config: SpoutConfig) -> TaskSettings:
    """Say what every task needs to know."""
    # A batch that goes on for as long as it may must not look like one that hangs: it handles for twice this time
    # at most, and has as long again for its first fetch.
    timeout = config.message_timeout_seconds or math.inf
    return TaskSettings(
        stream=config.stream,
        client=client_settings(config),
        read=read_settings(config),
        order=Order(config.order),
        bytes_per_slice=config.max_bytes_per_slice,
        max_seconds=min(config.max_batch_seconds, timeout / 4),
        max_left_bytes=config.max_buffered_bytes // 4,
    )


def start_query(
    config: SpoutConfig,
    ports: Ports,
    context: SparkContext,
    runner: BatchRunner,
    name: str | None,
    *,
    door: str,
    companion: Companion | None = None,
    slots: BatchSlots | None = None,
    coalescing: CoalescingKey | None = None,
) -> SpoutQuery:
    """Start a query; its handle's ``stop`` closes the ports. A start that fails closes them as well.

    Args:
        config: the settings.
        ports: what to read from, and where progress and dead letters go.
        context: what the jobs run on.
        runner: runs them.
        name: the query's; the application's unless given.
        door: what the user called, for the log.
        companion: what changes with the records that are finished. Then one batch runs at a time.
        slots: for the batches of several queries together; its own unless given.
        coalescing: what its tasks coalesce records by, if they do.
    """
    # The engine times out whole jobs: the records inside one are not tracked one by one.
    consumer = Consumer(config, ports, message_timeout_seconds=None, door=door, companion=companion)
    poll_seconds = max(config.fetch_period_seconds, config.poll_interval_seconds)
    settings = EngineSettings(
        parallelism=lambda: context.defaultParallelism,
        shards_per_task=config.shards_per_task,
        max_concurrent_batches=1 if companion is not None else config.max_concurrent_batches,
        records_per_fetch=config.max_records_per_fetch,
        poll_seconds=poll_seconds,
        idle_poll_seconds=max(poll_seconds, config.idle_poll_interval_seconds),
        max_buffered_bytes=config.max_buffered_bytes,
        driver_reads_all=config.fan_out_consumer is not None,
        batch_timeout_seconds=config.message_timeout_seconds,
        coalescing=coalescing,
    )
    engine = MicroBatchEngine(consumer, runner, settings, name or config.app, slots)
    try:
        engine.start()
    except BaseException:
        consumer.close(commit=False)
        raise
    return SpoutQuery(consumer, engine, name or config.app)
