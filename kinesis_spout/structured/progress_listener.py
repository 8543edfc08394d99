"""Watches the progress of Kinesis sources: lag, rates, shards and throttles of every micro-batch.

Pass a listener to ``spark.streams.addListener``. Under Spark Connect the listener is called in the client's
process, where it was made. The readers' own figures need Spark 4.2 or later (``reportLatestOffset``); before,
no progress is recognized as ours.
"""

import logging
import math
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.structured.source_progress import SourceProgress

MAX_QUERIES: Final = 100
"""Of how many queries the progress is kept. Beyond it, the query that was silent for longest is forgotten."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class KinesisProgress:
    """One Kinesis source in one micro-batch. A query that reads two such sources gives two of these a batch."""

    name: str | None
    """The query's name, if it has one."""
    query_id: str
    """The same after a restart from the checkpoint."""
    run_id: str
    batch_id: int
    timestamp: datetime
    """When the micro-batch was triggered."""
    streams: tuple[str, ...]
    mode: str
    """The consumer mode: "polling" or "efo"."""
    rows: int
    """Of this micro-batch."""
    input_rows_per_second: float
    """Rates are Spark's; 0 where Spark gives no rate."""
    processed_rows_per_second: float
    min_ms_behind_latest: int
    avg_ms_behind_latest: int
    max_ms_behind_latest: int
    total_shards: int
    closed_shards: int
    processed_records: int
    """This count and those below are of the run so far, not of the micro-batch."""
    processed_bytes: int
    throttles: int
    buffered_bytes: int
    """What the reader has fetched ahead, at the moment."""
    aggregates: int
    """Of the run so far, as the two below: aggregated records that were read and taken apart."""
    damaged_aggregates: int
    """Records that begin like an aggregated one and are damaged. They are rows as they are."""
    records_outside_shard: int
    """User records that lie outside their shard by their hash keys. They are rows like others."""
    data_losses: int = 0
    """How often retention can have trimmed records of a shard, or a whole shard, before they were read."""


class KinesisProgressListener(StreamingQueryListener):
    """Keeps the latest progress of every query's Kinesis sources, and passes it on. Mutable; thread-safe.

    Args:
        on_progress: called for every progress, on Spark's listener thread, so it should be quick. What it
            raises is logged with its traceback and goes no further: an observer's mistake must not end the
            observation, as it would under Spark Connect.
        keep: how many to keep of each query, at least 1.

    Raises:
        InvalidConfig: ``keep`` is less than 1.
    """

    def __init__(
        self, on_progress: Callable[[KinesisProgress], None] | None = None, *, keep: int = 100
    ) -> None:
        if keep < 1:
            raise InvalidConfig(f"keep: expected at least 1, got {keep!r}")
        self._on_progress = on_progress
        self._keep = keep
        self._recent: dict[str, deque[KinesisProgress]] = {}
        self._lock = threading.Lock()

    def recent(self, query_id: str | UUID) -> tuple[KinesisProgress, ...]:
        """The kept progress of a query (``StreamingQuery.id``), oldest first; also after its end."""
        with self._lock:
            return tuple(self._recent.get(str(query_id), ()))

    def latest(self, query_id: str | UUID) -> KinesisProgress | None:
        """The last progress of a query; None if none was seen."""
        return next(reversed(self.recent(query_id)), None)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Do nothing: there is no progress yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Keep and pass on the progress of Kinesis sources; ignore other sources."""
        for progress in kinesis_progress(event.progress):
            self._store(progress)
            if self._on_progress is not None:
                self._tell(self._on_progress, progress)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Do nothing: Spark says nothing of sources while a query idles."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Do nothing: what was seen stays readable."""

    def _store(self, progress: KinesisProgress) -> None:
        with self._lock:
            # Taken out and put in again: the dict's order is by the last progress.
            kept = self._recent.pop(progress.query_id, None) or deque(maxlen=self._keep)
            kept.append(progress)
            self._recent[progress.query_id] = kept
            if len(self._recent) > MAX_QUERIES:
                del self._recent[next(iter(self._recent))]

    @staticmethod
    def _tell(on_progress: Callable[[KinesisProgress], None], progress: KinesisProgress) -> None:
        try:
            on_progress(progress)
        except Exception:  # noqa: BLE001 - logged; see the class
            _log.exception("on_progress of a KinesisProgressListener raised; the listener goes on")


def kinesis_progress(progress: StreamingQueryProgress) -> list[KinesisProgress]:
    """The Kinesis sources in a query's progress (``StreamingQuery.lastProgress``, too)."""
    found = []
    for source in progress.sources:
        of_source = SourceProgress.from_document(source.latestOffset)
        if of_source is not None:
            found.append(
                KinesisProgress(
                    name=progress.name,
                    query_id=str(progress.id),
                    run_id=str(progress.runId),
                    batch_id=progress.batchId,
                    timestamp=datetime.fromisoformat(progress.timestamp),
                    rows=source.numInputRows,
                    input_rows_per_second=_rate(source.inputRowsPerSecond),
                    processed_rows_per_second=_rate(source.processedRowsPerSecond),
                    **{field: getattr(of_source, field) for field in SourceProgress.__struct_fields__},
                )
            )
    return found


def _rate(rows_per_second: float | None) -> float:
    """Spark divides by the time that passed, possibly 0: NaN and infinity are no rates."""
    return rows_per_second if rows_per_second is not None and math.isfinite(rows_per_second) else 0.0
