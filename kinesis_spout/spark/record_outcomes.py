"""Per-record outcomes inside Structured Streaming: a handler for each record, retries, then dead letters.

A micro-batch is done when every record of it is acked, or is a durable dead letter; only then does the function
return, and Spark commit. So a record that keeps failing holds up its query by the sum of its back-offs, and a
``stop()`` of the query takes effect after the back-off under way. After a crash the whole micro-batch is repeated,
and within one Spark repeats a task that died: handlers must tolerate repetition.

Each round of deliveries is one Spark job. The handler is called inside the tasks that read the micro-batch, by the
delivery of the record door; only what failed comes back to the driver, and the next round delivers what is due of
it: the source is read once. While practically every record fails nothing is given up (``shard_state.blame``), and
one record at a time is tried, at intervals that grow up to 15 s.
"""

import logging
import math
import pickle
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from operator import itemgetter
from time import monotonic
from typing import Any, Final, Unpack

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from kinesis_spout.consumer.consumer_state import max_spared_seconds, retry_policy
from kinesis_spout.consumer.open_ports import client_settings
from kinesis_spout.consumer.trouble_reports import most_frequent, trouble_text
from kinesis_spout.dead_letters.log_lines import DeadLetterLines
from kinesis_spout.dead_letters.sink_url import check_once, open_sink
from kinesis_spout.model.clock import Clock, SystemClock
from kinesis_spout.model.columns import HANDLED_COLUMNS, RECORD_COLUMNS
from kinesis_spout.model.errors import DeadLetterError, InvalidConfig, KinesisSpoutError
from kinesis_spout.model.logs import FailureKinds
from kinesis_spout.model.record import DeadLetter, Record
from kinesis_spout.model.scheme import resolve
from kinesis_spout.ports import DeadLetterSink
from kinesis_spout.processes.executor_python import unfit_python
from kinesis_spout.settings import SpoutConfig, SpoutSettings
from kinesis_spout.settings.setting_messages import shown
from kinesis_spout.settings.table.connection import CLIENT
from kinesis_spout.spark.pickled_handler import PickledHandler
from kinesis_spout.spark.tasks.arrow_delivery import records_of
from kinesis_spout.spark.tasks.delivery import DeliverySettings
from kinesis_spout.spark.tasks.handlers import AnyHandler, delivery_to, record_handler
from kinesis_spout.spark.tasks.work import Unfinished, WorkResult
from shard_state import (
    Blame,
    Counts,
    Fate,
    History,
    Order,
    Position,
    RetryPolicy,
    SliceKind,
    SlicePlan,
    UnackedRecord,
)

_SETTINGS: Final = (
    "app",
    "dead_letters",
    "retry_limit",
    "retry_backoff_seconds",
    "retry_backoff_multiplier",
    "retry_backoff_cap_seconds",
    "retry_jitter",
    "maximum_record_age_seconds",
    "max_spared_seconds",
    "concurrency",
    "record_timeout_seconds",
    *(row.setting for row in CLIENT),
)
_ANY_STREAM: Final = "any"
_PICKLED: Final = "pickled"
_LETTER_PAUSES: Final = (0.5, 1.0, 2.0, 4.0, None)
"""Seconds between the tries to write dead letters: failing a micro-batch repeats all of it."""
_OVERHEAD_BYTES: Final = 500
"""The approximate size of a failed record without its data, its error and where that was raised."""
_NO_LIMIT: Final = 1 << 62
_WHOLE_BATCH: Final = SlicePlan(
    shard_id="",
    epoch=0,
    kind=SliceKind.RETRY,  # the rows can be of several shards
    limit=_NO_LIMIT,
    position=Position.trim_horizon(),
    max_failures=_NO_LIMIT,
)
_log = logging.getLogger(__name__)


