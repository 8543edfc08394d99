"""`KinesisProducer`: the door of an engine, and the threads that drive it."""

import asyncio
import atexit
import logging
import os
import random
import threading
import weakref
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from math import inf
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, Unpack

import msgspec

from kinesis_spout.dead_letters.sink_url import open_sink
from kinesis_spout.model.clock import Clock, SystemClock
from kinesis_spout.model.distribution import Counted
from kinesis_spout.model.errors import (
    InvalidConfig,
    ProducerClosed,
    ProducerError,
    SpoolError,
    refuse_other_kind,
)
from kinesis_spout.model.logs import counted
from kinesis_spout.producer.buffer import ProducerCounts
from kinesis_spout.producer.full_buffer import FullBuffer
from kinesis_spout.producer.producer_engine import Engine
from kinesis_spout.producer.spool import Spool
from kinesis_spout.producer.tickets import AnyTicket, BatchTicket, FailedRecord, Ticket
from kinesis_spout.producer.valid_records import PutRecord, batch_of, ticket_of
from kinesis_spout.settings import SpoutConfig
from kinesis_spout.settings.documentation import with_settings
from kinesis_spout.settings.grammar.stream_names import is_same
from kinesis_spout.settings.producer_config import ProducerConfig, ProducerSettings
from kinesis_spout.settings.spout_config import refuse_misplaced
from kinesis_spout.settings.table.writing import PRODUCER_SETTINGS

if TYPE_CHECKING:
    from mypy_boto3_kinesis import KinesisClient

    from kinesis_spout.ports import DeadLetterSink

_EXIT_SECONDS: Final = 5.0
"""The time for which the end of a program waits for a producer that was not closed."""
_JOIN_SECONDS: Final = 1.0
_LOOK_SECONDS: Final = 1.0

_log = logging.getLogger(__name__)
_open: "weakref.WeakSet[KinesisProducer]" = weakref.WeakSet()


