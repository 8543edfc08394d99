"""Room for records in a full buffer: waited for, made by dropping others, or refused."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import NoReturn

from kinesis_spout.model.clock import Clock
from kinesis_spout.model.errors import BufferFull, ProducerClosed
from kinesis_spout.model.logs import counted
from kinesis_spout.producer.producer_engine import Engine
from kinesis_spout.producer.tickets import AnyTicket
from kinesis_spout.settings.producer_config import ProducerConfig


class FullBuffer:
    """Applies ``when_full`` to what found no room at once. Thread-safe.

    ``await_room`` waits until room is reserved for records, and returns whether it is. It may refuse to wait.
    """

    def __init__(
        self, config: ProducerConfig, engine: Engine, clock: Clock, await_room: Callable[[AnyTicket], bool]
    ) -> None:
        self._config = config
        self._engine = engine
        self._buffer = engine.buffer
        self._clock = clock
        self._await_room = await_room

    def make(self, put: AnyTicket) -> None:
        try:
            has_room = self._now(put) or (self._may_wait and self._waited(put))
        except BaseException:  # Ctrl-C
            self._buffer.refuse(put)
            raise
        if not has_room:
            self._refuse(put)

    async def make_async(self, put: AnyTicket) -> None:
        try:
            has_room = self._now(put)
            if not has_room and self._may_wait:
                with self._hurried_for(put):
                    has_room = await self._await_room_async(put)
        except BaseException:  # it was cancelled
            self._buffer.refuse(put)
            raise
        if not has_room:
            self._refuse(put)

    def wait(self, put: AnyTicket) -> bool:
        """Block until room is reserved for records; False if there was none in time."""
        deadline = self._clock.monotonic() + self._config.block_timeout_seconds
        while not self._buffer.is_closed:
            may_have_room = threading.Event()
            self._buffer.call_when_there_is_room(may_have_room.set)
            if self._buffer.reserve(put, waits=True):
                return True
            if not may_have_room.wait(max(0.0, deadline - self._clock.monotonic())):
                break
        return False

    async def _await_room_async(self, put: AnyTicket) -> bool:
        deadline = self._clock.monotonic() + self._config.block_timeout_seconds
        loop = asyncio.get_running_loop()
        while not self._buffer.is_closed:
            may_have_room = asyncio.Event()

            def told(event: asyncio.Event = may_have_room) -> None:
                try:
                    loop.call_soon_threadsafe(event.set)
                except RuntimeError:  # the loop was closed
                    return

            self._buffer.call_when_there_is_room(told)
            if self._buffer.reserve(put, waits=True):
                return True
            try:
                await asyncio.wait_for(may_have_room.wait(), deadline - self._clock.monotonic())
            except TimeoutError:
                break
        return False

    def _waited(self, put: AnyTicket) -> bool:
        with self._hurried_for(put):
            return self._await_room(put)

    def _hurried_for(self, put: AnyTicket) -> AbstractContextManager[None]:
        """Let nothing linger while more than half of the buffer is needed: less than that may wait there."""
        most, most_bytes = self._config.max_buffered_records, self._config.max_buffered_bytes
        is_large = 2 * put.count > most or 2 * put.size_bytes > most_bytes
        return self._engine.flushing() if is_large else nullcontext()

    def _now(self, put: AnyTicket) -> bool:
        if self._buffer.reserve(put):
            return True
        if self._config.when_full == "drop_oldest":
            # Another thread may take the room first: then there is an older one to drop.
            while not self._buffer.is_closed and self._engine.drop_oldest(put):
                if self._buffer.reserve(put):
                    return True
        return False

    @property
    def _may_wait(self) -> bool:
        return self._config.when_full == "block" and not self._buffer.is_closed

    def _refuse(self, put: AnyTicket) -> NoReturn:
        self._buffer.refuse(put)
        stream = self._config.stream
        if self._buffer.is_closed:
            raise ProducerClosed(f"the producer of {stream} is closed: it takes no more records")
        counts = self._buffer.counts()
        if max(self._buffer.missing(put)) <= 0 and not self._buffer.is_kept:
            raise BufferFull(
                f"expected room for {counted(put.count, 'record')}, got a shard of {stream} that refuses records "
                f"and has its share of the buffer, where {counts.waiting} records wait; put what is for other "
                "shards, raise `max_buffered_records` or `max_buffered_bytes`, or add shards"
            )
        raise BufferFull(
            f"expected room for {counted(put.count, 'record')}, got {counts.waiting} records of "
            f"{counts.waiting_bytes} bytes that wait for {stream}; raise `max_buffered_records` or "
            "`max_buffered_bytes`, or put less"
        )
