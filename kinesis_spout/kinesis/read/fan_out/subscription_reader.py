"""Reads the connections of all subscriptions of a consumer, in the I/O thread.

When a socket is readable, it cuts the bytes into events, and queues these with their subscription. Subscribing
takes a round trip, and runs on a few threads of its own.

| what happens to a connection | what follows |
| --- | --- |
| 270 s passed (AWS ends it after 300 s) | a new one at once, from the same place |
| it ends, breaks, is damaged, or silent for 35 s | a new one, at least 5 s after it was subscribed |
| it brings an error, or cannot be made | the shard's reader gets the error, and subscribes again when it may |
| the subscription's queue is full | it is not read; after 270 s it is closed until there is room |
| the shard's end | closed |
"""

import asyncio
import logging
import math
import random
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from botocore.eventstream import EventStreamMessage

from kinesis_spout.kinesis.calls import translate
from kinesis_spout.kinesis.io_thread import IO
from kinesis_spout.kinesis.read.fan_out.subscribe_call import PushedEvents
from kinesis_spout.kinesis.read.fan_out.subscription import FrameBuffer, ShardSubscription, event_of
from kinesis_spout.kinesis.retry_policy import Jitter
from kinesis_spout.model.clock import Clock, SystemClock
from kinesis_spout.model.errors import KinesisSpoutError, Unavailable
from shard_state import Position

if TYPE_CHECKING:
    from concurrent.futures import Future

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
"""Of one socket, before the others have their turn."""

Subscribe = Callable[[str, Position], PushedEvents]
"""Subscribes to a shard (by id) from a position. Blocks for a round trip; raises what the call raises."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionPeriods:
    """Differ from AWS's only in tests."""

    renew_after_seconds: float = RENEW_AFTER_SECONDS
    again_after_seconds: float = AGAIN_AFTER_SECONDS
    silence_seconds: float = SILENCE_SECONDS


