"""The tuples of one stream: handed out, acked and failed by their message ids."""

import re
from collections.abc import Callable
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from kinesis_spout.consumer.consumer import Consumer
from kinesis_spout.model.errors import KinesisSpoutError, StreamNotFound
from kinesis_spout.model.handler import Failure, failure_of
from kinesis_spout.model.record import Record, TracedRecord
from kinesis_spout.plain.buffered_shards import BufferedShards
from kinesis_spout.plain.listener import Announcements, FailReason
from kinesis_spout.plain.retained_records import Retained
from shard_state import SequenceNumber

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from kinesis_spout.tracing import ProcessTracing

_MAX_BROKEN_PER_CALL: Final = 32
"""Records whose scheme raises, before ``next_tuple`` returns to the caller."""


_NUMBER: Final = r"[1-9]\d{0,17}"
_FORM: Final = re.compile(
    rf"([A-Za-z0-9_.-]+):((?:0|[1-9]\d{{0,128}})(?::(?:0|{_NUMBER}))?)#({_NUMBER})\.({_NUMBER})", re.ASCII
)


class MessageId(NamedTuple):
    """One delivery of one record.

        shardId-000000000000:49590338271490256608559692538361571095921575989136588898#2.1
        shard                sequence number (with ``:sub`` for a user record in an aggregate)  epoch.attempt

    A fail counts for the delivery that it names and for no other (invariant 17). Attempts alone do not tell
    deliveries apart: when the ownership of a shard ends, its records are delivered again from what is stored, and
    the attempt that was under way may come under its number again. So the epoch of the ownership stands before it.
    """

    shard_id: str
    sequence: SequenceNumber
    epoch: int
    """The ownership of the shard under which it was made."""
    attempt: int
    """The number of the delivery, from 1."""

    @classmethod
    def parse(cls, text: str) -> Self:
        matched = _FORM.fullmatch(text)
        if matched is None:
            raise ValueError(
                "expected a message id as next_tuple gives it, 'shardId:sequence#epoch.attempt' or "
                f"'shardId:sequence:sub#epoch.attempt', got {text[:200]!r}"
            )
        shard_id, sequence, epoch, attempt = matched.groups()
        return cls(shard_id, SequenceNumber.parse(sequence), int(epoch), int(attempt))

    def __str__(self) -> str:
        return f"{self.shard_id}:{self.sequence}#{self.epoch}.{self.attempt}"


class Emitted(NamedTuple):
    """A tuple that was handed out, to be acked or failed by its id."""

    message_id: str
    """``shardId:sequence#epoch.attempt``: this delivery of the record, another one at every delivery. The part
    before the ``#`` is the record's own id, which its dead letter has too; inside an aggregate it ends with
    ``:sub``. With several streams it begins with ``stream/``."""
    values: Any
    """The result of the scheme; with "raw" the ``Record`` itself."""


_emitted: Final = partial(tuple.__new__, Emitted)
"""Makes one of its fields, as a tuple: without the call of Python that the class itself makes."""