@with_settings(PRODUCER_SETTINGS.values())
class KinesisProducer:
    """Puts records on one stream in the background. Thread-safe; also for asyncio.

    `put` takes a record over at once and returns a ticket, which tells in the end where the record is, or why
    it failed. Records go in full calls, several at once; refused records are put again, and delay only that
    shard's records. No record is lost in silence: each ends as sent, failed, dropped or refused, and `counts`
    adds up.

    At least once: a call whose answer is lost is made again, and may have put its records before.

        with KinesisProducer("orders", region="eu-central-1") as producer:
            ticket = producer.put(b"...", "customer-7")
            print(ticket.result().sequence_number)

    `put_many` takes many records for one ticket, which is cheaper, and `send` one without a ticket.

    In asyncio: ``async with`` it, ``ticket = await producer.put_async(...)``, ``await ticket``.

    Args:
        stream: a name or an ARN; None: that of ``config``.
        config: a spout's configuration, whose settings for the connection to Kinesis are used. None: those of
            the environment variables ``KINESIS_SPOUT_NAME``.
        client: a boto3 client to use instead of one made from the settings. The producer does not close it.
        spool: a durable buffer. Its records are sent first; a record is in it before `put` returns. It
            belongs to the producer, which closes it.
        dead_letters: a sink, or its name (a directory, ``file://``, ``s3://``, ``kinesis://stream``), for
            records that could not be put until their time was over, or never can be. None: they fail.
        on_failure: called for each record put by `send` that is not on the stream, on a thread of the producer,
            where the same holds as for a ticket's callback; see `Ticket.add_done_callback`.
        settings: see below.

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
        on_failure: Callable[[FailedRecord], object] | None = None,
        **settings: Unpack[ProducerSettings],
    ) -> None:
        refuse_misplaced("KinesisProducer", stream, config)
        if client is not None:
            refuse_other_kind(
                "client", 'a boto3 client, as boto3.client("kinesis") makes', client, "put_records"
            )
        if spool is not None:
            refuse_other_kind(
                "spool", "a spool, as DiskSpool(directory, stream=...) makes", spool, "append", "confirm"
            )
        if dead_letters is not None and not isinstance(dead_letters, str):
            refuse_other_kind(
                "dead_letters",
                "a directory, a URL or a DeadLetterSink",
                dead_letters,
                "write",
                "check_writable",
            )
        if on_failure is not None:
            refuse_other_kind("on_failure", "a function of a FailedRecord", on_failure, "__call__")
        url = None
        if isinstance(dead_letters, str):
            url, dead_letters = dead_letters, None
        config_ = self.config = ProducerConfig.of(stream, config, dead_letters=url, **settings)
        from kinesis_spout.settings.kinesis import client_settings  # noqa: PLC0415 - imports boto3

        aws = client_settings(msgspec.structs.asdict(config_), config_.stream_region)
        _check_spool(spool, config_.stream)
        tracing = None
        self._ticket_of: Callable[..., Ticket] = ticket_of
        self._batch_of: Callable[..., BatchTicket] = batch_of
        if config_.tracing:
            from kinesis_spout.tracing import PutTracing  # noqa: PLC0415 - it needs an extra

            tracing = PutTracing(config_.stream)
            self._ticket_of = tracing.traced(ticket_of)
            self._batch_of = tracing.traced(batch_of)
        client = client or aws.connect()
        self._spool = spool
        self._own_sink: DeadLetterSink | None = None
        try:
            if config_.dead_letters is not None:
                dead_letters = self._own_sink = open_sink(config_.dead_letters, client=client, aws=aws)
            if dead_letters is not None:
                dead_letters.check_writable()
        except BaseException:  # on a full disk each try would leave a file of the spool in use
            self._close_own()
            raise
        self._engine = Engine(
            config_,
            client,
            sink=dead_letters,
            spool=spool,
            tracing=tracing,
            on_failure=on_failure,
            clock=self._clock,
            jitter=random.random,
        )
        self._buffer = self._engine.buffer
        self._full_buffer = FullBuffer(config_, self._engine, self._clock, self._await_room)
        self._closing = threading.Lock()
        self._begin()

    def put(self, data: bytes, partition_key: str, *, explicit_hash_key: str | int | None = None) -> Ticket:
        """Take a record over, and return its ticket at once; without room, see `when_full`.

        Args:
            data: at most 10 MiB together with the key.
            partition_key: 1 to 256 characters. Decides on the shard.
            explicit_hash_key: decides on the shard instead: a number below 2^128, perhaps as decimal text.

        Raises:
            InvalidRecord: no stream takes this; it is counted nowhere.
            BufferFull: there is no room, or was none in time.
            SpoolError: the spool could not take it. It is refused.
            ProducerClosed: the producer was closed.
        """
        ticket = self._ticket_of(data, partition_key, explicit_hash_key)
        self._take_over(ticket)
        return ticket

    async def put_async(
        self, data: bytes, partition_key: str, *, explicit_hash_key: str | int | None = None
    ) -> Ticket:
        """Do what `put` does, without blocking the event loop. Raises like `put`.

        If it is cancelled while it waits for room, the record is refused; if later, it may be taken over.
        """
        ticket = self._ticket_of(data, partition_key, explicit_hash_key)
        await self._take_over_async(ticket)
        return ticket

    def put_many(self, records: Iterable[PutRecord]) -> BatchTicket:
        """Take records over, all or none of them, and return one ticket for all of them.

        Cheaper than `put` for each. Without room for all of them `when_full` decides; records larger than the
        whole buffer need an empty one. While they wait for room, other puts wait, too.

        Args:
            records: each a tuple ``(data, partition_key)`` or ``(data, partition_key, explicit_hash_key)``, as
                `put` takes them. Records of one key go in their order.

        Raises:
            InvalidRecord: no stream takes one of them; names its place. None is taken over.
            BufferFull, SpoolError, ProducerClosed: as `put`. None is taken over.
        """
        batch = self._batch_of(records)
        if batch.count:
            self._take_over(batch)
        return batch

    async def put_many_async(self, records: Iterable[PutRecord]) -> BatchTicket:
        """Do what `put_many` does, without blocking the event loop; if it is cancelled, as `put_async`."""
        batch = self._batch_of(records)
        if batch.count:
            await self._take_over_async(batch)
        return batch

    def send(self, data: bytes, partition_key: str, *, explicit_hash_key: str | int | None = None) -> None:
        """Take a record over without a ticket: `counts` and ``on_failure`` tell its outcome.

        Everything else is as with `put`.
        """
        ticket = self._ticket_of(data, partition_key, explicit_hash_key)
        ticket.reports = True
        self._take_over(ticket)

    async def send_async(
        self, data: bytes, partition_key: str, *, explicit_hash_key: str | int | None = None
    ) -> None:
        """Do what `send` does, without blocking the event loop; if it is cancelled, as `put_async`."""
        ticket = self._ticket_of(data, partition_key, explicit_hash_key)
        ticket.reports = True
        await self._take_over_async(ticket)

    def flush(self, timeout: float | None = None) -> None:
        """Return when every record put before this call has ended.

        With a spool this includes what an earlier producer left there, which is sent before new records.

        Args:
            timeout: how many seconds at most; None: no limit but ``delivery_timeout_seconds``.

        Raises:
            TimeoutError: names how many have not ended. They continue.
            SpoolError: the spool could not be read further: its records stay there, and are tried again.
            SpoolDamaged: records of the spool are lost; raised once. All others have ended.
            ProducerError: it is called from a callback of a ticket: the records it waits for need that thread.
        """
        if self._engine.is_called_back:
            raise ProducerError(
                "expected flush outside of a ticket's callback, got it inside, where it would wait for itself; "
                "flush in a thread of your own"
            )
        deadline = inf if timeout is None else self._clock.monotonic() + timeout
        with self._engine.flushing():
            self._await(lambda: not self._engine.is_recovering, deadline)
            left = self._engine.not_ended()
            self._await(lambda: _have_ended(left), deadline)
        waiting = sum([put.left for put in left])
        if waiting or self._engine.is_recovering:
            raise TimeoutError(
                f"expected all records to end within {timeout} s; {waiting} for {self.config.stream} still wait"
            )
        if (failure := self._engine.take_spool_failure()) is not None:
            raise failure

    async def flush_async(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - flush has it
        """Do what `flush` does, without blocking the event loop."""
        await asyncio.to_thread(self.flush, timeout)

    def close(self, timeout: float | None = None) -> None:
        """Take no more records, send what waits, and release everything. May be called twice.

        A record that has not ended when the time is over fails with `ProducerClosed`; with a spool it stays there.
        Records that an earlier producer left in the spool are sent within the same time. From a callback of a
        ticket it returns at once, and a thread does the rest.

        Args:
            timeout: how many seconds at most; None: ``close_timeout_seconds``.

        Raises:
            SpoolError: the spool could not make durable what it held in memory. Everything is released
                nevertheless.
        """
        seconds = self.config.close_timeout_seconds if timeout is None else timeout
        self._buffer.close()
        if self._engine.is_called_back:
            threading.Thread(target=self._close, args=(seconds,), name="producer closes", daemon=True).start()
        else:
            self._close(seconds)

    def _close(self, seconds: float) -> None:
        with self._closing:
            if not self._engine.is_stopped:
                self._flush_and_stop(seconds)

    async def close_async(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - close has it
        """Do what `close` does, without blocking the event loop."""
        await asyncio.to_thread(self.close, timeout)

    def counts(self) -> ProducerCounts:
        """Count the records so far, by their outcome."""
        return self._buffer.counts()

    @property
    def call_seconds(self) -> Counted:
        """The durations of the calls of PutRecords."""
        return self._engine.call_seconds

    @property
    def spool_bytes(self) -> int:
        """The size of this producer's spool on the disk, in bytes; 0 without a spool."""
        return 0 if self._spool is None else self._spool.size_bytes

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
        return f"<KinesisProducer of {self.config.stream}, {self._buffer.waiting} records waiting>"

    # A producer without threads does these otherwise.

    _clock: Clock = SystemClock()

    def _begin(self) -> None:
        _open.add(self)
        self._engine.start(self.config.max_concurrent_calls)

    def _await(self, is_over: Callable[[], bool], deadline: float) -> None:
        while not (self._engine.is_stopped or is_over()):
            seconds = deadline - self._clock.monotonic()
            if seconds <= 0:
                return
            self._engine.await_end(is_over, min(_LOOK_SECONDS, seconds))

    def _await_room(self, put: AnyTicket) -> bool:
        if self._engine.is_called_back:  # it would wait for itself
            return self._buffer.reserve(put, ahead=True)
        return self._full_buffer.wait(put)

    # The end.

    def _flush_and_stop(self, seconds: float) -> None:
        stream = self.config.stream
        deadline = self._clock.monotonic() + seconds
        self._buffer.await_added(seconds)
        try:
            self.flush(max(0.0, deadline - self._clock.monotonic()))
        except TimeoutError:
            pass  # what is left is logged below
        except SpoolError as error:
            _log.error("%s", error)
        left = self._engine.stop(f"the producer of {stream} was closed after {seconds:g} s")
        if left:
            _log.error("Not sent before the producer of %s was closed: %s", stream, counted(left, "record"))
        _open.discard(self)
        try:
            self._engine.join(_JOIN_SECONDS)
        finally:
            self._close_own()

    def _close_own(self) -> None:
        """Release the spool and the sink that it opened: each of them, whatever another raises."""
        with ExitStack() as closing:
            if self._spool is not None:
                closing.callback(self._spool.close)
            if self._own_sink is not None:
                closing.callback(self._own_sink.close)

    def _forget(self) -> None:
        """Close in a child process, which has none of the threads. They may hold locks for ever."""
        self._engine.forget()
        self._buffer = self._engine.buffer
        self._full_buffer = FullBuffer(self.config, self._engine, self._clock, self._await_room)
        self._closing = threading.Lock()

    # Taking records over.

    def _take_over(self, put: AnyTicket) -> None:
        if self._spool is None and self._buffer.add(put):
            return
        if self._spool is None or not self._buffer.reserve(put):
            self._full_buffer.make(put)
        self._accept(put)

    async def _take_over_async(self, put: AnyTicket) -> None:
        if self._spool is None and self._buffer.add(put):
            return
        if self._spool is None or not self._buffer.reserve(put):
            await self._full_buffer.make_async(put)
        if self._spool is None:
            self._accept(put)
        else:
            await self._accept_async(put)

    def _accept(self, put: AnyTicket) -> None:
        """Take over records with reserved room."""
        if self._spool is not None:
            try:
                first = self._spool.append(*put.tickets)
            except BaseException:
                self._buffer.refuse(put, is_reserved=True)
                raise
            for number, ticket in enumerate(put.tickets, first):
                ticket.number_in_spool = number
        if not self._buffer.add_reserved(put):
            # It was closed meanwhile, and its time was over.
            error = ProducerClosed(
                f"the producer of {self.config.stream} was closed; {counted(put.count, 'record')} not sent"
            )
            for ticket in put.handed_over(0):
                ticket.outcome = error
                if ticket.batch is not None:
                    ticket.batch.ended(ticket, error)
                if ticket.reports:
                    self._engine.report(ticket, error)
            self._buffer.ended(failed=put.count, size_bytes=put.size_bytes)

    async def _accept_async(self, put: AnyTicket) -> None:
        try:
            accepting = asyncio.get_running_loop().run_in_executor(None, self._accept, put)
        except BaseException:  # the loop is about to end
            self._buffer.refuse(put, is_reserved=True)
            raise
        await asyncio.shield(accepting)  # a cancelled caller must not leave reserved room behind


