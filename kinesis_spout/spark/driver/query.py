"""A spout's query on Spark: how it is started, and the handle on it."""

import logging
import math
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pyspark import SparkContext

from kinesis_spout.consumer.consumer import Consumer
from kinesis_spout.consumer.counters import Counters
from kinesis_spout.consumer.open_ports import client_settings, read_settings
from kinesis_spout.consumer.ports import Companion, Ports, StreamsPorts
from kinesis_spout.consumer.stream_set import StreamSet
from kinesis_spout.model.errors import KinesisSpoutError, StreamNotFound
from kinesis_spout.monitoring.doors import Monitored
from kinesis_spout.settings import SpoutConfig
from kinesis_spout.spark.driver.batch_progress import totals_of
from kinesis_spout.spark.driver.batch_slots import BatchSlots
from kinesis_spout.spark.driver.engine import MicroBatchEngine
from kinesis_spout.spark.driver.engine_settings import EngineSettings
from kinesis_spout.spark.driver.running_query import RunningQuery
from kinesis_spout.spark.tasks.jobs import BatchRunner
from kinesis_spout.spark.tasks.task import TaskSettings
from shard_state import Order

_log = logging.getLogger(__name__)


class OneOf:
    """One stream of a query, in place of a ``StreamSet``: what ``SpoutQuery.streams`` looks at."""

    gone: Mapping[str, BaseException] = {}
    past: Sequence[Counters] = ()

    def __init__(self, name: str, engine: MicroBatchEngine) -> None:
        self._engine = engine
        self.current: Mapping[str, MicroBatchEngine] = {name: engine}
        self.await_closed = engine.wait
        self.close = engine.close

    @property
    def error(self) -> BaseException | None:
        return self._engine.consumer.fatal

    @property
    def is_done(self) -> bool:
        return self._engine.is_done

    @property
    def is_closed(self) -> bool:
        return not self._engine.is_active

    def end(self, name: str, error: BaseException) -> None:
        del name
        self.fail(error)

    def fail(self, error: BaseException) -> None:
        self._engine.consumer.end_with(error)


class SpoutQuery(RunningQuery):
    """One running spout on Spark. Its methods may be called from any thread.

    A stream that is deleted while others are read ends alone, and shows in ``gone``. An error of any other kind
    that ends one stream ends the query. `max_concurrent_batches` and `max_buffered_bytes` are those of all streams
    together.
    """

    def __init__(
        self,
        config: SpoutConfig,
        streams: StreamSet[MicroBatchEngine] | OneOf,
        name: str,
        run_id: str | None = None,
        monitored: Monitored | None = None,
    ) -> None:
        super().__init__(name, run_id)
        self.monitored = monitored or Monitored()
        """Answers for it over HTTP, until it is stopped; what stands on it may answer there, too."""
        self._config = config
        self._streams = streams

    def _consumers(self) -> Mapping[str, Consumer]:
        several = self._config.is_several
        return {f"{name}/" * several: each.consumer for name, each in self._streams.current.items()}

    def _counted_before(self) -> Iterable[Counters]:
        return self._streams.past

    @property
    def streams(self) -> dict[str, "SpoutQuery"]:
        """The query of each stream that is read now, by the stream's name: its progress, counters, shards."""
        return {
            name: SpoutQuery(each.consumer.config, OneOf(name, each), f"{self._name}/{name}", each.run_id)
            for name, each in self._streams.current.items()
        }

    @property
    def gone(self) -> dict[str, BaseException]:
        """The deleted streams, each with the error that showed it. The query looks for them again."""
        return dict(self._streams.gone)

    @property
    def id(self) -> str:
        """The same for every run of this application on the same streams."""
        streams = self._config.stream if self._config.is_several else self._config.stream_name
        return str(uuid.uuid5(uuid.NAMESPACE_URL, f"kinesis-spout:{self._config.app}/{streams}"))

    @property
    def isActive(self) -> bool:  # noqa: N802
        """Return whether the query runs: not stopped, not ended by an error, and not come up to its end."""
        return not self._streams.is_closed and self._streams.error is None

    @property
    def is_done(self) -> bool:
        """Return whether the query reached its end: all up to its `until` is finished, and that is stored."""
        return self._streams.is_closed and self._streams.is_done

    def _status_while_active(self) -> dict[str, Any]:
        each = [engine.status() for engine in self._engines]
        busy = [status for status in each if status["isTriggerActive"]]
        if not each:
            return {"message": "Waiting for streams", "isDataAvailable": False, "isTriggerActive": False}
        return {
            "message": (busy or each)[0]["message"],
            "isDataAvailable": any(status["isDataAvailable"] for status in each),
            "isTriggerActive": bool(busy),
        }

    @property
    def recentProgress(self) -> list[dict[str, Any]]:  # noqa: N802
        """The progress of the newest micro-batches of all streams, oldest first, at most 100 of each.

        Each is of one stream, which its source names. The newest has the totals of all streams together, and the
        newest source of each.
        """
        run = {"id": self.id, "runId": self._run_id, "name": self._name}
        by_stream = [told for engine in self._engines if (told := list(engine.recent_progress))]
        told = [progress | run for of_one in by_stream for progress in of_one]
        told.sort(key=lambda progress: str(progress["timestamp"]))
        if self._config.is_several and told:
            told[-1] |= {
                "totals": totals_of(self.counters),
                "sources": [of_one[-1]["sources"][0] for of_one in by_stream],
                "pausedByOperator": sorted(self.paused_shards),
            }
        return told

    @property
    def _engines(self) -> list[MicroBatchEngine]:
        return list(self._streams.current.values())

    def exception(self) -> BaseException | None:
        """The error that ended the query, if one did."""
        return self._streams.error

    def _await_end(self, timeout: float | None) -> bool:
        return self._streams.await_closed(timeout)

    def processAllAvailable(self) -> None:  # noqa: N802
        """Wait until everything that is in the streams now is finished: acked, or dead-lettered.

        Never returns while records arrive faster than they are processed. For tests and demonstrations.
        Streams that are found or end meanwhile are not waited for.

        Raises:
            Exception: the error that ended the query.
        """
        for name, stream in self._streams.current.items():
            try:
                stream.await_caught_up()
            except StreamNotFound as gone:
                self._streams.end(name, gone)
        if self._streams.error is not None:
            raise self._streams.error

    def stop(self) -> None:
        """End the query: what is in flight can finish within ``stop_timeout_seconds``, then all is committed.

        May be called twice. An error that ended the query before is not raised here; see ``exception``.
        Called by the query's own handler, on the driver, it returns at once, because the query waits for that
        very handler: the query stops when the handler has returned, and ``exception`` then has what this
        would raise.

        Raises:
            KinesisSpoutError: the last commit or dead letters could not be stored; their records come again.
        """
        if any(engine.runs_handler for engine in self._engines):
            threading.Thread(target=self._stop_apart, name="kinesis-spout-stop").start()
            return
        try:
            self._streams.close()
        finally:
            self.monitored.close()

    def _stop_apart(self) -> None:
        try:
            self._streams.close()
        except KinesisSpoutError as error:
            _log.warning("the query was stopped by its handler, and: %s", error)
            self._streams.fail(error)
        finally:
            self.monitored.close()

    def __repr__(self) -> str:
        return (
            f"SpoutQuery(name={self._name!r}, stream={self._config.stream!r}, app={self._config.app!r}, "
            f"status={self.status['message']!r})"
        )


