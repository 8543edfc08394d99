"""A streaming read's life in the log, at INFO: a line for each change, a summary once a minute."""

import logging
from collections.abc import Iterable, Mapping, Sequence

from kinesis_spout.model.logs import (
    SUMMARY_SECONDS,
    LogPace,
    Reshards,
    named,
    of_stream,
    package_version,
    readable,
    shards,
)
from kinesis_spout.structured.offsets import QueryOffset
from shard_state import Position, PositionType, Shard

_log = logging.getLogger(__name__)


class QueryLog:
    """Logs the life of one run of a query. Mutable; one thread's."""

    def __init__(self, streams: Sequence[str]) -> None:
        self._streams = streams
        self._reshards: dict[str, Reshards] = {}
        self._finished: set[tuple[str, str]] | None = None
        self._is_resolved = False
        self._is_paused = False
        self._short_at = 0.0
        self._is_running = False
        self._pace = LogPace()
        self._batches = 0

    def started(self, listed: Mapping[str, Sequence[Shard]]) -> None:
        self._is_running = True
        for stream in listed:
            _log.info(
                'started: stream %s, %s, kinesis-spout %s, by readStream.format("kinesis")',
                stream,
                shards(len(listed[stream])),
                package_version(),
            )
        self.listed(listed)

    def resolved(self, start: Position, first: Position) -> None:
        """Log, once, what LATEST means to a query without a checkpoint."""
        if start.type is PositionType.LATEST and not self._is_resolved:
            self._is_resolved = True
            _log.info(
                "position: a query without a checkpoint reads from %s (initialPosition latest)",
                readable(first),
            )

    def listed(self, listed: Mapping[str, Iterable[Shard]]) -> None:
        self._streams = list(listed) or self._streams
        self._reshards = {stream: self._reshards.get(stream) or Reshards() for stream in listed}
        for stream, found in listed.items():
            for line in self._reshards[stream].listed(found, stream):
                _log.info("%s", line)

    def advanced(self, start: QueryOffset, *, is_short: bool, now: float) -> None:
        """A backlog pauses reading before each batch: logged once, and its end after a minute without."""
        finished = {
            (name, shard_id)
            for name, stream in start.streams.items()
            for shard_id, shard in stream.shards.items()
            if shard.at_end
        }
        known, self._finished = self._finished, finished | (self._finished or set())
        for stream in self._streams if known is not None else ():
            over = [shard_id for name, shard_id in finished - (known or set()) if name == stream]
            if over:
                _log.info("finished %s: read to the end", of_stream(over, stream))
        if is_short:
            self._short_at = now
        if is_short != self._is_paused and (is_short or now - self._short_at >= SUMMARY_SECONDS):
            self._is_paused = is_short
            what = "paused" if is_short else "resumed"
            _log.info("%s reading ahead of %s (maxBufferedBytes)", what, named(self._streams))

    def done(self, rows: int, totals: str, now: float) -> None:
        self._batches += 1
        _log.debug("batch of %d records is done", rows)
        if self._pace.may_tell(now):
            _log.info("done: %d batches of %s; in this run %s", self._batches, named(self._streams), totals)
            self._batches = 0

    def stopped(self, totals: str) -> None:
        if self._is_running:
            self._is_running = False
            _log.info("stopped reading %s: Spark said so; in this run %s", named(self._streams), totals)