def _check_spool(spool: Spool | None, stream: str) -> None:
    if spool is not None and spool.stream is not None and not is_same(spool.stream, stream):
        raise InvalidConfig(
            f"spool: expected that of stream {stream!r}, got that of {spool.stream!r}; each stream has its own"
        )


def _have_ended(puts: list[AnyTicket]) -> bool:
    """Return whether all have ended; removes those at the end that have, to look at each once."""
    while puts and puts[-1].done():
        puts.pop()
    return not puts


def _close_all() -> None:
    """At the end of the program, send what unclosed producers hold, and log it."""
    for producer in list(_open):
        before = producer.counts()
        waiting, failed = before.waiting, before.failed
        if waiting:
            try:
                producer.close(_EXIT_SECONDS)
            except Exception as error:  # noqa: BLE001 - others must be closed, too
                _log.error("A producer of %s could not be closed: %s", producer.config.stream, error)
            counts = producer.counts()
            _log.warning(
                "A producer of %s was never closed: of %d records that waited at the end of the program, %d were "
                "not sent; close it, or use it in a `with` statement",
                producer.config.stream,
                waiting,
                counts.failed - failed,
            )


def _forget_in_child() -> None:
    for producer in list(_open):
        producer._forget()  # noqa: SLF001 - of this module
    _open.clear()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)
