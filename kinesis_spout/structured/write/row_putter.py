"""Puts the rows of a task on their streams, with bounded memory.

Rows that Kinesis never accepts are found before sending: one such record would make PutRecords refuse its
whole call. https://docs.aws.amazon.com/kinesis/latest/APIReference/API_PutRecordsRequestEntry.html

A dead letter is made for a record that was read. A row has no shard and no sequence number; it gets
``partition-<n>`` and its number there instead, and the stream that it was meant for. So dead letters of the
sink are listed and redriven like others.
"""

import re
from collections.abc import Iterable
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Final

from kinesis_spout.dead_letters.sink_url import check_once, open_sink
from kinesis_spout.kinesis.retry_policy import CallRetryPolicy
from kinesis_spout.kinesis.write.hash_key_ranges import is_hash_key
from kinesis_spout.kinesis.write.put_records import (
    MAX_KEY_CHARACTERS,
    MAX_RECORD_BYTES,
    CallLimits,
    Entry,
    PutOrder,
)
from kinesis_spout.kinesis.write.record_putter import (
    MAX_BUFFERED_BYTES,
    MAX_BUFFERED_RECORDS,
    RecordPutter,
    is_too_much,
)
from kinesis_spout.model.clock import Clock, SystemClock
from kinesis_spout.model.errors import KinesisError, KinesisSpoutError
from kinesis_spout.model.record import DeadLetter
from kinesis_spout.ports import DeadLetterSink
from kinesis_spout.settings.source_options import WriteOptions
from kinesis_spout.settings.table.spelling import said_as_options
from kinesis_spout.structured.write.written_columns import (
    DATA,
    EXPLICIT_HASH_KEY,
    PARTITION_KEY,
    STREAM,
    RowValues,
    Written,
)

if TYPE_CHECKING:
    from mypy_boto3_kinesis import KinesisClient

_STREAM: Final = re.compile(
    r"[A-Za-z0-9_.-]{1,128}|arn:aws[a-z-]*:kinesis:[^:/]+:[0-9]{12}:stream/[\w.-]{1,128}"
)
APPLICATION: Final = "format(kinesis)"
"""The application name in dead letters of the sink."""
_LETTERS_AT_A_TIME: Final = 500
_BYTES_AT_A_TIME: Final = 8 * 1024 * 1024


@said_as_options()
def write_partition(options: WriteOptions, rows: Iterable[RowValues], partition: int) -> Written:
    """Return when every row is on its stream, or durably a dead letter. Raises like ``RowPutter.write``."""
    clock = SystemClock()
    client = options.client.connect()
    retry_policy = CallRetryPolicy(deadline_seconds=options.deadline_seconds, clock=clock)
    limits = CallLimits(records=options.max_records_per_call, size_bytes=options.max_bytes_per_call)
    with ExitStack() as closing_last:
        sink, url = None, options.dead_letters
        if url is not None:
            sink = closing_last.enter_context(closing(open_sink(url, client=client, aws=options.client)))
            check_once(url, sink, aws=options.client)
        putter = RowPutter(
            client,
            retry_policy=retry_policy,
            limits=limits,
            rejected=RejectedRows(sink, partition, clock),
            order=options.order,
            aggregate_bytes=options.aggregate_bytes,
        )
        return putter.write(rows, partition)


class UnwritableRow(KinesisSpoutError):  # noqa: N818 - the names say what happened
    """A row can never become a record, and there are no dead letters. Names the row and the reason."""


class RejectedRows:
    """Holds dead letters that are not durable yet. Without a ``sink`` the first row is an error."""

    def __init__(self, sink: DeadLetterSink | None, partition: int, clock: Clock) -> None:
        self._sink = sink
        self._partition = partition
        self._clock = clock
        self._letters: list[DeadLetter] = []
        self._letters_bytes = 0
        self.count = 0

    def add(self, row: int, values: RowValues, fault: str) -> None:
        """Raises UnwritableRow where there is no sink, and DeadLetterError."""
        if self._sink is None:
            raise UnwritableRow(
                f"partition {self._partition}, row {row} (counted from 0): {fault}; correct the row or filter it "
                "out, or set the option deadLetters to keep such rows there"
            )
        data = values.data or b""
        self._letters.append(
            DeadLetter(
                application=APPLICATION,
                stream=values.stream or "",
                shard_id=f"partition-{self._partition}",
                sequence_number=str(row),
                partition_key=values.partition_key,
                arrival_timestamp=None,
                data=data,
                attempts=1,
                error=fault,
                reason="rejected",
                died_at=self._clock.time(),
                explicit_hash_key=values.explicit_hash_key,
            )
        )
        self.count += 1
        self._letters_bytes += len(data)
        if len(self._letters) >= _LETTERS_AT_A_TIME or self._letters_bytes >= _BYTES_AT_A_TIME:
            self.finish()

    def finish(self) -> None:
        if self._sink is not None:
            self._sink.write(self._letters)
        self._letters, self._letters_bytes = [], 0


