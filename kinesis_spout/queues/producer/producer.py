"""`KinesisProducer`: an outbox, and the threads that do what it says."""

import asyncio
import atexit
import logging
import os
import random
import threading
import time
import uuid
import weakref
from math import inf
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, Unpack

from botocore.exceptions import BotoCoreError, ClientError

from kinesis_spout.clock import SystemClock
from kinesis_spout.dead_letter import DeadLetter
from kinesis_spout.dead_letters.sink_url import open_sink
from kinesis_spout.errors import (
    BufferFull,
    DeadLetterError,
    InvalidRecord,
    KinesisSpoutError,
    ProducerClosed,
    SpoolError,
)
from kinesis_spout.kinesis.errors import translate
from kinesis_spout.kinesis.patience import Patience
from kinesis_spout.kinesis.write.put_calls import PutCalls
from kinesis_spout.kinesis.write.put_records import MAX_KEY_CHARACTERS, MAX_RECORD_BYTES, CallLimits, PutOrder
from kinesis_spout.kinesis.write.record_putter import waiting_records
from kinesis_spout.queues.producer.inbox import Inbox, ProducerCounts
from kinesis_spout.queues.producer.outbox import Burial, Call, Listing, Outbox, OutboxSettings, WorkToDo
from kinesis_spout.queues.producer.ticket import Ticket
from kinesis_spout.queues.spool import Spool
from kinesis_spout.settings import SpoutConfig
from kinesis_spout.settings.kinesis_client import client_settings
from kinesis_spout.settings.producer_config import ProducerConfig, ProducerSettings

import msgspec

if TYPE_CHECKING:
    from mypy_boto3_kinesis import KinesisClient

    from kinesis_spout.ports import DeadLetterSink

_HASH_KEYS: Final = 1 << 128
_RECOVERED_AT_ONCE: Final = 1_000
_EXIT_SECONDS: Final = 5.0

_log = logging.getLogger(__name__)
_open: "weakref.WeakSet[KinesisProducer]" = weakref.WeakSet()