def task_settings(config: SpoutConfig) -> TaskSettings:
    # A batch that uses its full time must not look like one that hangs: it handles for twice this time
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
    ports: StreamsPorts,
    context: SparkContext,
    make_runner: Callable[[SpoutConfig], BatchRunner],
    name: str | None,
    *,
    door: str,
    companion: Companion | None = None,
) -> SpoutQuery:
    """Start a query; its handle's ``stop`` closes the ports. A start that fails closes them as well.

    Args:
        config: of all its streams.
        ports: closed with the query.
        context: what the jobs run on.
        make_runner: makes what runs the jobs of one stream, by the stream's settings.
        name: the query's; the application's unless given.
        door: what the user called, for the log.
        companion: what changes with the records that are finished. Then one batch runs at a time.

    Raises:
        KinesisSpoutError: see ``StreamSet.start``.
    """
    slots = BatchSlots(config.max_concurrent_batches)

    def open_one(of_one: SpoutConfig, ports: Ports) -> MicroBatchEngine:
        # The engine times out whole jobs: it does not track the records inside one.
        consumer = Consumer(
            of_one,
            ports,
            message_timeout_seconds=None,
            door=door,
            companion=companion,
        )
        try:
            engine = MicroBatchEngine(
                consumer,
                make_runner(of_one),
                _engine_settings(of_one, context, companion),
                # The name is part of the tags of its jobs, which must differ.
                f"{query.name}/{of_one.stream_name}" if config.is_several else query.name,
                slots=slots,
                on_end=streams.look,
            )
            engine.start()
        except BaseException:
            consumer.close(commit=False)
            raise
        return engine

    streams = StreamSet(config, ports, open_one)
    try:
        query = SpoutQuery(config, streams, name or config.app, monitored=Monitored(config.http))
    except BaseException:
        streams.close()
        raise
    try:
        streams.start()
    except BaseException:
        query.monitored.close()
        raise
    streams.watch(over=lambda: _end(streams, query.name))
    query.monitored.watch(query)
    return query


def _end(streams: StreamSet[MicroBatchEngine], name: str) -> None:
    """Stop all streams, because all are done, or one has ended with an error that ends the query."""
    if streams.error is not None and len(streams.current) > 1:
        _log.error("the query %s ends because one of its streams has ended: %s", name, streams.error)
    try:
        streams.close()
    except KinesisSpoutError as error:
        _log.warning("the last progress could not be stored: %s", error)


def _engine_settings(
    config: SpoutConfig, context: SparkContext, companion: Companion | None
) -> EngineSettings:
    poll_seconds = max(config.fetch_period_seconds, config.poll_interval_seconds)
    return EngineSettings(
        parallelism=lambda: context.defaultParallelism,
        shards_per_task=config.shards_per_task,
        max_concurrent_batches=1 if companion is not None else config.max_concurrent_batches,
        records_per_fetch=config.max_records_per_fetch,
        poll_seconds=poll_seconds,
        idle_poll_seconds=max(poll_seconds, config.idle_poll_interval_seconds),
        max_buffered_bytes=config.max_buffered_bytes,
        driver_reads_all=config.fan_out_consumer is not None,
        batch_timeout_seconds=config.message_timeout_seconds,
    )
