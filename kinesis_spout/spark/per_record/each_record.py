"""Per-record outcomes inside Structured Streaming: a handler for each record, retries, then dead letters.

::

    bill = each_record(charge, dead_letters="file:///var/lib/billing/dead", app="billing")
    spark.readStream.format("kinesis").option("streamName", "orders").load().writeStream.foreachBatch(bill)

**When a micro-batch is done.** Every record of it is acked, or is a durable dead letter. Only then does the
function return, and only then does Spark commit the micro-batch. So a record that keeps failing holds up its
query while it is retried, by the sum of its back-offs. A ``stop()`` of the query takes effect after the
back-off under way; the micro-batch is then not committed, as after a crash.

**What is repeated after a crash.** The whole micro-batch, from its first delivery: acked records are delivered
again and dead letters may be stored twice. Within a micro-batch Spark repeats a task that died. So handlers
must tolerate repetition; `KinesisSpout.foreach_record` repeats less: it keeps the outcome of each record.

**How it runs.** One Spark job per round of deliveries. The handler is called inside the tasks that read the
micro-batch, by the delivery of the record door. Only failed records come back to the driver, with their data. The
next round delivers those of them that are due, out of what came back: the source is read once. Records of a
partition are delivered in the order of its rows; a failed record does not hold up those behind it.

**When practically every record fails.** Nothing is given up then, and no delivery counts: the micro-batch is held
(see ``failures``), one record of it is tried at a time, at intervals that grow up to 15 s, and when one
succeeds the others follow. A ``stop()`` takes effect after the interval under way.

**What is bounded.** A task gives back at most ``max_failed_bytes_per_task``. When more fails (the database is
down, the format has changed) it stops calling the handler, and the micro-batch fails with `TooManyFailures`:
that is trouble of the whole, which retries and dead letters of single records would only blur. Spark's
``spark.driver.maxResultSize`` bounds what all tasks together bring back.
"""

import logging
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from kinesis_spout.consumer.consumer_state import DEFAULT_SPARED_SECONDS
from kinesis_spout.consumer.trouble_reports import most_frequent, trouble_text
from kinesis_spout.kinesis import KinesisClientSettings
from kinesis_spout.model.clock import Clock, SystemClock
from kinesis_spout.model.errors import InvalidConfig, KinesisSpoutError
from kinesis_spout.model.logs import FailureKinds
from kinesis_spout.model.record import DeadLetter, Record
from kinesis_spout.model.scheme import resolve
from kinesis_spout.model.unfinished_work import refuse_generator_function
from kinesis_spout.processes.executor_python import unfit_python
from kinesis_spout.settings.setting_messages import shown
from kinesis_spout.spark.per_record.delivery import (
    OUTCOMES_DDL,
    DeliverRecords,
    Round,
    check_columns,
    table_of,
)
from kinesis_spout.spark.per_record.failures import FailedRecords
from kinesis_spout.spark.per_record.on_demand_sink import OnDemandSink
from kinesis_spout.spark.pickled_handler import PickledHandler
from kinesis_spout.spark.tasks.handlers import record_handler
from shard_state import Blame, RedeliveryPolicy

_MOST_TOGETHER: Final = 1_000

_log = logging.getLogger(__name__)


class TooManyFailures(KinesisSpoutError):  # noqa: N818 - the names say what happened
    """More records of one task failed than may be kept for another delivery. The micro-batch fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordOutcomes:
    """What became of the records of one micro-batch: each is acked or dead-lettered."""

    batch_id: int
    delivered: int
    """How many records there were; each was delivered at least once."""
    acked: int
    retried: int
    """Deliveries after a record's first."""
    dead_lettered: int
    seconds: float
    """From the first delivery to the last outcome, back-offs included."""