class KinesisProducer:
    """Puts records on one stream in the background. Thread-safe; also for asyncio.

    `put` takes a record over at once and gives a ticket, which says in the end where the record is, or why it is not.
    Records go in full calls, several at once; what a shard refuses is put again, and holds up only that shard's
    records. No record is lost in silence: each ends as sent, failed, dropped or refused, and `counts` adds up.

    At least once: a call whose answer is lost is made again, and may have put its records before.

        with KinesisProducer("orders", region="eu-central-1") as producer:
            ticket = producer.put(b"...", "customer-7")
            print(ticket.result().sequence_number)

    In asyncio: ``async with`` it, ``ticket = await producer.put_async(...)``, ``await ticket``.

    Args:
        stream: a name or an ARN; None: that of ``config``.
        config: a spout's configuration, whose way to Kinesis is taken.
        client: a boto3 client to use instead of one made from the settings. It stays its caller's.
        spool: a durable buffer. What is in it is sent first, and a record is in it before `put` returns. It belongs to
            the producer, which closes it.
        dead_letters: a sink, or what names one (a directory, ``file://``, ``s3://``, ``kinesis://stream``), where
            records go that could not be put until their time was over, or never can be. None: they fail.
        settings: see `ProducerConfig`.

    Raises:
        InvalidConfig: names the setting, its value and what is allowed.
        SpoolError: the spool cannot be read.
        DeadLetterError: the sink cannot be written.
    """

    def __init__(
        self,
        stream: str | None = None,
        *,
        config: SpoutConfig | None = None,
        client: "KinesisClient | None" = None,
        spool: Spool | None = None,
        dead_letters: "DeadLetterSink | str | None" = None,
        **settings: Unpack[ProducerSettings],
    ) -> None:
        if isinstance(dead_letters, str):
            settings["dead_letters"] = dead_letters
        self.config = ProducerConfig.of(stream, config, **settings)
        self._spool = spool
        self._clock = SystemClock()
        aws = client_settings(msgspec.structs.asdict(self.config), self.config.stream_region)
        self._client = client or aws.connect()
        self._sink: DeadLetterSink | None = None
        if self.config.dead_letters is not None:
            self._sink = open_sink(self.config.dead_letters, client=self._client, aws=aws)
        elif dead_letters is not None and not isinstance(dead_letters, str):
            self._sink = dead_letters
        if self._sink is not None:
            self._sink.check_writable()
        self._owns_sink = self.config.dead_letters is not None
        limits = CallLimits(
            records=self.config.max_records_per_call, size_bytes=self.config.max_bytes_per_call
        )
        patience = Patience(deadline_seconds=inf, clock=self._clock)
        self._calls = PutCalls(self._client, self.config.stream, patience)
        records = waiting_records(
            self.config.stream,
            self._calls.work,
            patience=patience,
            limits=limits,
            order=PutOrder(self.config.order),
            aggregate_bytes=self.config.aggregation_max_bytes if self.config.aggregation else None,
        )
        self._bell = threading.Semaphore(0)
        self._rings = 0
        self._inbox = Inbox(self.config.max_buffered_records, self.config.max_buffered_bytes, self._wake)
        self._outbox = Outbox(
            records,
            self._inbox,
            OutboxSettings(
                linger_seconds=self.config.linger_seconds,
                delivery_timeout_seconds=self.config.delivery_timeout_seconds,
                max_concurrent_calls=self.config.max_concurrent_calls,
                limits=limits,
                wake_records=inf if self.config.aggregation else limits.records,
                wake_bytes=limits.size_bytes,
                has_dead_letters=self._sink is not None,
                recovers=spool is not None,
            ),
            clock=self._clock,
            jitter=random.random,
        )
        self._lock = threading.Lock()
        self._ended = threading.Condition(self._lock)
        self._name = f"producer-{uuid.uuid4().hex[:8]}"
        self._letters = 0
        self._spool_failure: SpoolError | None = None
        self._stops = False
        self._threads = [
            threading.Thread(target=self._work, name=f"{self._name}-{number}", daemon=True)
            for number in range(self.config.max_concurrent_calls)
        ]
        for thread in self._threads:
            thread.start()
        _open.add(self)

    def put(self, data: bytes, partition_key: str, *, explicit_hash_key: str | int | None = None) -> Ticket:
        """Take a record over, and give its ticket at once; see `when_full` for when there is no room.

        Args:
            data: at most 10 MiB together with the key.
            partition_key: 1 to 256 characters. Decides on the shard.
            explicit_hash_key: decides on the shard instead: a number below 2^128, perhaps as decimal text.

        Raises:
            InvalidRecord: no stream takes this; it is counted nowhere.
            BufferFull: there is no room, or was none in time.
            SpoolError: the spool could not take it. It is refused, and lost nowhere.
            ProducerClosed: the producer was closed.
        """
        ticket = _ticket_of(data, partition_key, explicit_hash_key)
        if self._spool is None and self._inbox.add(ticket):
            return ticket
        if self._spool is None or not self._inbox.reserve(ticket.size_bytes):
            self._make_room(ticket.size_bytes)
        self._accept(ticket)
        return ticket

    async def put_async(
        self, data: bytes, partition_key: str, *, explicit_hash_key: str | int | None = None
    ) -> Ticket:
        """Do what `put` does, without blocking the event loop. Raises like `put`."""
        ticket = _ticket_of(data, partition_key, explicit_hash_key)
        if self._spool is None and self._inbox.add(ticket):
            return ticket
        if self._spool is None or not self._inbox.reserve(ticket.size_bytes):
            await self._make_room_async(ticket.size_bytes)
        if self._spool is None:
            self._accept(ticket)
        else:
            await asyncio.to_thread(self._accept, ticket)
        return ticket

    def flush(self, timeout: float | None = None) -> None:
        """Return when every record put before this call has ended, one way or another.

        Args:
            timeout: how many seconds at most; None: as long as it takes, which ``delivery_timeout_seconds`` bounds.

        Raises:
            TimeoutError: names how many have not ended. They go on.
            SpoolError: the spool could not be read on; what is in it stays there.
        """
        deadline = inf if timeout is None else time.monotonic() + timeout
        with self._lock:
            left = self._outbox.begin_flush()
        self._wake()
        try:
            with self._ended:
                while True:
                    while left and left[-1].done():
                        left.pop()
                    if not left or time.monotonic() >= deadline:
                        break
                    self._ended.wait(min(1.0, deadline - time.monotonic()))
        finally:
            with self._lock:
                self._outbox.end_flush()
        waiting = sum(not ticket.done() for ticket in left)
        if waiting:
            raise TimeoutError(f"expected all records to end within {timeout} s; {waiting} are still waiting")
        if self._spool_failure is not None:
            raise self._spool_failure

    async def flush_async(self, timeout: float | None = None) -> None:
        """Do what `flush` does, without blocking the event loop."""
        await asyncio.to_thread(self.flush, timeout)

    def close(self, timeout: float | None = None) -> None:
        """Take no more, send what waits, and let go of everything. May be called twice.

        What has not ended when the time is over fails with `ProducerClosed`, or stays in the spool if there is one.

        Args:
            timeout: how many seconds at most; None: ``close_timeout_seconds``.
        """
        seconds = self.config.close_timeout_seconds if timeout is None else timeout
        self._inbox.close()
        if self._stops:
            return
        try:
            self.flush(seconds)
        except TimeoutError:
            pass
        except SpoolError as error:
            _log.error("%s", error)
        with self._lock:
            self._stops = True
            left = self._outbox.abandon(
                f"the producer of {self.config.stream} was closed after {seconds:g} s"
            )
        if left:
            _log.error(
                "%d records for %s were not sent before the producer was closed", left, self.config.stream
            )
        for _ in self._threads:
            self._bell.release()
        self._tell()
        _open.discard(self)
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(1.0)
        if self._owns_sink and self._sink is not None:
            self._sink.close()
        if self._spool is not None:
            self._spool.close()

    async def close_async(self, timeout: float | None = None) -> None:
        """Do what `close` does, without blocking the event loop."""
        await asyncio.to_thread(self.close, timeout)

    def counts(self) -> ProducerCounts:
        """Count what became of the records so far."""
        return self._inbox.counts()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close_async()

    def __repr__(self) -> str:
        return f"<KinesisProducer of {self.config.stream}, {self._inbox.waiting} records waiting>"

    # Room for a record.

    def _make_room(self, size_bytes: int) -> None:
        if self._make_room_now(size_bytes):
            return
        if self.config.when_full == "block" and self._inbox.reserve_within(
            size_bytes, self.config.block_timeout_seconds
        ):
            return
        self._refuse()

    async def _make_room_async(self, size_bytes: int) -> None:
        if self._make_room_now(size_bytes):
            return
        deadline = time.monotonic() + self.config.block_timeout_seconds
        loop = asyncio.get_running_loop()
        while self.config.when_full == "block" and not self._inbox.is_closed:
            has_room = asyncio.Event()

            def told(event: asyncio.Event = has_room) -> None:
                try:
                    loop.call_soon_threadsafe(event.set)
                except RuntimeError:  # the loop was closed
                    return

            self._inbox.call_when_there_is_room(told)
            if self._inbox.reserve(size_bytes):
                return
            try:
                await asyncio.wait_for(has_room.wait(), deadline - time.monotonic())
            except TimeoutError:
                break
        self._refuse()

    def _make_room_now(self, size_bytes: int) -> bool:
        if self._inbox.is_closed:
            self._refuse()
        if self.config.when_full == "drop_oldest":
            with self._lock:
                has_room = self._outbox.drop_oldest(size_bytes)
            self._tell()
            return has_room and self._inbox.reserve(size_bytes)
        return self._inbox.reserve(size_bytes)

    def _refuse(self) -> None:
        self._inbox.refuse()
        if self._inbox.is_closed:
            raise ProducerClosed(f"the producer of {self.config.stream} is closed: it takes no more records")
        counts = self._inbox.counts()
        raise BufferFull(
            f"expected room for a record, got {counts.waiting} records of {counts.waiting_bytes} bytes that wait for "
            f"{self.config.stream}; raise `max_buffered_records` or `max_buffered_bytes`, put less, or have more shards"
        )

    def _accept(self, ticket: Ticket) -> None:
        """Take over a record that there is room for."""
        if self._spool is not None:
            try:
                ticket.number_in_spool = self._spool.append(ticket.entry)
            except BaseException:
                self._inbox.refuse(ticket.size_bytes)
                raise
        self._inbox.add_reserved(ticket)

    # What the threads do.

    def _work(self) -> None:
        while not self._stops:
            work, wait_seconds = self._next_work()
            if work is not None:
                self._do(work)
                self._tell()
            elif not self._bell.acquire(timeout=wait_seconds):
                continue

    def _next_work(self) -> tuple[WorkToDo | None, float | None]:
        with self._lock:
            if self._stops:
                return None, 0.0
            work = self._outbox.next_work()
            is_armed = self._inbox.arm(*self._outbox.wakes_at)
            due_at = self._outbox.due_at
            has_more = work is not None and (self._outbox.has_more or due_at < inf)
        self._tell()
        if not is_armed or has_more:
            self._wake()
        now = time.monotonic()
        return work, None if due_at == inf else max(0.0, due_at - now)

    def _do(self, work: WorkToDo) -> None:
        if isinstance(work, Call):
            self._put(work)
        elif isinstance(work, Listing):
            ranges = self._calls.shards()
            with self._lock:
                self._outbox.listed(ranges)
        elif isinstance(work, Burial):
            self._bury(work)
        else:
            self._recover()

    def _put(self, call: Call) -> None:
        try:
            results = self._calls.put(call.batch)
        except (ClientError, BotoCoreError, UnicodeDecodeError) as error:
            failure: KinesisSpoutError = translate(error, self._calls.work)
            failure.__cause__ = error
        except KinesisSpoutError as error:
            failure = error
        else:
            with self._lock:
                self._outbox.answered(call, results)
            return
        _log.warning("%s; records that may be put again are", failure)
        with self._lock:
            self._outbox.failed(call, failure)

    def _bury(self, burial: Burial) -> None:
        assert self._sink is not None, "only with a sink is anything buried"
        try:
            self._sink.write([self._letter(ticket, burial) for ticket in burial.tickets])
        except DeadLetterError as error:
            _log.warning("%s", error)
            with self._lock:
                self._outbox.not_buried(burial, error)
        else:
            with self._lock:
                self._outbox.buried(burial)

    def _letter(self, ticket: Ticket, burial: Burial) -> DeadLetter:
        return DeadLetter(
            application="KinesisProducer",
            stream=self.config.stream,
            shard_id=self._name,
            sequence_number=str(ticket.row),
            partition_key=ticket.partition_key,
            arrival_timestamp=None,
            data=ticket.data,
            attempts=ticket.tries,
            error=f"{type(burial.error).__name__}: {burial.error}",
            reason=burial.reason,
            died_at=self._clock.time(),
        )

    def _recover(self) -> None:
        assert self._spool is not None, "only with a spool is anything recovered"
        try:
            spooled = self._spool.recovered(_RECOVERED_AT_ONCE)
        except SpoolError as error:
            _log.error("%s", error)
            self._spool_failure = error
            with self._lock:
                self._outbox.not_recovered()
            return
        tickets = [
            Ticket(
                entry.data,
                entry.partition_key,
                entry.explicit_hash_key,
                entry.size_bytes,
                number_in_spool=number,
            )
            for number, entry in spooled
        ]
        with self._lock:
            self._outbox.recovered(tickets)

    def _tell(self) -> None:
        """Tell those who want to know what ended."""
        with self._lock:
            to_tell, to_confirm = self._outbox.ended()
            self._ended.notify_all()
        if to_confirm and self._spool is not None:
            try:
                self._spool.confirm(to_confirm)
            except SpoolError as error:
                _log.error("%s", error)
        for ticket in to_tell:
            ticket.tell()

    def _wake(self) -> None:
        self._bell.release()