class StreamTuples:
    """Mutable; thread-safe. The caller makes the announcements when the lock is free.

    Ctrl-C, or a defect, while a record is taken, acked or failed ends the consumer; see ``_end_after``.
    """

    def __init__(
        self,
        consumer: Consumer,
        shards: BufferedShards,
        scheme: Callable[[Record], Any],
        announcements: Announcements | None,
        *,
        prefix: str,
        is_active: Callable[[], bool],
        tracing: "ProcessTracing | None",
    ) -> None:
        self.consumer = consumer
        self.shards = shards
        self._scheme = scheme
        self._announcements = announcements
        self._prefix = prefix
        self._is_active = is_active
        self._closed = False
        self.rests_until = 0.0
        """For the caller: before this it has nothing, probably."""
        self._tracing = tracing
        # Looked up here once, not for each record.
        self._lock = consumer.lock
        self._manager = consumer.manager
        self._retained = shards.retained
        self._monotonic = consumer.ports.clock.monotonic
        self._is_certain = consumer.ports.coordinator.is_certain

    def next(self) -> Emitted | None:
        """See ``RecordSpout.next_tuple``."""
        consumer, broken = self.consumer, 0
        while broken < _MAX_BROKEN_PER_CALL:
            if consumer.fatal is not None:
                raise consumer.fatal
            with self._lock:
                taken = self._taken(self._monotonic())
                if taken is None:
                    return None
                message_id, record = taken.message_id, taken.record
            try:
                values = self._scheme(record)
            except BaseException as error:
                self.fail(message_id, failure_of(error))
                if isinstance(error, KeyboardInterrupt):
                    raise  # it can be the caller's Ctrl-C; see kinesis_spout.model.handler
                broken += 1
                continue
            if self._announcements is not None:
                self._announcements.emitted(message_id, record.attempt)
            return _emitted((message_id, values))
        return None

    def ack(self, message_id: str) -> bool:
        """Finish a record; False if that changes nothing."""
        consumer = self.consumer
        with self._lock:
            retained, now = self._delivered_as(message_id), self._monotonic()
            handled_seconds = None
            if retained is not None:
                handled_seconds = now - retained.delivered_at
                record = retained.record
                shard_id, sequence, attempt = record.shard_id, retained.sequence, record.attempt
            else:  # it may be an earlier delivery
                shard_id, sequence, _, attempt = self._parsed(message_id)
                retained = self._retained.at(shard_id, sequence)
            try:
                if not self._manager.ack(shard_id, sequence, now):
                    return False
                consumer.counters.acked += 1
                if retained is not None:
                    self._retained.finished(retained)
            except BaseException as error:
                self._end_after(error)
                raise
            if handled_seconds is not None:
                consumer.figures.handling.add(handled_seconds)
            if consumer.figures.acked(attempt) and retained is not None:
                arrived_at = retained.record.arrival_timestamp
                if arrived_at is not None:
                    consumer.figures.acked_at_age(consumer.ports.clock.time() - arrived_at)
            if self._tracing is not None and retained is not None:
                self._tracing.end(retained.take_span(), None)
        if self._announcements is not None:
            self._announcements.acked(message_id)
        return True

    def fail(self, message_id: str, failure: Failure) -> bool:
        with self._lock:
            retained = self._delivered_as(message_id)
            if retained is None:
                self._parsed(message_id)
                return False
            return self._fail(retained, failure, FailReason.FAIL)

    def end_run(self) -> None:
        """Hand out nothing more without a look at whether the spout is active."""
        with self._lock:
            self.shards.end_run()

    def fail_overdue(self) -> None:
        with self._lock:
            self._fail_overdue(self._monotonic())

    def record(self, message_id: str) -> Record | None:
        with self._lock:
            retained = self._retained_as(message_id)
            return None if retained is None else copy(retained.record)

    def span(self, message_id: str) -> "Span | None":
        with self._lock:
            retained = self._retained_as(message_id)
            return None if retained is None else retained.span

    @property
    def rate_wait_seconds(self) -> float:
        with self._lock:
            return self.shards.rate_wait_seconds(self._monotonic())

    @property
    def is_done(self) -> bool:
        with self._lock:
            return self.shards.is_done()

    @property
    def error(self) -> BaseException | None:
        """Only that the stream is gone: ``next_tuple`` raises any other error when it asks this stream."""
        fatal = self.consumer.fatal
        return fatal if isinstance(fatal, StreamNotFound) else None

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self.shards.stop()
            self._retained.end_spans()
        self.consumer.close()

    # Inside, under the lock

    def _taken(self, now: float) -> Retained | None:
        try:
            taken = self.shards.next_of_run(now)
            if taken is None:
                self._fail_overdue(now)
                if self._is_active() and not self._closed and self._is_certain():
                    taken = self.shards.first_of_run(now)
            if taken is None:
                return None
            record, taken.delivered_at = taken.record, now
            taken.message_id = f"{self._prefix}{taken.record_id}#{taken.epoch}.{record.attempt}"
            self.consumer.counters.delivered += 1
        except BaseException as error:
            self._end_after(error)
            raise
        if self._tracing is not None and type(record) is TracedRecord:
            taken.span = self._tracing.begin(record)
        return taken

    def _fail_overdue(self, now: float) -> None:
        for shard_id, sequence in self._manager.expired(now):
            retained = self._retained.at(shard_id, sequence)
            assert retained is not None, "every record that is out is retained"
            text = f"timed out after {self.consumer.config.message_timeout_seconds:g} s"
            self._fail(retained, Failure(error_text=text, timed_out=True), FailReason.TIME_OUT)

    def _fail(self, retained: Retained, failure: Failure, reason: FailReason) -> bool:
        now = self._monotonic()
        try:
            decision = self.shards.fail(retained, failure, now)
        except BaseException as error:
            self._end_after(error)
            raise
        if decision is None:
            return False
        if self._tracing is not None:
            self._tracing.end(retained.take_span(), failure)
        if reason is FailReason.TIME_OUT:
            self.consumer.counters.timed_out += 1
        else:
            self.consumer.figures.handling.add(now - retained.delivered_at)
        if self._announcements is not None:
            self._announcements.failed(retained.message_id, reason, failure.error_text, decision)
        return True

    def _end_after(self, error: BaseException) -> None:
        """End the consumer after an error that no port raises: the tracker may know only a part of the step."""
        if isinstance(error, KinesisSpoutError):
            return
        if isinstance(error, Exception):
            self.consumer.end_with(error)
            return
        ended = KinesisSpoutError(
            f"{type(error).__name__} while a record was taken, acked or failed; open the stream again to go on"
        )
        ended.__cause__ = error
        self.consumer.end_with(ended)

    def _delivered_as(self, message_id: str) -> Retained | None:
        """The record whose latest delivery has this id."""
        retained = self._retained.get(message_id.rpartition("#")[0].removeprefix(self._prefix))
        return None if retained is None or retained.message_id != message_id else retained

    def _retained_as(self, message_id: str) -> Retained | None:
        """The record of which this is any delivery."""
        delivery = self._parsed(message_id)
        return self._retained.at(delivery.shard_id, delivery.sequence)

    def _parsed(self, message_id: str) -> MessageId:
        return MessageId.parse(message_id.removeprefix(self._prefix))