class TooManyFailures(KinesisSpoutError):  # noqa: N818 - the names say what happened
    """More records of one task failed than may be kept for another delivery. The micro-batch fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordOutcomes:
    """The outcomes of one micro-batch, each of whose records is acked or dead-lettered."""

    batch_id: int
    delivered: int
    """The number of records; each was delivered at least once."""
    acked: int
    retried: int
    """Deliveries after a record's first."""
    dead_lettered: int
    seconds: float
    """From the first delivery to the last outcome, back-offs included."""


def each_record(
    handler: Callable[[Any], object],
    *,
    scheme: str | Callable[[Record], Any] = "raw",
    max_failed_bytes_per_task: int = 64 * 1024 * 1024,
    on_progress: Callable[[RecordOutcomes], None] | None = None,
    clock: Clock | None = None,
    **settings: Unpack[SpoutSettings],
) -> Callable[[DataFrame, int], None]:
    """Make a function for ``foreachBatch`` that delivers each record of ``format("kinesis")`` to a handler.

    It returns when each record of the micro-batch is acked, or dead-lettered after its retries. It can be pickled
    if the handler, ``on_progress`` and ``clock`` can, and works under Spark Connect, where it runs on the server.

    Args:
        handler: called on the executors with ``scheme(record)``, as that of `KinesisSpout.foreach_record`.
        scheme: "raw" (a `Record`), "text", "json", ``"module:callable"`` or a callable.
        max_failed_bytes_per_task: of failed records that one task may bring back to the driver. When more fails,
            it stops after the batch of Arrow at hand, and the micro-batch fails with `TooManyFailures`.
        on_progress: called for every finished micro-batch. Its errors are logged and go no further.
        clock: what back-offs wait on and ages are measured with.
        settings: as of `KinesisSpout`. ``app`` and ``dead_letters`` must be given; then those of retries
            (``retry_limit``, ``retry_backoff_seconds`` and the like, ``maximum_record_age_seconds``,
            ``max_spared_seconds``), of handlers (``concurrency``, ``record_timeout_seconds``), and of AWS, for
            dead letters there. Every record is delivered once, however old; one that would be too old at its
            retry is dead-lettered instead.

    The function raises:
        InvalidConfig: the DataFrame lacks a column, or has it with another type; or two records failed that came
            in one aggregated record, and ``subSequenceNumber`` is missing (see ``extraColumns``).
        TooManyFailures: see ``max_failed_bytes_per_task``.
        DeadLetterError: dead letters could not be made durable, at several tries.

    Raises:
        InvalidConfig: an argument is out of its range, or a setting has no meaning here.
    """
    if unknown := sorted(settings.keys() - set(_SETTINGS)):
        raise InvalidConfig(f"each_record: expected settings among {', '.join(_SETTINGS)}, got {unknown[0]}")
    if settings.get("dead_letters") is None:
        raise InvalidConfig("dead_letters: expected a directory or a URL, got none")
    if max_failed_bytes_per_task <= 0:
        raise InvalidConfig(
            f"max_failed_bytes_per_task: expected more than 0, got {max_failed_bytes_per_task}"
        )
    settings["stream"], settings["message_timeout_seconds"] = _ANY_STREAM, None
    config = SpoutConfig.of(**settings)
    timeout = config.record_timeout_seconds
    made = record_handler(handler, resolve(scheme), concurrency=config.concurrency, timeout_seconds=timeout)
    policy = retry_policy(config)
    return _EachRecord(
        deliver=DeliverRecords(PickledHandler.of(made), max_failed_bytes_per_task),
        config=config,
        policy=policy,
        blame=Blame(max_spared_seconds(config), retry_seconds=policy.all_seconds, limit=policy.limit),
        on_progress=on_progress,
        clock=clock or SystemClock(),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _EachRecord:
    """The function for ``foreachBatch``. Picklable; keeps ``blame`` and ``failures`` between micro-batches."""

    deliver: "DeliverRecords"
    config: SpoutConfig
    policy: RetryPolicy
    blame: Blame
    failures: FailureKinds = field(default_factory=FailureKinds)
    on_progress: Callable[[RecordOutcomes], None] | None
    clock: Clock

    def __repr__(self) -> str:
        return f"each_record(app={self.config.app!r}, dead_letters={shown(self.config.dead_letters_url)})"

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        columns = _columns(df)
        with closing(self._sink()) as sink:
            check_once(self.config.dead_letters_url, sink, aws=client_settings(self.config))
        started = self.clock.monotonic()
        waiting = FailedRecords(self.config, self.policy, self.blame)
        lines = DeadLetterLines(
            _log, f" of micro-batch {batch_id}; they are in {shown(self.config.dead_letters_url)}"
        )
        try:
            delivered, dead = self._round(df.select(*columns), self.deliver, batch_id, waiting, lines)
            retried, again = 0, DeliverRecords(self.deliver.handler, math.inf)
            while (due := waiting.next_due) is not None:
                self.clock.sleep(due - self.clock.monotonic())
                records = df.sparkSession.createDataFrame(table_of(waiting.take_due(self.clock.monotonic())))
                redelivered, given_up = self._round(records, again, batch_id, waiting, lines)
                retried += redelivered
                dead += given_up
        finally:
            lines.say()
        outcomes = RecordOutcomes(
            batch_id=batch_id,
            delivered=delivered,
            acked=delivered - dead,
            retried=retried,
            dead_lettered=dead,
            seconds=self.clock.monotonic() - started,
        )
        try:
            if self.on_progress is not None:
                self.on_progress(outcomes)
        except Exception:  # noqa: BLE001 - logged; an observer's mistake must not repeat a finished micro-batch
            _log.exception("on_progress of each_record raised; micro-batch %d is finished", batch_id)

    def _round(
        self,
        df: DataFrame,
        deliver: "DeliverRecords",
        batch_id: int,
        waiting: "FailedRecords",
        lines: DeadLetterLines,
    ) -> tuple[int, int]:
        """Deliver records once, in one job. Returns how many were delivered, and how many dead-lettered."""
        try:
            outcomes = df.mapInArrow(deliver, f"{_PICKLED} binary").toArrow()
        except PySparkException as error:
            unfit = unfit_python(str(error))
            if unfit is None:
                raise
            raise InvalidConfig(unfit) from error
        results: list[WorkResult] = []
        for outcome in outcomes.column(_PICKLED):
            result: WorkResult | str = pickle.loads(outcome.as_py())  # noqa: S301 - pickled by our own tasks
            if isinstance(result, str):
                raise TooManyFailures(
                    f"micro-batch {batch_id}: expected at most {deliver.max_failed_bytes} bytes of failed records "
                    f"from a task, got more, the last with {result!r}; is something down that the handler needs? "
                    "If so many may fail, raise max_failed_bytes_per_task or read less at a time "
                    "(maxBytesPerTrigger)"
                )
            results.append(result)
        letters = self._settle(results, batch_id, waiting)
        if letters:
            self._write(letters)
            lines.written(len(letters), self.clock.monotonic())
        return sum(result.delivered for result in results), len(letters)

    def _settle(
        self, results: Sequence[WorkResult], batch_id: int, waiting: "FailedRecords"
    ) -> list[DeadLetter]:
        """Decide upon what failed, and say when the handler is at fault."""
        was_troubled, now = self.blame.is_troubled, self.clock.monotonic()
        letters = waiting.settle(results, self.clock.time(), now)
        for result in results:
            for raised, count, error in result.kinds_of_failures():
                self.failures.add(raised, count, error_text=error)
        trouble = self.blame.trouble(now)
        if trouble is not None and not was_troubled:
            said = trouble_text(trouble) + most_frequent(self.failures)
            _log.warning("micro-batch %d is held: %s. Nothing is given up", batch_id, said)
        elif trouble is None and was_troubled:
            _log.info("micro-batch %d goes on: the handler works again", batch_id)
        return letters

    def _write(self, letters: list[DeadLetter]) -> None:
        """Make letters durable, at least once. Raises DeadLetterError after several tries."""
        with closing(self._sink()) as sink:
            for pause in _LETTER_PAUSES:
                try:
                    sink.write(letters)
                except DeadLetterError:
                    if pause is None:
                        raise
                    self.clock.sleep(pause)
                else:
                    return

    def _sink(self) -> DeadLetterSink:
        url, aws = self.config.dead_letters_url, client_settings(self.config)
        return open_sink(url, client=aws.connect() if url.startswith("kinesis://") else None, aws=aws)


def _columns(df: DataFrame) -> list[str]:
    """The columns that records are made of. Raises InvalidConfig: some are missing or of another type."""
    found = {column.name: column.dataType.simpleString() for column in df.schema.fields}
    wrong = [
        f"{name} {type_} ({f'got {found[name]}' if name in found else 'missing'})"
        for name, type_ in HANDLED_COLUMNS.items()
        if found.get(name, None if name in RECORD_COLUMNS else type_) != type_
    ]
    if wrong:
        raise InvalidConfig(
            f'each_record: expected a DataFrame with the columns of format("kinesis"), and among them '
            f"{', '.join(wrong)}; keep these columns as they are, and do the rest in the handler"
        )
    return [name for name in HANDLED_COLUMNS if name in found]


class DeliverRecords:
    """The function of ``mapInArrow``, over the rows of a micro-batch or the records of ``table_of``. Picklable.

    It yields a row for each batch: its pickled ``WorkResult``, or the error of the failed record that exceeded
    ``max_failed_bytes``; then it calls the handler no more.
    """

    def __init__(self, handler: PickledHandler[AnyHandler], max_failed_bytes: float) -> None:
        self.handler = handler
        self.max_failed_bytes = max_failed_bytes

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        handler, room = self.handler.load(), self.max_failed_bytes
        rules = DeliverySettings(order=Order.UNORDERED, clock=monotonic)
        for batch in batches:
            if room < 0:
                continue  # read to its end: a task that leaves its input unread costs Spark the worker
            delivery = delivery_to(handler, _WHOLE_BATCH, rules)
            delivery.deliver(_records(batch), math.inf)
            result = delivery.result()
            room -= sum(map(_size, result.unfinished))
            yield from table_of([result if room >= 0 else result.unfinished[-1].error]).to_batches()


def table_of(objects: Iterable[object]) -> pa.Table:
    return pa.table({_PICKLED: pa.array([pickle.dumps(each) for each in objects], pa.binary())})


def _records(batch: pa.RecordBatch) -> list[Record]:
    if batch.schema.names == [_PICKLED]:
        return [pickle.loads(each.as_py()) for each in batch.column(0)]  # noqa: S301 - pickled by our own driver
    return list(records_of(batch))


def _size(unfinished: Unfinished) -> int:
    traceback_chars = 0 if unfinished.raised is None else len(unfinished.raised.traceback)
    return len(unfinished.record.data) + len(unfinished.error) + traceback_chars + _OVERHEAD_BYTES


class FailedRecords:
    """The failed records of a micro-batch that wait for another delivery. Mutable. No I/O, and no clock."""

    def __init__(self, config: SpoutConfig, policy: RetryPolicy, blame: Blame) -> None:
        self._config = config
        self._policy = policy
        self._blame = blame
        self._waiting: list[tuple[float, Record, History]] = []
        """Due times, the earliest first."""
        self._taken: dict[_Name, tuple[int, History]] = {}
        """The last that were handed out: the attempt and the history of each."""

    @property
    def next_due(self) -> float | None:
        """When the first of the waiting records may be tried, on the monotonic clock; None when none waits."""
        if not self._waiting:
            return None
        due = self._waiting[0][0]
        return max(due, self._blame.next_try_at) if self._blame.is_slowed else due

    def settle(self, results: Sequence[WorkResult], now: float, monotonic: float) -> list[DeadLetter]:
        """Take the results of a job: keep failed records to retry, return letters for the others.

        ``now`` and ``monotonic`` are the same moment.
        """
        failures = [
            pair
            for result in results
            for pair in zip(result.unfinished, result.outcome.failures, strict=True)
        ]
        self._note(failures, sum(result.delivered for result in results), monotonic)
        taken, self._taken = self._taken, {}
        jitter = random.random()  # noqa: S311 - one for all: what failed together comes back in one job
        letters: list[DeadLetter] = []
        names: set[_Name] = set()
        for unfinished, failed in failures:
            record, reason, name = unfinished.record, "rejected", _name(unfinished.record)
            if name in names and record.sub_sequence_number is None:
                raise InvalidConfig(
                    "each_record: expected the column subSequenceNumber, because several rows are "
                    f"{record.message_id}: they came in one aggregated (KPL) record, and nothing else tells them "
                    'and their dead letters apart. Read with .option("extraColumns", '
                    '"subSequenceNumber,explicitHashKey"), and keep both'
                )
            names.add(name)
            if failed.fate is not Fate.REJECTED:
                gives_up, history = self._blame.weigh(
                    taken.get(name, (0, None))[1], record.attempt, monotonic
                )
                again = self._policy.after(history, random=jitter, delay_seconds=failed.delay_seconds)
                if not gives_up and not self._is_too_old(record, now + again.delay_seconds):
                    record.attempt += 1
                    self._waiting.append((monotonic + again.delay_seconds, record, history))
                    continue
                reason = "exhausted" if gives_up else "expired"
            letters.append(_letter(unfinished, self._config.app, reason, now))
        self._waiting.sort(key=itemgetter(0))
        return letters

    def _note(self, failures: Sequence[tuple[Unfinished, UnackedRecord]], delivered: int, now: float) -> None:
        tried = Counter(attempt for attempt, _ in self._taken.values()) or Counter({1: delivered})
        failed = Counter(each.record.attempt for each, how in failures if how.fate is not Fate.REJECTED)
        passed = tried - failed
        self._blame.note(
            now,
            Counts(passed[1], failed[1], passed[2], failed[2]),
            passed_late=passed.total() - passed[1] - passed[2],
            failed_late=failed.total() - failed[1] - failed[2],
        )

    def take_due(self, monotonic: float) -> list[Record]:
        """Hand out the records that are due; the earliest ones in any case."""
        # A clock can wake its sleeper a little early, and a job for the rest would follow at once.
        until = max(monotonic, self._waiting[0][0])
        count = sum(at <= until for at, _, _ in self._waiting)
        if self._blame.is_slowed:
            count = min(count, max(1, self._blame.allowance(monotonic)))
            self._blame.tried(monotonic)
        due, self._waiting = self._waiting[:count], self._waiting[count:]
        self._taken = {_name(record): (record.attempt, history) for _, record, history in due}
        return [record for _, record, _ in due]

    def _is_too_old(self, record: Record, at: float) -> bool:
        maximum, arrival = self._config.maximum_record_age_seconds, record.arrival_timestamp
        if self._blame.is_troubled or maximum is None or arrival is None:
            return False
        return at - arrival > maximum


_Name = tuple[str, str]
"""A name that tells records of a micro-batch apart: the stream, and the message id."""


def _name(record: Record) -> _Name:
    return record.stream, record.message_id


def _letter(unfinished: Unfinished, app: str, reason: str, now: float) -> DeadLetter:
    record = unfinished.record
    return DeadLetter(
        application=app,
        stream=record.stream,
        shard_id=record.shard_id,
        sequence_number=record.sequence_text,
        partition_key=record.partition_key,
        arrival_timestamp=record.arrival_timestamp,
        data=record.data,
        attempts=record.attempt,
        error=unfinished.error,
        reason=reason,
        died_at=now,
        traceback=None if unfinished.raised is None else unfinished.raised.traceback,
        explicit_hash_key=record.explicit_hash_key,
    )