def _ticket_of(data: bytes, partition_key: str, explicit_hash_key: str | int | None) -> Ticket:
    if (
        type(data) is bytes
        and type(partition_key) is str
        and partition_key.isascii()
        and explicit_hash_key is None
    ):
        characters = len(partition_key)
        size_bytes = len(data) + characters
        if 0 < characters <= MAX_KEY_CHARACTERS and size_bytes <= MAX_RECORD_BYTES:
            return Ticket(data, partition_key, None, size_bytes)
    return _checked_ticket(data, partition_key, explicit_hash_key)


def _checked_ticket(data: object, partition_key: object, explicit_hash_key: object) -> Ticket:
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise InvalidRecord(f"data: expected bytes, got {type(data).__name__}")
    if not isinstance(partition_key, str):
        raise InvalidRecord(f"partition_key: expected text, got {type(partition_key).__name__}")
    if not 0 < len(partition_key) <= MAX_KEY_CHARACTERS:
        raise InvalidRecord(
            f"partition_key: expected 1 to {MAX_KEY_CHARACTERS} characters, got {len(partition_key)}"
        )
    try:
        key_bytes = len(partition_key.encode())
    except UnicodeEncodeError as error:
        raise InvalidRecord(
            "partition_key: expected text that UTF-8 can write, got half a surrogate pair"
        ) from error
    copied = bytes(data)
    size_bytes = len(copied) + key_bytes
    if size_bytes > MAX_RECORD_BYTES:
        raise InvalidRecord(
            f"data: expected at most {MAX_RECORD_BYTES} bytes together with the key, got {size_bytes}"
        )
    return Ticket(copied, str(partition_key), _hash_key_of(explicit_hash_key), size_bytes)


def _hash_key_of(given: object) -> str | None:
    if given is None:
        return None
    text = str(given) if isinstance(given, (str, int)) and not isinstance(given, bool) else ""
    if not (
        text.isascii() and text.isdecimal() and len(text) <= len(str(_HASH_KEYS)) and int(text) < _HASH_KEYS
    ):
        raise InvalidRecord(
            f"explicit_hash_key: expected a number from 0 to 2^128 - 1, got {str(given)[:50]!r}"
        )
    return str(int(text))


def _close_all() -> None:
    for producer in list(_open):
        waiting = producer.counts().waiting
        if waiting:
            producer.close(_EXIT_SECONDS)
            counts = producer.counts()
            _log.warning(
                "A producer of %s was never closed: of %d records that waited at the end of the program, %d could not "
                "be sent; close it, or use it in a `with` statement",
                producer.config.stream,
                waiting,
                counts.failed,
            )


atexit.register(_close_all)