class RowPutter:
    """Writes the rows of one task. Mutable; for one thread and one use.

    A shard that throttles holds up no other until the buffer, which all streams share, is full; then no
    more rows are read before half of it has gone. A stream whose *calls* fail holds up the other streams.

    Args:
        client: from ``KinesisClientSettings.connect``.
        retry_policy: for each shard that refuses, and for each call that fails.
        limits: of one call.
        rejected: takes the rows that cannot be written.
        order: which order of the rows to keep.
        aggregate_bytes: the maximum of a record of several rows; None: each row is a record.
    """

    def __init__(
        self,
        client: "KinesisClient",
        *,
        retry_policy: CallRetryPolicy,
        limits: CallLimits,
        rejected: RejectedRows,
        order: PutOrder = PutOrder.UNORDERED,
        aggregate_bytes: int | None = None,
    ) -> None:
        self._client = client
        self._retry_policy = retry_policy
        self._limits = limits
        self._rejected = rejected
        self._order = order
        self._aggregate_bytes = aggregate_bytes
        self._putters: dict[str, RecordPutter] = {}
        self._seen = 0
        self._waiting = 0
        self._waiting_bytes = 0

    def write(self, rows: Iterable[RowValues], partition: int) -> Written:
        """Return when every row is on its stream, or durably a dead letter.

        Raises KinesisError, UnwritableRow (both count the rows on Kinesis), InvalidConfig, DeadLetterError.
        """
        try:
            for row, values in enumerate(rows):
                self._seen = row + 1
                self._add(row, values)
            self._put_until(records=0, size_bytes=0)
        except (KinesisError, UnwritableRow) as error:
            raise type(error)(f"{error}. {self._state(partition)}") from error
        self._rejected.finish()
        return self._written()

    def _add(self, row: int, values: RowValues) -> None:
        fault = fault_of(values)
        if fault is not None:
            self._rejected.add(row, values, fault)
            return
        stream, key, explicit_hash_key, data = values
        assert stream is not None, "checked"
        assert key is not None, "checked"
        assert data is not None, "checked"
        putter = self._putters.get(stream) or self._open(stream)
        waiting, waiting_bytes = putter.waiting, putter.waiting_bytes
        putter.add(Entry(key, data, explicit_hash_key, row))
        self._waiting += putter.waiting - waiting
        self._waiting_bytes += putter.waiting_bytes - waiting_bytes
        if is_too_much(self._waiting, self._waiting_bytes):
            self._put_until(records=MAX_BUFFERED_RECORDS // 2, size_bytes=MAX_BUFFERED_BYTES // 2)

    def _open(self, stream: str) -> RecordPutter:
        def reject(entry: Entry, error: KinesisError) -> None:
            values = RowValues(stream, entry.partition_key, entry.explicit_hash_key, entry.data)
            self._rejected.add(
                entry.row, values, f"{stream} does not take a record of {entry.size_bytes} bytes: {error}"
            )

        putter = self._putters[stream] = RecordPutter(
            self._client,
            stream,
            retry_policy=self._retry_policy,
            limits=self._limits,
            order=self._order,
            on_refused=reject,
            aggregate_bytes=self._aggregate_bytes,
        )
        return putter

    def _put_until(self, *, records: int, size_bytes: int) -> None:
        """Put until the rest fits, first from the stream that is ready first and has most waiting."""
        while self._waiting > records or self._waiting_bytes > size_bytes:
            putter = min(
                (each for each in self._putters.values() if each.waiting),
                key=lambda each: (each.ready_at, -each.waiting_bytes),
            )
            putter.put()
            self._waiting = sum(each.waiting for each in self._putters.values())
            self._waiting_bytes = sum(each.waiting_bytes for each in self._putters.values())

    def _written(self) -> Written:
        counts = [putter.counts for putter in self._putters.values()]
        taken = sum(each.taken for each in counts)
        return Written(
            records=taken,
            size_bytes=sum(each.taken_bytes for each in counts),
            retried=sum(each.sent - each.refused for each in counts) - taken,
            dead_lettered=self._rejected.count,
        )

    def _state(self, partition: int) -> str:
        taken = sum(putter.counts.taken for putter in self._putters.values())
        rest = self._seen - taken - self._rejected.count
        return (
            f"Of the first {self._seen} rows of partition {partition}, {taken} are on Kinesis, {rest} are not "
            f"known to be, {self._rejected.count} are rejected; when Spark tries the task again, it puts all of "
            "them again"
        )


def fault_of(values: RowValues) -> str | None:
    """Return the fault of a row, without its data and key; None if it has none."""
    return _fault_of_record(values) or _fault_of_place(values)


def _fault_of_record(values: RowValues) -> str | None:
    key, data = values.partition_key, values.data
    if data is None:
        return f"{DATA}: expected binary or string, got null"
    if not key:
        return f"{PARTITION_KEY}: expected a key, got {'null' if key is None else 'an empty one'}"
    if len(key) > MAX_KEY_CHARACTERS:
        return f"{PARTITION_KEY}: expected 1 to {MAX_KEY_CHARACTERS} characters, got {len(key)}"
    size = len(data) + len(key.encode())
    if size > MAX_RECORD_BYTES:
        return f"{DATA}: expected at most {MAX_RECORD_BYTES} bytes together with the key, got {size}"
    return None


def _fault_of_place(values: RowValues) -> str | None:
    hash_key, stream = values.explicit_hash_key, values.stream
    if hash_key is not None and not is_hash_key(hash_key):
        return f"{EXPLICIT_HASH_KEY}: expected null or a decimal number below 2^128, got {hash_key[:50]!r}"
    if stream is None:
        return f"{STREAM}: expected a stream's name or ARN, got null"
    if not _STREAM.fullmatch(stream):
        return f"{STREAM}: expected a stream's name or ARN, got {stream[:200]!r}"
    return None