@dataclass(slots=True, kw_only=True, eq=False)
class _Link:
    subscription: ShardSubscription
    pushed: PushedEvents | None = None
    """None: there is no connection now."""
    frames: FrameBuffer = field(default_factory=FrameBuffer)
    is_read: bool = False
    is_subscribing: bool = False
    is_put_off: bool = False
    """Subscribed to again when there is room."""
    heard_at: float = 0.0
    has_brought: bool = False


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
        self._connecting: set[asyncio.Task[None]] = set()
        self._timers: set[asyncio.TimerHandle] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self._lock = threading.Lock()
        """Guards the loop and ``_closed``; all else belongs to the I/O thread."""
        self.connections = 0
        self.cuts = 0
        """How many broke, or were ended by the other side."""

    def open(self, subscription: ShardSubscription) -> None:
        """Read a subscription from its place; also again, after it failed."""
        self._call(partial(self._opened, subscription))

    def made_room(self, subscription: ShardSubscription) -> None:
        self._call(partial(self._resumed, subscription))

    def drop(self, subscription: ShardSubscription) -> None:
        self._call(partial(self._dropped, subscription))

    def close(self) -> None:
        """Close all connections. Idempotent."""
        with self._lock:
            self._closed = True
            loop, self._loop = self._loop, None
        if loop is not None and IO.runs(loop):
            IO.run(self._drop_all())
            IO.release(loop)

    def _call(self, function: Callable[[], None]) -> None:
        with self._lock:
            if self._closed:
                return
            if self._loop is None:
                self._loop = IO.hold()
            self._loop.call_soon_threadsafe(function)

    async def _drop_all(self) -> None:
        for task in self._connecting:
            task.cancel()
        for timer in self._timers:
            timer.cancel()
        for subscription in list(self._links):
            self._dropped(subscription)

    # In the I/O thread

    def _at(self, moment: float, function: Callable[[], None]) -> None:
        """Call a function at a time of the clock, unless the reader is closed before."""

        def call() -> None:
            self._timers.discard(timer)
            function()

        seconds = max(0.0, moment - self._clock.monotonic())
        timer = asyncio.get_running_loop().call_later(seconds, call)
        self._timers.add(timer)

    # Connecting

    def _opened(self, subscription: ShardSubscription) -> None:
        if subscription.closed:
            return
        link = self._links.setdefault(subscription, _Link(subscription=subscription))
        link.is_put_off = False
        if link.pushed is None and not link.is_subscribing:
            self._connect(link)

    def _connect(self, link: _Link) -> None:
        """Subscribe, as soon as AWS allows it."""
        link.is_subscribing = True
        last = self._subscribed_at.get(link.subscription.shard_id)
        earliest = -math.inf if last is None else last + self._periods.again_after_seconds
        if earliest > self._clock.monotonic():
            self._at(earliest, partial(self._start_to_connect, link))
        else:
            self._start_to_connect(link)

    def _start_to_connect(self, link: _Link) -> None:
        if not self._is_over(link):
            task = asyncio.get_running_loop().create_task(self._make_connection(link))
            self._connecting.add(task)
            task.add_done_callback(self._connecting.discard)

    async def _make_connection(self, link: _Link) -> None:
        subscription = link.subscription
        try:
            async with self._turns:
                if self._is_over(link):
                    return
                subscribing = IO.submit(partial(self._subscribe, subscription.shard_id, subscription.place))
                pushed = await _result_of(subscribing)
        except Exception as error:  # noqa: BLE001 - not hidden: the shard's reader raises it
            self._failed(link, _meant(subscription, error))
        else:
            self._connected(link, pushed)

    def _connected(self, link: _Link, pushed: PushedEvents) -> None:
        link.is_subscribing = False
        now = link.heard_at = self._subscribed_at[link.subscription.shard_id] = self._clock.monotonic()
        if self._is_over(link) or link.pushed is not None:
            pushed.close()
            return
        self.connections += 1
        link.pushed, link.frames, link.has_brought = pushed, FrameBuffer(), False
        share = 1 - self._jitter() / 10
        self._at(now + share * self._periods.renew_after_seconds, partial(self._renew, link, pushed))
        self._at(now + self._periods.silence_seconds, partial(self._look_whether_alive, link, pushed))
        self._look_at(link)
        if pushed.begun_with and not self._take_in(link, pushed.begun_with):
            return
        self._readable(link)

    def _failed(self, link: _Link, failure: KinesisSpoutError) -> None:
        """Give the failure to the shard's reader, which opens the subscription again."""
        link.is_subscribing = False
        self._disconnect(link)
        if not self._is_over(link):
            link.subscription.fail(failure)

    def _renew(self, link: _Link, pushed: PushedEvents) -> None:
        if link.pushed is pushed:
            self._disconnect(link)
            self._connect_when_there_is_room(link)

    def _connect_when_there_is_room(self, link: _Link) -> None:
        link.is_put_off = link.subscription.is_full
        if not link.is_put_off:
            self._connect(link)

    def _is_over(self, link: _Link) -> bool:
        return link.subscription.closed or self._links.get(link.subscription) is not link

    def _dropped(self, subscription: ShardSubscription) -> None:
        link = self._links.pop(subscription, None)
        if link is not None:
            self._disconnect(link)

    def _disconnect(self, link: _Link) -> None:
        if link.pushed is not None:
            self._look_away(link)
            link.pushed.close()
            link.pushed = None

    # Reading

    def _look_at(self, link: _Link) -> None:
        if link.pushed is not None and not link.is_read:
            asyncio.get_running_loop().add_reader(
                link.pushed.connection.fileno(), partial(self._readable, link)
            )
            link.is_read = True

    def _look_away(self, link: _Link) -> None:
        if link.pushed is not None and link.is_read:
            asyncio.get_running_loop().remove_reader(link.pushed.connection.fileno())
            link.is_read = False

    def _resumed(self, subscription: ShardSubscription) -> None:
        link = self._links.get(subscription)
        if link is None or subscription.is_full:
            return
        if link.is_put_off:
            link.is_put_off = False
            self._connect(link)
        elif link.pushed is not None and not link.is_read:
            link.heard_at = self._clock.monotonic()
            self._look_at(link)
            self._readable(link)  # bytes that TLS has decrypted do not show at the socket

    def _readable(self, link: _Link) -> None:
        for _ in range(_READS_IN_A_ROW):
            if link.pushed is None or not link.is_read:
                return
            try:
                data = link.pushed.connection.recv(_READ_BYTES)
            except (BlockingIOError, InterruptedError, ssl.SSLWantReadError):
                return
            except OSError as error:
                self._cut(link, f"the connection broke: {error!r}")
                return
            if not data:
                self._cut(link, "the connection ended")
                return
            if not self._take_in(link, data):
                return
        asyncio.get_running_loop().call_soon(partial(self._readable, link))

    def _take_in(self, link: _Link, data: bytes) -> bool:
        """Queue the complete events; False if the connection is no longer read."""
        assert link.pushed is not None
        subscription, pushed = link.subscription, link.pushed
        link.heard_at = self._clock.monotonic()
        try:
            frames = link.frames.feed(pushed.body_in(data))
        except Unavailable as error:
            self._cut(link, str(error))
            return False
        for frame in frames:
            failure = _take_in(link, frame)
            if failure is not None:
                self._failed(link, failure)
                return False
        if subscription.at_end:
            self._dropped(subscription)
        elif pushed.ended:
            self._cut(link, "the subscription ended")
        elif subscription.is_full:
            self._look_away(link)
        else:
            return True
        return False

    def _cut(self, link: _Link, why: str) -> None:
        """Continue from the place with another connection; one that brought nothing is a failure."""
        self.cuts += 1
        shard_id = link.subscription.shard_id
        self._disconnect(link)
        if link.has_brought:
            _log.debug("subscription to shard %r: %s; it is subscribed to again", shard_id, why)
            self._connect_when_there_is_room(link)
        else:
            self._failed(
                link,
                Unavailable(f"SubscribeToShard of {shard_id!r} brought no event before it was over: {why}"),
            )

    def _look_whether_alive(self, link: _Link, pushed: PushedEvents) -> None:
        if link.pushed is not pushed:
            return
        now, silence_seconds = self._clock.monotonic(), self._periods.silence_seconds
        if link.is_read and link.heard_at + silence_seconds <= now:
            self._cut(link, f"nothing came for {silence_seconds:g} s")
            return
        since = link.heard_at if link.is_read else now
        self._at(since + silence_seconds, partial(self._look_whether_alive, link, pushed))


async def _result_of(subscribing: "Future[PushedEvents]") -> PushedEvents:
    try:
        return await asyncio.wrap_future(subscribing)
    except asyncio.CancelledError:
        subscribing.add_done_callback(_close_pushed)
        raise


def _close_pushed(subscribing: "Future[PushedEvents]") -> None:
    if not subscribing.cancelled() and subscribing.exception() is None:
        subscribing.result().close()


def _take_in(link: _Link, frame: EventStreamMessage) -> KinesisSpoutError | None:
    """Queue the event in a frame; returns the error of an error frame."""
    subscription = link.subscription
    try:
        event = event_of(frame, f"SubscribeToShard of shard {subscription.shard_id!r}")
        if event is not None:
            link.has_brought = True
            subscription.take_in(event, len(frame.payload), link.heard_at)
    except Exception as error:  # noqa: BLE001 - not hidden: the shard's reader raises it
        return _meant(subscription, error)
    return None


def _meant(subscription: ShardSubscription, error: Exception) -> KinesisSpoutError:
    if isinstance(error, KinesisSpoutError):
        return error
    return translate(error, f"Reading the subscription to shard {subscription.shard_id!r}")
