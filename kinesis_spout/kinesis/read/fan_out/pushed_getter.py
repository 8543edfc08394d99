"""One shard, read forward over a subscription.

Its owner reads it as it reads a polling getter; a read makes no call, and returns what was pushed meanwhile.
``when_ready`` tells the owner that a read is worthwhile.

An error ends the connection. One read raises it, after the events before it; the first read after
``ready_at`` subscribes again.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from kinesis_spout.kinesis.calls import ResourceNotFound, shard_text
from kinesis_spout.kinesis.io_thread import IO
from kinesis_spout.kinesis.pace import Pacing
from kinesis_spout.kinesis.read.fan_out.consumer_registration import ConsumerRegistration
from kinesis_spout.kinesis.read.fan_out.subscribe_call import PushedEvents, subscribe
from kinesis_spout.kinesis.read.fan_out.subscription import (
    DEFAULT_QUEUE_BYTES,
    OPERATION,
    ShardEvent,
    ShardSubscription,
)
from kinesis_spout.kinesis.read.fan_out.subscription_reader import SubscriptionPeriods, SubscriptionReader
from kinesis_spout.kinesis.read.page import GetRecordsReply
from kinesis_spout.kinesis.read.read_settings import DEFAULT, ReadSettings
from kinesis_spout.kinesis.read.reply_getter import IN_PLACE_BYTES, Reply, ReplyForm, ReplyGetter
from kinesis_spout.kinesis.read.user_records import HashKeys
from kinesis_spout.kinesis.retry_policy import Jitter
from kinesis_spout.model.clock import Clock, SystemClock
from kinesis_spout.model.errors import DataLoss, KinesisSpoutError
from kinesis_spout.ports import Page, ShardLister
from shard_state import Position

if TYPE_CHECKING:
    from mypy_boto3_kinesis import KinesisClient

    from kinesis_spout.kinesis.read.arrow import ArrowPage


LOOK_EVERY_SECONDS: Final = 1.0
"""The period in which a shard is asked although nothing was reported as pushed. It costs microseconds."""
PUSH_SECONDS: Final = 1.0
"""The time that an event can be under way: it says nothing of records put in the last such period before it
came."""


class FanOutStream:
    """The subscriptions of one process to one stream, as one registered consumer. Thread-safe; ``close`` it.

    A connection is not read while ``queue_bytes`` of its shard wait here.
    """

    def __init__(
        self,
        client: "KinesisClient",
        stream: str,
        settings: ReadSettings = DEFAULT,
        *,
        consumer_name: str,
        lister: ShardLister,
        queue_bytes: int = DEFAULT_QUEUE_BYTES,
        periods: SubscriptionPeriods | None = None,
        clock: Clock | None = None,
        jitter: Jitter = random.random,
    ) -> None:
        self._client = client
        self.stream = stream
        self.lister = lister
        self.settings = settings
        self.queue_bytes = queue_bytes
        self.clock = clock or SystemClock()
        self.jitter = jitter
        self._registration = ConsumerRegistration(client, self._stream_arn, consumer_name, clock=self.clock)
        self.reader = SubscriptionReader(self._subscribe, periods=periods, clock=self.clock, jitter=jitter)

    def getter(
        self, shard_id: str, position: Position, *, hash_keys: HashKeys | None = None
    ) -> "FanOutShardGetter":
        return FanOutShardGetter(self, shard_id=shard_id, position=position, hash_keys=hash_keys)

    def forget_consumer(self) -> None:
        """Look for the consumer before the next subscription, and register it if it was deregistered."""
        self._registration.forget()

    def close(self) -> None:
        self.reader.close()

    def _stream_arn(self) -> str:
        return self.stream if self.stream.startswith("arn:") else self.lister.summary().arn

    def _subscribe(self, shard_id: str, position: Position) -> PushedEvents:
        call = f"{OPERATION} of {shard_text(self.stream, shard_id)} at {position}"
        return subscribe(
            self._client,
            consumer_arn=self._registration.arn(),
            shard_id=shard_id,
            position=position,
            call=call,
        )


class FanOutShardGetter(ReplyGetter):
    """A ``ShardGetter`` over a subscription. Mutable, not thread-safe, to be closed.

    Made by ``FanOutStream.getter``. A read does not wait, except after an error: it returns an empty page
    until something is pushed. There is no read limit: ``ready_at`` only says when to ask again although
    nothing came.
    """

    def __init__(
        self,
        fan_out: FanOutStream,
        *,
        shard_id: str,
        position: Position,
        hash_keys: HashKeys | None,
    ) -> None:
        super().__init__(
            stream=fan_out.stream,
            shard_id=shard_id,
            position=position,
            lister=fan_out.lister,
            settings=fan_out.settings,
            hash_keys=hash_keys,
            pacing=Pacing(ready_at=fan_out.clock.monotonic(), jitter=fan_out.jitter),
            clock=fan_out.clock,
        )
        self._fan_out = fan_out
        self._ready: Callable[[], None] = _nobody
        self._subscription = self._subscription_from(self._position)
        self._is_open = False
        self._millis_behind = 0
        self._in_vain_until = 0.0
        self._says_nothing = True

    @property
    def ready_at(self) -> float:
        """The monotonic time before which a read returns nothing, unless something is pushed."""
        return max(self._pacing.ready_at, self._in_vain_until)

    async def reading(self, limit: int) -> Page:
        page = await super().reading(limit)
        return replace(page, says_nothing=self._says_nothing, pushed_at=self._pushed_at)

    @property
    def _pushed_at(self) -> float:
        return self._subscription.taken_up_to - PUSH_SECONDS

    async def reading_arrow(self, limit: int) -> "ArrowPage":
        page = await super().reading_arrow(limit)
        return replace(page, says_nothing=self._says_nothing)

    def when_ready(self, call: Callable[[], None]) -> None:
        self._ready = call

    def close(self) -> None:
        self._subscription.close()
        self._fan_out.reader.drop(self._subscription)

    async def _ask(self, limit: int, form: ReplyForm[Reply]) -> Reply:
        await self._clock.pause(self._pacing.ready_at - self._clock.monotonic())
        if not self._is_open:
            self._is_open = True
            self._continuity.begins(self._subscription.place)
            self._fan_out.reader.open(self._subscription)
        try:
            events, made_room = self._subscription.take_out(self._continuity.limit(limit))
        except KinesisSpoutError as error:
            self._is_open = False
            await self._failed(error)
            events, made_room = [], False
        if made_room:
            self._fan_out.reader.made_room(self._subscription)
        reply = self._reply_of(events)
        if reply.size_bytes > IN_PLACE_BYTES:
            return await IO.in_thread(partial(form.convert, reply))
        return form.convert(reply)

    def _reply_of(self, events: Sequence[ShardEvent]) -> GetRecordsReply:
        self._says_nothing = not events
        if not events:
            self._in_vain_until = self._clock.monotonic() + LOOK_EVERY_SECONDS
            return GetRecordsReply(
                records=[], next_shard_iterator="", millis_behind_latest=self._millis_behind
            )
        self._in_vain_until = 0.0
        self._seen_at = self._clock.time() - (self._clock.monotonic() - self._pushed_at)
        reply = events[-1].to_reply()
        if len(events) > 1:
            reply.records = [record for event in events for record in event.records]
        self._millis_behind = reply.millis_behind_latest or 0
        return reply

    async def _failed(self, error: KinesisSpoutError) -> None:
        """Note the verified error for the pacing, and raise it, unless the position is given up."""
        if isinstance(error, ResourceNotFound):
            self._fan_out.forget_consumer()  # perhaps the consumer was not found
        meant = await self._verified(error)
        if isinstance(error, DataLoss):
            meant = self._question.position_refused(self._subscription.place, error)
        self._note(meant)
        if isinstance(meant, DataLoss):
            self._keep_from(self._subscription.place)
            self._give_up_position(meant)
            self._begin_anew()
            return
        if meant is error:
            raise error
        raise meant from error

    async def _look_for_gap(self, reply: "GetRecordsReply | ArrowPage") -> None:
        if not self._says_nothing:
            await super()._look_for_gap(reply)

    def _begin_anew(self) -> None:
        self.close()
        self._keep_from(self._position)
        self._is_open, self._subscription = False, self._subscription_from(self._position)

    def _begin_at_oldest(self) -> None:
        """Do nothing: what is pushed does not stop at empty pages."""

    async def _drop_connections(self) -> None:
        """Do nothing: a subscription has a connection of its own, which ends with it."""

    def _subscription_from(self, position: Position) -> ShardSubscription:
        return ShardSubscription(
            self._shard_id,
            position.with_its_record,
            max_bytes=self._fan_out.queue_bytes,
            ready=self._notify,
        )

    def _notify(self) -> None:
        self._ready()


def _nobody() -> None:
    """Do nothing."""
