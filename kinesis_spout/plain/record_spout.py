"""The plain-Python door: Storm's verbs on a Kinesis stream.

    spout = RecordSpout(stream="orders", app="billing")
    with spout.open() as tuples:
        for message_id, values in tuples:
            handle(values)
            tuples.ack(message_id)

Every tuple that ``next_tuple`` gives must be acked or failed; one that is neither fails after the message
time-out. A failed one comes again, until the retry limit; then it is dead-lettered. With another ``guarantee``
than at_least_once it is dead-lettered at once.
"""

from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple, Unpack

from kinesis_spout.consumer.consumer import Consumer
from kinesis_spout.consumer.counters import Counters
from kinesis_spout.consumer.ports import Ports
from kinesis_spout.kinesis import Prefetcher
from kinesis_spout.model.clock import Clock
from kinesis_spout.model.errors import SpoutClosed
from kinesis_spout.model.handler import Failure, Reject, failure_of
from kinesis_spout.model.record import Record
from kinesis_spout.model.scheme import resolve
from kinesis_spout.plain.buffered_shards import BufferedShards
from kinesis_spout.plain.listener import Announcements, FailReason, SpoutListener
from kinesis_spout.plain.message_id import MessageId
from kinesis_spout.plain.spout_life import SpoutLife
from kinesis_spout.settings import SpoutConfig, SpoutSettings
from shard_state import BreakerPause, Exhausted, RecordEvent, Retry, SequenceNumber, ShardStatus

_STEP_SECONDS: Final = 0.005
"""Between two looks for the next tuple, when iterating."""

_MAX_BROKEN_PER_CALL: Final = 32
"""Records whose scheme raises, before ``next_tuple`` lets the caller go on with something else."""

_EVENTS: Final = {FailReason.FAIL: RecordEvent.FAIL, FailReason.TIME_OUT: RecordEvent.TIME_OUT}


class Emitted(NamedTuple):
    """A tuple that was handed out, to be acked or failed by its id."""

    message_id: str
    """``shardId:sequence#epoch.attempt``: this delivery of the record, another one at every delivery. What stands
    before the ``#`` is the record's own id, which its dead letter has too; inside an aggregate it ends with
    ``:sub``."""
    values: Any
    """What the scheme made of the record; with "raw" the ``Record`` itself."""


