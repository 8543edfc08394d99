"""Reads the connections of all subscriptions of a consumer, each by a coroutine in the I/O thread.

It cuts the bytes that come into events, and queues these with their subscription. Subscribing takes a round trip,
and runs on another thread.

| what happens to a connection | what follows |
| --- | --- |
| 270 s passed (AWS ends it after 300 s) | a new one at once, from the same place |
| it ends, breaks, is damaged, or silent for 35 s | a new one, at least 5 s after it was subscribed |
| it brings an error, or cannot be made | the shard's reader gets the error, and subscribes again when it may |
| the subscription's queue is full | it is not read; after 270 s it is closed until there is room |
| the shard's end | closed |
"""

import asyncio
import contextlib
import logging
import math
import random
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from botocore.eventstream import EventStreamMessage

from kinesis_spout.kinesis.calls import translate
from kinesis_spout.kinesis.io_thread import IO
from kinesis_spout.kinesis.read.fan_out.subscribe_call import PushedEvents
from kinesis_spout.kinesis.read.fan_out.subscription import FrameBuffer, ShardSubscription, event_of
from kinesis_spout.kinesis.retry_policy import Jitter
from kinesis_spout.model.clock import Clock, SystemClock
from kinesis_spout.model.errors import KinesisSpoutError, Unavailable
from shard_state import Position

RENEW_AFTER_SECONDS: Final = 270.0
"""AWS ends a subscription after 300 s. Up to a tenth sooner, so that shards subscribed together are not
renewed together."""
AGAIN_AFTER_SECONDS: Final = 5.0
"""AWS refuses a subscription within 5 s of the last one to the same shard (ResourceInUse)."""
SILENCE_SECONDS: Final = 35.0
"""AWS sends an event every few seconds, with or without records. A silent connection is dead."""

_SUBSCRIBING_AT_ONCE: Final = 8
_READ_BYTES: Final = 256 * 1024
_READS_IN_A_ROW: Final = 16
"""Reads of one socket before the others have their turn."""

Subscribe = Callable[[str, Position], PushedEvents]
"""Subscribes to a shard (by id) from a position. Blocks for a round trip; raises what the call raises."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionPeriods:
    """Differ from AWS's only in tests."""

    renew_after_seconds: float = RENEW_AFTER_SECONDS
    again_after_seconds: float = AGAIN_AFTER_SECONDS
    silence_seconds: float = SILENCE_SECONDS


class SubscriptionReader:
    """Reads subscriptions. Thread-safe; it holds the I/O thread from the first one until ``close``."""

    def __init__(
        self,
        subscribe: Subscribe,
        *,
        periods: SubscriptionPeriods | None = None,
        clock: Clock | None = None,
        jitter: Jitter = random.random,
    ) -> None:
        self._subscribe = subscribe
        self._periods = periods or SubscriptionPeriods()
        self._clock = clock or SystemClock()
        self._jitter = jitter
        self._links: dict[ShardSubscription, _Link] = {}
        self._subscribed_at: dict[str, float] = {}
        """When each shard was last subscribed to, by any of its subscriptions."""
        self._turns = asyncio.Semaphore(_SUBSCRIBING_AT_ONCE)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self._lock = threading.Lock()
        """Guards the loop and ``_closed``; all else belongs to the I/O thread."""
        self.connections = 0
        self.cuts = 0
        """Connections that broke, or were ended by the other side."""

    def open(self, subscription: ShardSubscription) -> None:
        """Read a subscription from its place; also again, after it failed."""
        self._call(partial(self._open, subscription))

    def made_room(self, subscription: ShardSubscription) -> None:
        self._call(partial(self._resume, subscription))

    def drop(self, subscription: ShardSubscription) -> None:
        self._call(partial(self._drop, subscription))

    def close(self) -> None:
        """Close all connections. Idempotent."""
        with self._lock:
            self._closed = True
            loop, self._loop = self._loop, None
        if loop is not None and IO.runs(loop):
            try:
                IO.run(self._drop_all())
            finally:
                IO.release(loop)

    def _call(self, function: Callable[[], None]) -> None:
        with self._lock:
            if self._closed:
                return
            if self._loop is None:
                self._loop = IO.hold()
            self._loop.call_soon_threadsafe(function)

    # In the I/O thread

    def _open(self, subscription: ShardSubscription) -> None:
        link = self._links.get(subscription)
        if subscription.closed or (link is not None and not link.task.done()):
            return
        link = self._links[subscription] = _Link(subscription)
        link.task = asyncio.get_running_loop().create_task(self._follow(link))

    def _resume(self, subscription: ShardSubscription) -> None:
        link = self._links.get(subscription)
        if link is not None and not subscription.is_full:
            link.has_room.set()

    def _drop(self, subscription: ShardSubscription) -> None:
        link = self._links.pop(subscription, None)
        if link is not None:
            link.task.cancel()

    async def _drop_all(self) -> None:
        tasks = [link.task for link in self._links.values()]
        for subscription in list(self._links):
            self._drop(subscription)
        if tasks:
            await asyncio.wait(tasks)

    async def _follow(self, link: "_Link") -> None:
        """Keep a subscription connected until the shard's end, or an error, which the shard's reader gets."""
        subscription = link.subscription
        try:
            while not (subscription.closed or subscription.at_end):
                await link.room()
                with contextlib.closing(await self._connected(subscription)) as pushed:
                    await self._read(link, pushed)
        except Exception as error:  # noqa: BLE001 - not hidden: the shard's reader raises it
            subscription.fail(_meant(subscription, error))

    async def _connected(self, subscription: ShardSubscription) -> PushedEvents:
        """Subscribe, as soon as AWS allows it."""
        shard_id, now = subscription.shard_id, self._clock.monotonic()
        earliest = self._subscribed_at.get(shard_id, -math.inf) + self._periods.again_after_seconds
        await asyncio.sleep(max(0.0, earliest - now))
        async with self._turns:
            subscribe = partial(self._subscribe, shard_id, subscription.place)
            too_late = partial(self._too_late, shard_id)
            pushed: PushedEvents = await IO.in_thread(subscribe, unwanted=too_late)
        self._subscribed_at[shard_id] = self._clock.monotonic()
        self.connections += 1
        return pushed

    def _too_late(self, shard_id: str, pushed: PushedEvents) -> None:
        """Close a connection whose subscription was dropped meanwhile; AWS counts it all the same."""
        self._subscribed_at[shard_id] = self._clock.monotonic()
        pushed.close()

    async def _read(self, link: "_Link", pushed: PushedEvents) -> None:
        """Read a connection until another one is due. Raises KinesisSpoutError: it brought one, or nothing."""
        shard_id = link.subscription.shard_id
        link.begin(pushed)
        try:
            async with asyncio.timeout((1 - self._jitter() / 10) * self._periods.renew_after_seconds):
                await self._read_on(link)
        except TimeoutError:
            return
        except _Cut as cut:
            self.cuts += 1
            if not link.has_brought:
                raise Unavailable(
                    f"SubscribeToShard of {shard_id!r} brought no event before it was over: {cut}"
                ) from cut
            _log.debug("subscription to shard %r: %s; it is subscribed to again", shard_id, cut)
        finally:
            link.look_away()

    async def _read_on(self, link: "_Link") -> None:
        data = link.pushed.begun_with
        while True:
            if data:
                link.take_in(data, self._clock.monotonic())
            if link.subscription.at_end:
                return
            if link.pushed.ended:
                raise _Cut("the subscription ended")
            await link.room()
            data = await link.received(self._periods.silence_seconds)


