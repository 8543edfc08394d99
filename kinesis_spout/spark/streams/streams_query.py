"""The handle on a query that reads several streams: each has a ``SpoutQuery``, and this speaks for all of them."""

import logging
import threading
import uuid
from collections.abc import Callable
from time import monotonic
from typing import Any, Final

from kinesis_spout.consumer.counters import Counters
from kinesis_spout.consumer.ports import Ports
from kinesis_spout.consumer.streams.joint_view import JointView, of_stream
from kinesis_spout.consumer.streams.stream_set import StreamSet
from kinesis_spout.consumer.streams.streams_ports import StreamsPorts
from kinesis_spout.model.errors import InvalidConfig, KinesisSpoutError, StreamNotFound
from kinesis_spout.settings import SpoutConfig
from kinesis_spout.spark.driver.batch_progress import totals_of
from kinesis_spout.spark.driver.query import SpoutQuery
from kinesis_spout.spark.streams.batch_slots import BatchSlots
from shard_state import BreakerPause, ShardStatus

StartOne = Callable[[SpoutConfig, Ports, str, BatchSlots], SpoutQuery]
"""Starts the query of one stream: its settings, its ports, its name, and where it gets room for its batches."""

_LOOK_SECONDS: Final = 0.05

_log = logging.getLogger(__name__)