class RecordSpout(SpoutLife):
    """A spout of one application on one stream. Mutable; thread-safe.

    Its life is told by ``SpoutLife``.

    Args:
        config: the settings. Without it they are taken from ``settings`` over the environment variables
            ``KINESIS_SPOUT_*``; see ``SpoutConfig.load``.
        ports: what to use instead of Kinesis and ZooKeeper; the spout closes it.
        scheme: what the values of a tuple are; see ``kinesis_spout.model.scheme.resolve``.
        listener: is told what becomes of each record.
        prefetcher: on whose threads shards are read ahead, which its owner closes; its own unless given.
        settings: see ``SpoutConfig``.

    Raises:
        InvalidConfig: a setting or the scheme is not valid, or both ``config`` and ``settings`` are given.
    """

    def __init__(
        self,
        config: SpoutConfig | None = None,
        *,
        ports: Ports | None = None,
        scheme: str | Callable[[Record], Any] = "raw",
        listener: SpoutListener | None = None,
        prefetcher: Prefetcher | None = None,
        **settings: Unpack[SpoutSettings],
    ) -> None:
        super().__init__(config, ports, prefetcher, **settings)
        self._scheme = resolve(scheme)
        self._listener = listener or SpoutListener()
        self._announcements = Announcements()

    # Tuples

    def next_tuple(self) -> Emitted | None:
        """Give the next tuple: a due retry, or a fresh record. None if nothing is due now. Never blocks.

        While the rates of deliveries are used up there is none: ``rate_wait_seconds`` says for how long. Nor is
        there one while ZooKeeper has not answered lately, as after this process was stopped: the shards may be
        another's.

        Raises:
            SpoutClosed: it was closed, or never activated.
            KinesisSpoutError: one that trying again does not mend. If it is a shard's, the next call serves
                the other shards, and this one raises again when its turn comes.
        """
        consumer, shards = self._opened()
        consumer.check()
        try:
            self._fail_expired(consumer, shards)
            for _ in range(_MAX_BROKEN_PER_CALL):
                with consumer.lock:
                    may_hand_out = self._active and consumer.ports.coordinator.is_certain()
                    taken = shards.take(consumer.now) if may_hand_out else None
                    if taken is None:
                        return None
                    consumer.counters.delivered += 1
                    record, sequence = taken.record, taken.sequence
                    delivery = _delivery(consumer, record.shard_id, sequence, record.attempt)
                try:
                    values = self._scheme(record)
                except BaseException as error:
                    self._fail(consumer, shards, delivery, failure_of(error), FailReason.FAIL)
                    if isinstance(error, KeyboardInterrupt):
                        raise  # it may be the caller's Ctrl-C; see kinesis_spout.model.handler
                    continue
                message_id = str(delivery)
                self._announcements.add(partial(self._listener.emitted, message_id, record.attempt))
                return Emitted(message_id, values)
            return None
        finally:
            self._announcements.make()

    def __iter__(self) -> Iterator[Emitted]:
        """Give tuple after tuple, waiting for the next one.

        Ends when every shard is over, when the run has come up to its `until` (see ``is_done``), or when the
        spout is deactivated or closed. Raises like ``next_tuple``.
        """
        clock = self._clock
        while self._active:
            try:
                emitted = self.next_tuple()
                is_over = emitted is None and self.is_done
            except SpoutClosed:
                return  # by another thread, or by whoever iterates
            if emitted is not None:
                yield emitted
            elif is_over:
                return
            else:
                clock.sleep(_STEP_SECONDS)

    def ack(self, message_id: str) -> bool:
        """Finish a record. So does a late ack of a delivery that had failed: it cancels the retry.

        Returns:
            False if that changes nothing: the record is finished already, or no longer (or never was) ours.

        Raises:
            ValueError: this is no message id.
            SpoutClosed: it was closed, or never activated.
        """
        consumer, shards = self._opened()
        delivery = MessageId.parse(message_id)
        with consumer.lock:
            acked = consumer.manager.ack(delivery.shard_id, delivery.sequence, consumer.now)
            if acked:
                consumer.counters.acked += 1
                shards.retained.finished(delivery.shard_id, delivery.sequence)
        if acked:
            self._announcements.add(partial(self._listener.acked, message_id))
            self._announcements.make()
        return acked

    def fail(self, message_id: str, reason: str | BaseException = "") -> bool:
        """Fail a delivery: the record comes again after its delay, or is given up after its last retry.

        Args:
            message_id: of the tuple.
            reason: a text for the dead letter, or an exception: ``Reject`` gives the record up at once, and
                ``RetryLater`` chooses the delay.

        Returns:
            False if that changes nothing: the delivery has ended already, or is no longer ours. A later
            delivery of the record is not touched.

        Raises:
            ValueError: this is no message id.
            SpoutClosed: it was closed, or never activated.
        """
        consumer, shards = self._opened()
        delivery = MessageId.parse(message_id)
        failed = self._fail(consumer, shards, delivery, _failure(reason), FailReason.FAIL)
        self._announcements.make()
        return failed

    # The circuit breaker

    @property
    def breaker_pause(self) -> BreakerPause | None:
        """The state of a pause, which begins when practically all deliveries failed; None while there is no pause.

        During a pause ``next_tuple`` gives a single tuple at a time, at growing intervals, and nothing is given
        up. The first of these that is acked (or rejected) ends the pause.
        """
        consumer, _ = self._opened()
        with consumer.lock:
            return consumer.manager.breaker_pause

    def resume(self) -> bool:
        """End the pause now; False if there is no pause."""
        consumer, _ = self._opened()
        return consumer.resume()

    # Pauses by an operator

    def pause_shards(self, *shard_ids: str) -> None:
        """Pause shards for all members of the application, as an operator does; all shards if none is named.

        What is in flight of them may end, and is stored; nothing more of them is handed out, retries included.
        It is kept in ZooKeeper, over restarts, until ``resume_shards`` or ``kinesis-spout resume``. Members
        notice within about a second.

        Raises:
            InvalidConfig: one is not a shard of the stream.
            StoreUnavailable: ZooKeeper cannot be reached.
        """
        consumer, _ = self._opened()
        consumer.pause_shards(shard_ids)

    def resume_shards(self, *shard_ids: str) -> bool:
        """End pauses of shards that were named to pause them; if none is named, all that an operator has paused.

        Returns:
            Whether there was one.

        Raises:
            StoreUnavailable: ZooKeeper cannot be reached.
        """
        consumer, _ = self._opened()
        return bool(consumer.resume_shards(shard_ids))

    @property
    def paused_shards(self) -> frozenset[str]:
        """The shards of this member that an operator has paused, and that it has something left to do with."""
        consumer, _ = self._opened()
        with consumer.lock:
            return consumer.manager.paused_shards

    # Looking in

    @property
    def failures(self) -> dict[str, int]:
        """How often tuples were failed with each kind of exception, by its type and the line that raised it."""
        consumer, _ = self._opened()
        with consumer.lock:
            return consumer.failures.counts

    def record(self, message_id: str) -> Record | None:
        """Give a copy of a tuple's record, as it was delivered last; None if it is finished, given up or unknown.

        Raises:
            ValueError: this is no message id.
            SpoutClosed: it was closed, or never activated.
        """
        consumer, shards = self._opened()
        delivery = MessageId.parse(message_id)
        with consumer.lock:
            retained = shards.retained.get(delivery.shard_id, delivery.sequence)
            return None if retained is None else copy(retained.record)

    @property
    def counters(self) -> Counters:
        """What happened since the start, as a copy."""
        consumer, _ = self._opened()
        with consumer.lock:
            return copy(consumer.counters)

    @property
    def rate_wait_seconds(self) -> float:
        """For how long ``next_tuple`` gives nothing as the rates of deliveries are used up; 0.0: they are not.

        Infinite while no shard is assigned to this member of an application that has a rate.
        """
        consumer, shards = self._opened()
        with consumer.lock:
            return shards.rate_wait_seconds(consumer.now)

    @property
    def uncommitted(self) -> int:
        """How many records are finished and not stored as such: at most so many come again after a kill now."""
        consumer, _ = self._opened()
        with consumer.lock:
            return consumer.uncommitted

    @property
    def is_done(self) -> bool:
        """Whether every shard is over, or the run has come up to its `until`: ``next_tuple`` gives no more.

        All that was handed out of this member's shards is finished, and that is stored.
        """
        consumer, shards = self._opened()
        with consumer.lock:
            return shards.is_done()

    def status(self) -> list[ShardStatus]:
        """Describe every known shard, parents before children."""
        consumer, _ = self._opened()
        with consumer.lock:
            return consumer.manager.status()

    @property
    def last_error(self) -> Exception | None:
        """An error that is being retried now, of storing or of reading; None if all goes well."""
        consumer, shards = self._opened()
        with consumer.lock:
            return consumer.last_error or next(iter(shards.reading_errors), None)

    def share_memory(self, sharers: int) -> None:
        """Keep `max_buffered_bytes` by so many, of which so many spouts of one application have one share each."""
        consumer, _ = self._opened()
        consumer.sharers = sharers

    # Inside

    @property
    def _clock(self) -> Clock:
        return self._opened()[0].ports.clock

    def _fail_expired(self, consumer: Consumer, shards: BufferedShards) -> None:
        with consumer.lock:
            for shard_id, sequence, attempt in consumer.manager.expired(consumer.now):
                failure = Failure(error_text=f"timed out after {self.config.message_timeout_seconds:g} s")
                delivery = _delivery(consumer, shard_id, sequence, attempt)
                self._fail(consumer, shards, delivery, failure, FailReason.TIME_OUT)

    def _fail(
        self,
        consumer: Consumer,
        shards: BufferedShards,
        delivery: MessageId,
        failure: Failure,
        reason: FailReason,
    ) -> bool:
        shard_id, sequence, epoch, attempt = delivery
        with consumer.lock:
            retained, state = shards.retained.get(shard_id, sequence), consumer.manager.shard(shard_id)
            if retained is None or state is None or state.epoch != epoch:
                return False
            record = retained.record
            decision = consumer.manager.fail(
                shard_id,
                sequence,
                consumer.now,
                attempt=attempt,
                partition_key=record.partition_key,
                rejected=failure.rejected,
                delay_seconds=failure.delay_seconds,
                put_off=failure.put_off,
                event=_EVENTS[reason],
            )
            if decision is None:
                return False
            consumer.counters.timed_out += reason is FailReason.TIME_OUT
            consumer.failures.add(failure.raised)
            if isinstance(decision, Exhausted):
                consumer.dead_letter(decision, record, failure.error_text, failure.raised)
                shards.retained.given_up(shard_id, sequence)
            self._announce_failed(str(delivery), failure, reason, decision)
        return True

    def _announce_failed(
        self, message_id: str, failure: Failure, reason: FailReason, decision: Retry | Exhausted
    ) -> None:
        error, tell = failure.error_text, self._announcements.add
        if isinstance(decision, Exhausted):
            tell(partial(self._listener.failed, message_id, reason, error, None))
            tell(partial(self._listener.exhausted, message_id, decision.attempts, error))
        else:
            tell(partial(self._listener.failed, message_id, reason, error, decision.delay_seconds))


def _failure(reason: str | BaseException) -> Failure:
    if isinstance(reason, BaseException):
        return failure_of(reason)
    # A bare text is what a Reject's is: without the name of an exception before it.
    return replace(failure_of(Reject(reason.strip() or "failed without a reason")), rejected=False)


def _delivery(consumer: Consumer, shard_id: str, sequence: SequenceNumber, attempt: int) -> MessageId:
    """Name a delivery under the present ownership. Call under the lock."""
    state = consumer.manager.shard(shard_id)
    assert state is not None, "what is delivered is of a shard that is owned"
    return MessageId(shard_id, sequence, state.epoch, attempt)