class _Cut(Exception):  # noqa: N818 - mostly no error: connections end
    """Raised when a connection is over."""


class _Link:
    """A subscription and its present connection. Mutable, for the I/O thread."""

    task: "asyncio.Task[None]"
    pushed: PushedEvents

    def __init__(self, subscription: ShardSubscription) -> None:
        self.subscription = subscription
        self.has_room = asyncio.Event()
        self.has_brought = False
        """True once the connection brought an event."""
        self._readable = asyncio.Event()
        self._is_watched = False

    def begin(self, pushed: PushedEvents) -> None:
        self.pushed = pushed
        self.has_brought = False
        self._frames = FrameBuffer()
        self._reads = 0

    async def room(self) -> None:
        """Wait until there is room in the subscription's queue."""
        while self.subscription.is_full:
            self.look_away()  # or what is not read would wake the loop again and again
            self.has_room.clear()
            if self.subscription.is_full:
                await self.has_room.wait()

    async def received(self, silence_seconds: float) -> bytes:
        """Return what comes next. Raises _Cut if nothing will."""
        self._reads += 1
        if self._reads % _READS_IN_A_ROW == 0:
            await asyncio.sleep(0)
        while True:
            try:
                data = self.pushed.connection.recv(_READ_BYTES)
            except (BlockingIOError, InterruptedError, ssl.SSLWantReadError):
                await self._until_readable(silence_seconds)
            except OSError as error:
                raise _Cut(f"the connection broke: {error!r}") from error
            else:
                if data:
                    return data
                raise _Cut("the connection ended")

    async def _until_readable(self, silence_seconds: float) -> None:
        self._reads = 0
        self._readable.clear()
        if not self._is_watched:
            asyncio.get_running_loop().add_reader(self.pushed.connection.fileno(), self._readable.set)
            self._is_watched = True
        try:
            async with asyncio.timeout(silence_seconds):
                await self._readable.wait()
        except TimeoutError as error:
            raise _Cut(f"nothing came for {silence_seconds:g} s") from error

    def look_away(self) -> None:
        """Watch the connection no longer; before it is closed, too."""
        if self._is_watched:
            asyncio.get_running_loop().remove_reader(self.pushed.connection.fileno())
            self._is_watched = False

    def take_in(self, data: bytes, now: float) -> None:
        """Queue the complete events. Raises what an error frame says, or _Cut for damaged bytes."""
        try:
            frames = self._frames.feed(self.pushed.body_in(data))
        except Unavailable as error:
            raise _Cut(str(error)) from error
        for frame in frames:
            self._take_in(frame, now)

    def _take_in(self, frame: EventStreamMessage, now: float) -> None:
        subscription = self.subscription
        event = event_of(frame, f"SubscribeToShard of shard {subscription.shard_id!r}")
        if event is not None:
            self.has_brought = True
            subscription.take_in(event, len(frame.payload), now)


def _meant(subscription: ShardSubscription, error: Exception) -> KinesisSpoutError:
    if isinstance(error, KinesisSpoutError):
        return error
    return translate(error, f"Reading the subscription to shard {subscription.shard_id!r}")
