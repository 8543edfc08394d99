"""The tuples of one stream: handed out, acked and failed by their message ids."""

import re
from collections.abc import Callable
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from kinesis_spout.consumer.consumer import Consumer
from kinesis_spout.model.errors import StreamNotFound
from kinesis_spout.model.handler import Failure, failure_of
from kinesis_spout.model.record import Record, TracedRecord
from kinesis_spout.plain.buffered_shards import BufferedShards
from kinesis_spout.plain.listener import Announcements, FailReason
from kinesis_spout.plain.records_at_hand import RecordsAtHand
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
    """Which delivery of the record it is, from 1."""

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
    """``shardId:sequence#epoch.attempt``: this delivery of the record, another one at every delivery. What stands
    before the ``#`` is the record's own id, which its dead letter has too; inside an aggregate it ends with
    ``:sub``. With several streams it begins with ``stream/``."""
    values: Any
    """What the scheme made of the record; with "raw" the ``Record`` itself."""


_emitted: Final = partial(tuple.__new__, Emitted)
"""Makes one of its fields, as a tuple: without the call of Python that the class itself makes."""


class StreamTuples:
    """Mutable; thread-safe. The caller makes the announcements when the lock is free."""

    def __init__(
        self,
        consumer: Consumer,
        shards: BufferedShards,
        scheme: Callable[[Record], Any],
        announcements: Announcements,
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
        self._tracing = tracing
        self._decides_one_by_one = shards.decides_one_by_one or tracing is not None or announcements.are_heard
        with consumer.lock:
            self._at_hand = RecordsAtHand(consumer, shards, prefix)
            consumer.lock.gather = self._at_hand.gather
            shards.forget_shards = self._at_hand.lost
        self.ack_at_hand = self._at_hand.ack
        """Finish a record; False if ``ack`` has to decide. It calls no listener: there is none."""
        self.fail_at_hand = self._at_hand.fail
        """Fail a delivery; False if ``fail`` has to decide. It calls no listener: there is none."""

    def at_hand(self) -> Emitted | None:
        """Give the next tuple if that takes no decision; None if ``next`` has to look."""
        at_hand = self._at_hand.take()
        return None if at_hand is None else self._made(at_hand[0], at_hand[1])

    def next(self) -> Emitted | None:
        """See ``RecordSpout.next_tuple``."""
        emitted = self.at_hand()
        if emitted is not None:
            return emitted
        consumer = self.consumer
        consumer.check()
        for _ in range(_MAX_BROKEN_PER_CALL):
            with consumer.lock:
                self.fail_overdue()
                may_hand_out = self._is_active() and not self._closed
                if not (may_hand_out and consumer.ports.coordinator.is_certain()):
                    return None
                at_hand = None if self._decides_one_by_one else self._at_hand.prepared(consumer.now)
                if at_hand is None:
                    taken = self.shards.take(consumer.now)
                    if taken is None:
                        return None
                    consumer.counters.delivered += 1
                    record = taken.record
                    delivery = self._delivery(record.shard_id, taken.sequence, record.attempt)
                    at_hand = f"{self._prefix}{delivery}", record, None, 0
                    if self._tracing is not None and type(record) is TracedRecord:
                        taken.span = self._tracing.begin(record)
                    if not self._decides_one_by_one:
                        self._at_hand.handed_out(at_hand)
            emitted = self._made(at_hand[0], at_hand[1])
            if emitted is not None:
                self._announcements.emitted(emitted.message_id, at_hand[1].attempt)
                return emitted
        return None

    def ack(self, delivery: MessageId, message_id: str) -> bool:
        """Finish a record, which the user knows by ``message_id``; False if that changes nothing."""
        if self._at_hand.ack(message_id):
            return True
        shard_id, sequence = delivery.shard_id, delivery.sequence
        with self.consumer.lock:
            out = self._id_of_first(shard_id, sequence)
            if out is not None and self._at_hand.ack(out):  # by the id of an earlier ownership
                self._at_hand.gather()
                return True
            acked = self.consumer.manager.ack(shard_id, sequence, self.consumer.now)
            if acked:
                self.consumer.counters.acked += 1
                retained = self.shards.retained.finished(shard_id, sequence)
                if retained is not None:  # perhaps a later delivery is out
                    later = self._delivery(shard_id, sequence, retained.record.attempt)
                    self._at_hand.single_out(f"{self._prefix}{later}")
                self._measure(delivery, retained)
                self._end_span(retained)
        if acked:
            self._announcements.acked(message_id)
        return acked

    def fail(self, delivery: MessageId, failure: Failure) -> bool:
        return self._fail(delivery, failure, FailReason.FAIL)

    def fail_overdue(self) -> None:
        consumer = self.consumer
        with consumer.lock:
            now = consumer.now
            for shard_id, sequence, attempt in (*consumer.manager.expired(now), *self._at_hand.expired(now)):
                text = f"timed out after {consumer.config.message_timeout_seconds:g} s"
                delivery = self._delivery(shard_id, sequence, attempt)
                self._fail(delivery, Failure(error_text=text, timed_out=True), FailReason.TIME_OUT)

    def record(self, delivery: MessageId) -> Record | None:
        with self.consumer.lock:
            retained = self.shards.retained.get(delivery.shard_id, delivery.sequence)
            if retained is not None:
                return copy(retained.record)
            out = self._id_of_first(delivery.shard_id, delivery.sequence)
            record = None if out is None else self._at_hand.in_run(out)
            return None if record is None else copy(record)

    def span(self, delivery: MessageId) -> "Span | None":
        with self.consumer.lock:
            retained = self.shards.retained.get(delivery.shard_id, delivery.sequence)
            return None if retained is None else retained.span

    @property
    def rate_wait_seconds(self) -> float:
        with self.consumer.lock:
            return self.shards.rate_wait_seconds(self.consumer.now)

    @property
    def is_done(self) -> bool:
        with self.consumer.lock:
            return self.shards.is_done()

    @property
    def error(self) -> BaseException | None:
        """Only that the stream is gone: ``next_tuple`` raises any other error when it asks this stream."""
        fatal = self.consumer.fatal
        return fatal if isinstance(fatal, StreamNotFound) else None

    def close(self) -> None:
        with self.consumer.lock:
            self._closed = True
            self.shards.stop()
            self.shards.retained.end_spans()
        self.consumer.close()

    def put_back(self) -> None:
        """Hand out nothing more without a look at whether the spout is active."""
        with self.consumer.lock:
            self._at_hand.gather()

    # Inside

    def _made(self, message_id: str, record: Record) -> Emitted | None:
        """The tuple of a record that is handed out; None if the scheme raised, which fails the record."""
        try:
            return _emitted((message_id, self._scheme(record)))
        except BaseException as error:
            self.fail(MessageId.parse(message_id.removeprefix(self._prefix)), failure_of(error))
            if isinstance(error, KeyboardInterrupt):
                raise  # it can be the caller's Ctrl-C; see kinesis_spout.model.handler
            return None

    def _end_span(self, retained: Retained | None, failure: Failure | None = None) -> None:
        if self._tracing is not None and retained is not None:
            self._tracing.end(retained.take_span(), failure)

    def _measure(self, delivery: MessageId, retained: Retained | None) -> None:
        wants_age = self.consumer.figures.acked(1, delivery.attempt)
        arrived_at = None if retained is None else retained.record.arrival_timestamp
        if wants_age and arrived_at is not None:
            self.consumer.figures.acked_at_age(self.consumer.ports.clock.time() - arrived_at)

    def _delivery(self, shard_id: str, sequence: SequenceNumber, attempt: int) -> MessageId:
        """The delivery under the present ownership. Call under the lock."""
        state = self.consumer.manager.shard(shard_id)
        assert state is not None, "what is delivered is of a shard that is owned"
        return MessageId(shard_id, sequence, state.epoch, attempt)

    def _id_of_first(self, shard_id: str, sequence: SequenceNumber) -> str | None:
        """The message id of a record's first delivery under the present ownership; None if there is none."""
        if self.consumer.manager.shard(shard_id) is None:
            return None
        return f"{self._prefix}{self._delivery(shard_id, sequence, 1)}"

    def _fail(self, delivery: MessageId, failure: Failure, reason: FailReason) -> bool:
        consumer, message_id = self.consumer, f"{self._prefix}{delivery}"
        with consumer.lock:
            self._at_hand.single_out(message_id)
            retained = self.shards.retained.get(delivery.shard_id, delivery.sequence)
            state = consumer.manager.shard(delivery.shard_id)
            if state is None or state.epoch != delivery.epoch:
                return False
            decision = self.shards.fail(
                delivery.shard_id, delivery.sequence, delivery.attempt, failure, consumer.now
            )
            if decision is None:
                return False
            self._end_span(retained, failure)
            consumer.counters.timed_out += reason is FailReason.TIME_OUT
            self._announcements.failed(message_id, reason, failure.error_text, decision)
        return True