class StreamsQuery(SpoutQuery):
    """One running spout on Spark that reads several streams. Its methods may be called from any thread.

    A stream that is deleted ends alone, and shows in ``gone``. An error of any other kind that ends one stream
    ends the query. `max_concurrent_batches` and `max_buffered_bytes` are those of all streams together. It has all
    that a ``SpoutQuery`` has, and nothing of how that does it.
    """

    def __init__(self, config: SpoutConfig, ports: StreamsPorts, start_one: StartOne, name: str) -> None:
        self._config = config
        self._name = name
        self._start_one = start_one
        self._slots = BatchSlots(config.max_concurrent_batches)
        self._run_id = str(uuid.uuid4())
        self._id = str(uuid.uuid5(uuid.NAMESPACE_URL, f"kinesis-spout:{config.app}/{config.stream}"))
        self._ended = threading.Event()
        self._streams = StreamSet(
            config,
            ports,
            open_one=self._open_one,
            close_one=SpoutQuery.stop,
            retired=self._retire,
            ended=_ended_with,
            share=SpoutQuery.share_memory,
            is_done=_is_done,
            over=self._end_all,
        )
        self._view = JointView(self._streams)

    def start(self) -> None:
        """Start the queries of all streams; see ``StreamSet.start``."""
        self._streams.start()
        self._streams.watch()

    def _open_one(self, config: SpoutConfig, ports: Ports) -> SpoutQuery:
        # The name is part of the tags of its jobs, which must differ.
        return self._start_one(config, ports, f"{self._name}/{config.stream_name}", self._slots)

    def _retire(self, query: SpoutQuery) -> None:
        self._view.left(query)

    def _end_all(self) -> None:
        """Stop all streams, as all are done, or one has ended with an error that is the query's."""
        if self._streams.error is not None:
            _log.error("the query %s ends, for one of its streams has: %s", self._name, self._streams.error)
        try:
            self._stop()
        except KinesisSpoutError as error:
            _log.warning("the last progress could not be stored: %s", error)

    # What it is and does

    @property
    def streams(self) -> dict[str, SpoutQuery]:
        """The query of each stream that is read now, by the stream's name: its progress, counters, shards."""
        return dict(self._streams.current)

    @property
    def gone(self) -> dict[str, BaseException]:
        """The streams that are deleted, and how that was noticed. They are looked for again."""
        return dict(self._streams.gone)

    @property
    def isActive(self) -> bool:  # noqa: N802
        """Whether the query runs: it was neither stopped nor ended by an error, nor has it come up to its end."""
        return not self._ended.is_set() and self._streams.error is None

    @property
    def is_done(self) -> bool:
        """Whether every stream has come up to the query's `until`; see ``SpoutQuery``."""
        return self._ended.is_set() and self._streams.is_done

    @property
    def is_bounded(self) -> bool:
        """Whether the query ends by itself: it has an `until`."""
        return self._config.until is not None

    @property
    def stream_name(self) -> str:
        """The streams that it reads, as they were given."""
        return self._config.stream

    @property
    def status(self) -> dict[str, Any]:
        """What the query is doing now, or how it ended: message, isDataAvailable, isTriggerActive."""
        if not self.isActive:
            error = self.exception()
            by_itself = "Done: came up to its end" if self.is_done else "Stopped"
            ended = f"Terminated with exception: {type(error).__name__}: {error}" if error else by_itself
            return {"message": ended, "isDataAvailable": False, "isTriggerActive": False}
        each = [query.status for query in self.streams.values()]
        busy = [status for status in each if status["isTriggerActive"]]
        if not each:
            return {"message": "Waiting for streams", "isDataAvailable": False, "isTriggerActive": False}
        return {
            "message": (busy or each)[0]["message"],
            "isDataAvailable": any(status["isDataAvailable"] for status in each),
            "isTriggerActive": bool(busy),
        }

    @property
    def lastProgress(self) -> dict[str, Any] | None:  # noqa: N802
        """The progress of the newest micro-batch, with all streams' totals and sources; None before the first."""
        progress = self.recentProgress
        return progress[-1] if progress else None

    @property
    def recentProgress(self) -> list[dict[str, Any]]:  # noqa: N802
        """The progress of the newest micro-batches of all streams, oldest first, up to 100 of each.

        Each is of one stream, which its source names. The newest has the totals of all streams together, and the
        newest source of each.
        """
        run = {"id": self._id, "runId": self._run_id, "name": self._name}
        by_stream = [query.recentProgress for query in self.streams.values()]
        told = [progress | run for of_one in by_stream for progress in of_one]
        told.sort(key=lambda progress: str(progress["timestamp"]))
        if told:
            sources = [of_one[-1]["sources"][0] for of_one in by_stream if of_one]
            paused = sorted(self.paused_shards)
            told[-1] |= {
                "totals": totals_of(self.counters),
                "sources": sources,
                "pausedByOperator": paused,
            }
        return told

    @property
    def counters(self) -> Counters:
        """What happened since the start, on all streams."""
        return self._view.counters

    @property
    def last_error(self) -> KinesisSpoutError | None:
        """An error that is being retried, of any stream; else why a stream is gone."""
        error = self._view.last_error
        return error if isinstance(error, KinesisSpoutError) else None

    @property
    def failures(self) -> dict[str, int]:
        """How often the handler failed with each kind of exception, by its type and the line that raised it."""
        return self._view.failures

    @property
    def breaker_pause(self) -> BreakerPause | None:
        """The state of a pause, of the first stream that has one: each pauses by itself."""
        return self._view.breaker_pause

    def resume(self) -> bool:
        """End the pauses of all streams now; False if there is none."""
        return self._view.resume()

    def pause_shards(self, *shard_ids: str) -> None:
        """Pause shards, named as ``stream/shardId``, for all members; all of all streams if none is named.

        See ``SpoutQuery``.
        """
        self._view.pause_shards(shard_ids)

    def resume_shards(self, *shard_ids: str) -> bool:
        """End such pauses; see ``SpoutQuery``."""
        return self._view.resume_shards(shard_ids)

    @property
    def paused_by_operator(self) -> str | None:
        """What an operator has paused of the first stream of which something is; None if nothing."""
        said = (query.paused_by_operator for query in self.streams.values())
        return next((text for text in said if text is not None), None)

    @property
    def paused_shards(self) -> frozenset[str]:
        """The shards that an operator has paused, as ``stream/shardId``; see ``SpoutQuery``."""
        return self._view.paused_shards

    def shards(self) -> list[ShardStatus]:
        """Every known shard of every stream, by ``stream/shardId``, parents before children."""
        return [shard for name, query in self.streams.items() for shard in of_stream(name, query.shards())]

    @property
    def runs_handler(self) -> bool:
        """Whether the calling thread runs the handler of one of the streams, on the driver, now."""
        return any(query.runs_handler for query in self.streams.values())

    def share_memory(self, sharers: int) -> None:
        """Keep of `max_buffered_bytes` the share of one query of so many."""
        for query in self.streams.values():
            query.share_memory(sharers * len(self.streams))

    # How it ends

    def exception(self) -> BaseException | None:
        """The error that ended the query, if one did."""
        return self._streams.error

    def awaitTermination(self, timeout: float | None = None) -> bool | None:  # noqa: N802
        """Wait until the query ends; see ``SpoutQuery``."""
        if timeout is not None and timeout <= 0:
            raise InvalidConfig(f"expected a timeout of more than 0 seconds, got {timeout!r}")
        until = None if timeout is None else monotonic() + timeout
        while not (self._ended.wait(_LOOK_SECONDS) or self.is_done):
            if until is not None and monotonic() >= until:
                return False
        if self._streams.error is not None:
            raise self._streams.error
        return None if timeout is None else True

    def processAllAvailable(self) -> None:  # noqa: N802
        """Wait until everything that is in the streams now is finished; see ``SpoutQuery``.

        Streams that are found or end meanwhile are not waited for.
        """
        for name, query in self.streams.items():
            try:
                query.processAllAvailable()
            except StreamNotFound as gone:
                self._streams.end(name, gone)
        if self._streams.error is not None:
            raise self._streams.error

    def stop(self) -> None:
        """End the query: each stream as ``SpoutQuery.stop``, all at a time. May be called twice.

        Raises:
            KinesisSpoutError: what the first of them that could not store its last progress raised.
        """
        super().stop()

    def _told_late(self, error: KinesisSpoutError) -> None:
        self._streams.error = self._streams.error or error

    def _stop(self) -> None:
        try:
            self._streams.close()
        finally:
            self._ended.set()

    def __repr__(self) -> str:
        return (
            f"StreamsQuery(name={self._name!r}, stream={self._config.stream!r}, app={self._config.app!r}, "
            f"status={self.status['message']!r})"
        )


def _is_done(query: SpoutQuery) -> bool:
    return query.is_done


def _ended_with(query: SpoutQuery) -> BaseException | None:
    """Give what a stream's query has ended with; also that the stream is gone, where others read it."""
    error = query.exception()
    if error is not None or not query.isActive:
        return error
    return query.last_error if isinstance(query.last_error, StreamNotFound) else None


def start_streams_query(
    config: SpoutConfig, ports: StreamsPorts, start_one: StartOne, name: str
) -> StreamsQuery:
    """Start a query on several streams; its handle's ``stop`` closes the ports. So does a start that fails.

    Args:
        config: of all streams.
        ports: the outside world.
        start_one: starts the query of one stream.
        name: the query's.

    Raises:
        KinesisSpoutError: see ``StreamSet.start``.
    """
    query = StreamsQuery(config, ports, start_one, name)
    query.start()
    return query