def each_record(
    handler: Callable[[Any], object],
    *,
    dead_letters: str,
    app: str,
    scheme: str | Callable[[Record], Any] = "raw",
    retry_limit: int | None = 3,
    retry_backoff_seconds: float = 1.0,
    retry_backoff_cap_seconds: float = 60.0,
    maximum_record_age_seconds: float | None = None,
    concurrency: int = 1,
    record_timeout_seconds: float | None = None,
    max_spared_seconds: float | None = None,
    max_failed_bytes_per_task: int = 64 * 1024 * 1024,
    dead_letter_client: KinesisClientSettings | None = None,
    on_progress: Callable[[RecordOutcomes], None] | None = None,
    clock: Clock | None = None,
) -> Callable[[DataFrame, int], None]:
    """Make a function for ``foreachBatch`` that delivers each record of ``format("kinesis")`` to a handler.

    The module's text says what it promises. It can be pickled if the handler, ``on_progress`` and ``clock``
    can, and works under Spark Connect, where the function and ``on_progress`` run on the server.

    Args:
        handler: called on the executors with ``scheme(record)``. Returning acks the record, raising fails it;
            `Reject` dead-letters it at once, and `RetryLater` chooses the delay before its retry. May be an
            ``async def``: then it runs in an event loop, which lives as long as the worker keeps the handler.
        dead_letters: where given-up records go: a directory, ``file:///directory``,
            ``s3://bucket/prefix``, ``hdfs://host/directory``, ``gs://bucket/directory`` or ``kinesis://stream``.
            Opened by the process that runs ``foreachBatch``: for a check before the first micro-batch, and when
            there is something to write.
        app: the application's name, kept in the dead letters.
        scheme: prepares what the handler is given: "raw" (a `Record`), "text", "json", ``"module:callable"``
            or a callable; what it raises fails the record.
        retry_limit: deliveries after the first, 0 or more. None retries for ever: the query goes no further.
        retry_backoff_seconds: the delay before the first retry; it doubles up to the cap.
        retry_backoff_cap_seconds: the longest delay, unless `RetryLater` asks for more.
        maximum_record_age_seconds: a failed record that would be older than this at its retry, counted from
            its arrival in the stream, is dead-lettered instead, as "expired". Every record is delivered once,
            however old.
        concurrency: records that a task handles at a time, on threads or in the event loop; 1 to 1,000. With more
            than one they begin in the order of the rows, and end in any.
        record_timeout_seconds: how long the handler may take for a record, before that fails; None: no
            limit. A coroutine is cancelled; a thread is abandoned, and its outcome ignored.
        max_spared_seconds: how long a record is not given up, at most, while other records fail as it does, so
            that the handler seems to be at fault; the micro-batch is held meanwhile. 0: each failure counts;
            None: 600.
        max_failed_bytes_per_task: of failed records that one task may bring back to the driver.
        dead_letter_client: how to reach the stream of ``kinesis://``; None: as boto3 finds it.
        on_progress: called for every finished micro-batch. What it raises is logged and goes no further.
        clock: what back-offs wait on and ages are measured with.

    The function raises:
        InvalidConfig: the DataFrame lacks a column, or has it with another type. ``subSequenceNumber`` is needed
            where aggregated records are read: see ``extraColumns``.
        TooManyFailures: see the module's text.
        DeadLetterError: dead letters could not be made durable, at several tries.

    Raises:
        InvalidConfig: an argument is out of its range.
    """
    _check("handler", callable(handler), "a callable", handler)
    refuse_generator_function("handler", handler)
    _check("app", bool(app), "the application's name", app)
    _check(
        "max_failed_bytes_per_task", max_failed_bytes_per_task > 0, "more than 0", max_failed_bytes_per_task
    )
    age = maximum_record_age_seconds
    clock = clock or SystemClock()
    _check("concurrency", 1 <= concurrency <= _MOST_TOGETHER, f"1 to {_MOST_TOGETHER}", concurrency)
    timeout = record_timeout_seconds
    _check("record_timeout_seconds", timeout is None or timeout > 0, "None or more than 0", timeout)
    _check("maximum_record_age_seconds", age is None or age > 0, "None or more than 0", age)
    try:
        policy = RedeliveryPolicy(
            limit=retry_limit, backoff_seconds=retry_backoff_seconds, cap_seconds=retry_backoff_cap_seconds
        )
    except ValueError as error:
        raise InvalidConfig(f"retry_limit and retry_backoff_…: {error}") from error
    spared = DEFAULT_SPARED_SECONDS if max_spared_seconds is None else max_spared_seconds
    _check("max_spared_seconds", spared >= 0, "0 or more", spared)
    return _EachRecord(
        deliver=DeliverRecords(
            PickledHandler.of(
                record_handler(handler, resolve(scheme), concurrency=concurrency, timeout_seconds=timeout)
            ),
            max_failed_bytes_per_task,
        ),
        policy=policy,
        maximum_record_age_seconds=age,
        dead_letters=OnDemandSink(
            url=dead_letters, client=dead_letter_client or KinesisClientSettings(), clock=clock
        ),
        app=app,
        blame=Blame(spared, retry_seconds=policy.all_seconds, limit=retry_limit),
        on_progress=on_progress,
        clock=clock,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _EachRecord:
    """The function for ``foreachBatch``. Picklable; keeps ``blame`` and ``failures`` between micro-batches."""

    deliver: DeliverRecords
    policy: RedeliveryPolicy
    maximum_record_age_seconds: float | None
    dead_letters: OnDemandSink
    app: str
    blame: Blame
    failures: FailureKinds = field(default_factory=FailureKinds)
    on_progress: Callable[[RecordOutcomes], None] | None
    clock: Clock

    def __repr__(self) -> str:
        return f"each_record(app={self.app!r}, dead_letters={shown(self.dead_letters.url)})"

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        columns = check_columns(df)
        self.dead_letters.check_writable()
        started = self.clock.monotonic()
        failed = FailedRecords(self.app, self.policy, self.blame, self.maximum_record_age_seconds)
        delivered, dead = self._round(df.select(*columns), self.deliver, batch_id, failed)
        retried = 0
        while (due := failed.next_due) is not None:
            self.clock.sleep(due - self.clock.monotonic())
            taken = failed.take_due(self.clock.monotonic())
            again = df.sparkSession.createDataFrame(table_of(taken))
            redelivered, given_up = self._round(again, self.deliver.again(), batch_id, failed)
            retried += redelivered
            dead += given_up
        outcomes = RecordOutcomes(
            batch_id=batch_id,
            delivered=delivered,
            acked=delivered - dead,
            retried=retried,
            dead_lettered=dead,
            seconds=self.clock.monotonic() - started,
        )
        self._tell(outcomes)

    def _round(
        self, df: DataFrame, deliver: DeliverRecords, batch_id: int, failed: FailedRecords
    ) -> tuple[int, int]:
        """Deliver records once, in one job. Returns how many were delivered, and how many dead-lettered."""
        try:
            outcomes = Round.of(df.mapInArrow(deliver, OUTCOMES_DDL).toArrow())
        except PySparkException as error:
            unfit = unfit_python(str(error))
            if unfit is None:
                raise
            raise InvalidConfig(unfit) from error
        for end in outcomes.ends:
            if end.overflowed_by is not None:
                raise TooManyFailures(
                    f"micro-batch {batch_id}: expected at most {deliver.max_failed_bytes} bytes of failed records "
                    f"from a task, got more within {outcomes.delivered} deliveries, the last with "
                    f"{end.overflowed_by!r}; is something down that the handler needs? If so many may fail, raise "
                    "max_failed_bytes_per_task or read less at a time (maxBytesPerTrigger)"
                )
        for end in outcomes.ends:
            if end.ambiguous is not None:
                raise InvalidConfig(
                    "each_record: expected the column subSequenceNumber, because several rows are "
                    f"{end.ambiguous}: they came in one aggregated (KPL) record, and nothing else tells them and "
                    "their dead letters "
                    'apart. Read with .option("extraColumns", "subSequenceNumber,explicitHashKey"), and keep both'
                )
        letters = self._settle(outcomes, batch_id, failed)
        if letters:
            self.dead_letters.write(letters)
            _log.info("micro-batch %d: dead-lettered %d records", batch_id, len(letters))
        return outcomes.delivered, len(letters)

    def _settle(self, outcomes: Round, batch_id: int, failed: FailedRecords) -> list[DeadLetter]:
        """Decide upon what failed, and say when the handler is at fault."""
        for unfinished, _ in outcomes.failures:
            self.failures.add(unfinished.raised)
        was_troubled, monotonic = self.blame.is_troubled, self.clock.monotonic()
        letters = failed.settle(
            outcomes.failures,
            delivered=outcomes.delivered,
            now=self.clock.time(),
            monotonic=monotonic,
            random=random.random(),  # noqa: S311 - spreads retries, guards nothing
        )
        trouble = self.blame.trouble(monotonic)
        if trouble is not None and not was_troubled:
            said = trouble_text(trouble) + most_frequent(self.failures)
            _log.warning("micro-batch %d is held: %s. Nothing is given up", batch_id, said)
        elif trouble is None and was_troubled:
            _log.info("micro-batch %d goes on: the handler works again", batch_id)
        return letters

    def _tell(self, outcomes: RecordOutcomes) -> None:
        if self.on_progress is None:
            return
        try:
            self.on_progress(outcomes)
        except Exception:  # noqa: BLE001 - logged; an observer's mistake must not repeat a finished micro-batch
            _log.exception("on_progress of each_record raised; micro-batch %d is finished", outcomes.batch_id)


def _check(name: str, fits: bool, allowed: str, value: object) -> None:  # noqa: FBT001 - as one reads it
    if not fits:
        raise InvalidConfig(f"{name}: expected {allowed}, got {value!r}")
