"""SubscribeToShard: events that are pushed to registered consumers over an event stream.

One subscription for each consumer and shard: within 5 s of the last one another is refused; later it takes over,
and the old one is told so. It ends after 300 s, and at the end of the shard.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from tests.support.kinesis.unkind.account import Account, AwsError, Stream
from tests.support.kinesis.unkind.behaviours import EVENT, Behaviour, Call
from tests.support.kinesis.unkind.frames import chunk, event_frame, exception_frame, initial_response
from tests.support.kinesis.unkind.operations import Operations, told_error
from tests.support.kinesis.unkind.sending import Peer

RECORDS_AN_EVENT: Final = 1_000
_AGAIN_SECONDS: Final = 5.0
_OF_EVENTS: Final = (Behaviour.CUT, Behaviour.RESET, Behaviour.CORRUPT, Behaviour.SLOW, Behaviour.ENDED)
_END: Final = b"0\r\n\r\n"
_HEAD: Final = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/vnd.amazon.eventstream\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)


IN_TIME: Final = "subscriptions ended in time"
IN_USE: Final = "subscriptions refused as in use"


class Cursor(Protocol):
    """Where a subscription is in its shard."""

    @property
    def is_gone(self) -> bool:
        """Whether retention has removed the shard."""

    def read(self) -> tuple[dict[str, Any], bool]:
        """Give the next event, perhaps without records, and whether the shard ends with it. Raises AwsError."""


Begin = Callable[[Stream, dict[str, Any]], Cursor]
"""Finds where a request to subscribe begins. Raises AwsError."""


class AccountCursor:
    """A shard of the account. Mutable."""

    def __init__(self, account: Account, stream: Stream, request: dict[str, Any]) -> None:
        start = request["StartingPosition"]
        self._account, self._stream = account, stream
        self._shard = account.shard(stream, request["ShardId"])
        self._number = account.start(
            stream, self._shard, start["Type"], start.get("SequenceNumber"), start.get("Timestamp")
        )

    @property
    def is_gone(self) -> bool:
        return self._shard.is_gone

    def read(self) -> tuple[dict[str, Any], bool]:
        page = self._account.page(self._shard, self._number, RECORDS_AN_EVENT)
        reply = self._account.reply(self._stream, self._shard, self._number, page)
        if page:
            self._number = page[-1]["number"] + 1
        return event_of(reply, str(self._shard.number_before(self._number)))


def event_of(reply: dict[str, Any], continuation: str | None) -> tuple[dict[str, Any], bool]:
    """Make an event of what GetRecords answers; tell whether the shard ends with it."""
    is_last = not reply.get("NextShardIterator")
    event = {
        "Records": reply["Records"],
        "ContinuationSequenceNumber": None if is_last else continuation,
        "MillisBehindLatest": reply.get("MillisBehindLatest"),
        "ChildShards": reply.get("ChildShards") if is_last else None,
    }
    return event, is_last


@dataclass(kw_only=True, eq=False)
class Subscription:
    """One under way. Mutable."""

    stream: str
    shard_id: str
    consumer: dict[str, Any]
    cursor: Cursor
    begun: float
    """Monotonic."""
    is_taken_over: bool = False
    is_caught_up: bool = False
    """Everything there was has been sent."""


class Subscriptions:
    """Mutable, for one thread."""

    again_after_seconds: float
    lasts_seconds: float
    poll_seconds: float
    heartbeat_seconds: float

    has_initial_response: float
    """AWS sends one, kinesis-mock does not."""
    refuses_within: float
    """Whether why a subscription is refused is said in a stream, as kinesis-mock does."""

    def __init__(self, operations: Operations, begin: Begin | None = None) -> None:
        self._operations = operations
        self._table = operations.table
        self._begin = begin or (lambda *asked: AccountCursor(operations.account, *asked))
        self._under_way: dict[tuple[str, str], Subscription] = {}
        self._begun_at: dict[tuple[str, str], float] = {}
        self.granted: list[dict[str, Any]] = []
        """The requests."""
        self.reset()

    def reset(self) -> None:
        self.granted.clear()
        self.set(
            again_after_seconds=0.0,
            lasts_seconds=300.0,
            poll_seconds=0.01,
            heartbeat_seconds=0.05,
            has_initial_response=True,
            refuses_within=False,
        )

    def set(self, **settings: float) -> None:
        """Set AWS' 5 s and 300 s, how often the stream is looked at, and how often an empty event is sent."""
        self.__dict__.update(settings)

    @property
    def under_way(self) -> list[Subscription]:
        return list(self._under_way.values())

    def take_over(self, shard_id: str | None) -> int:
        """End subscriptions as if another member had subscribed; returns how many."""
        found = [each for each in self.under_way if shard_id in {None, each.shard_id}]
        for each in found:
            each.is_taken_over = True
        return len(found)

    def is_caught_up(self, stream: str, shard_id: str) -> bool:
        found = [each for each in self.under_way if (each.stream, each.shard_id) == (stream, shard_id)]
        return bool(found) and all(each.is_caught_up for each in found)

    async def serve(self, call: Call, region: str, request: dict[str, Any], peer: Peer) -> bool:
        """Push until it ends; the connection takes no more then. Raises AwsError if it is refused."""
        try:
            key, subscription = self._granted(call, region, request)
        except AwsError as error:
            if not self.refuses_within:
                raise
            await peer.send(_HEAD + chunk(exception_frame(error.code, str(error))) + _END)
            return False
        try:
            await peer.send(_HEAD + (chunk(initial_response()) if self.has_initial_response else b""))
            last = await self._push(call._replace(operation=EVENT), subscription, peer)
            if last is not None:
                await peer.send(last + _END)
        finally:
            if self._under_way.get(key) is subscription:
                del self._under_way[key]
        return False

    def _granted(
        self, call: Call, region: str, request: dict[str, Any]
    ) -> tuple[tuple[str, str], Subscription]:
        self._operations.refuse(call)
        stream, consumer = self._operations.consumer(region, request)
        if consumer["ConsumerStatus"] != "ACTIVE":
            raise AwsError("ResourceInUseException", f"Consumer {consumer['ConsumerName']} is not ACTIVE.")
        cursor = self._begin(stream, request)
        key = consumer["ConsumerARN"], request["ShardId"]
        self._check_again(call, key)
        begun = self._begun_at[key] = time.monotonic()
        subscription = self._under_way[key] = Subscription(
            stream=stream.name, shard_id=key[1], consumer=consumer, cursor=cursor, begun=begun
        )
        self.granted.append(request)
        return key, subscription

    def _check_again(self, call: Call, key: tuple[str, str]) -> None:
        """Refuse another subscription so soon; later it takes over."""
        limits = self._table.is_on(call, Behaviour.LIMITS)
        again_after = self.again_after_seconds if limits is None else _AGAIN_SECONDS
        if time.monotonic() - self._begun_at.get(key, -1e9) < again_after:
            if limits is not None:
                self._table.count(limits)
            self._table.happened[IN_USE] += 1
            raise AwsError("ResourceInUseException", "Another active subscription exists for this consumer.")
        old = self._under_way.get(key)
        if old is not None:
            old.is_taken_over = True

    async def _push(self, call: Call, subscription: Subscription, peer: Peer) -> bytes | None:
        """Send events; returns what comes before the end of the stream, None if that cannot be sent."""
        sent_at = 0.0
        while not peer.is_gone:
            if (why := self._over(subscription)) is not None:
                return why
            try:
                event, is_last = subscription.cursor.read()
            except AwsError as told:
                is_silent = told.code == "ExpiredIteratorException"
                return b"" if is_silent else chunk(exception_frame(told.code, str(told)))
            page = event["Records"]
            if page or is_last or time.monotonic() - sent_at >= self.heartbeat_seconds:
                error = self._table.drawn(call, Behaviour.ERROR)
                if error is not None:
                    return chunk(exception_frame(told_error(error).code))
                if not await self._send(call, event_frame(event), peer):
                    return None
                sent_at = time.monotonic()
                subscription.is_caught_up = not page
                if is_last:
                    return b""
            if not page:
                await asyncio.sleep(self.poll_seconds)
        return None

    def _over(self, subscription: Subscription) -> bytes | None:
        """Say why a stream is over, as it is told in it; None: it is not."""
        if subscription.is_taken_over:
            return chunk(exception_frame("ResourceInUseException"))
        if subscription.cursor.is_gone or subscription.consumer["ConsumerStatus"] == "DELETING":
            return chunk(exception_frame("ResourceNotFoundException"))
        if time.monotonic() - subscription.begun <= self.lasts_seconds:
            return None
        self._table.happened[IN_TIME] += 1
        return b""

    async def _send(self, call: Call, event: bytes, peer: Peer) -> bool:
        """Send an event; False if the stream ended with it."""
        switch = self._table.drawn(call, *_OF_EVENTS)
        whole = chunk(event)
        if switch is None:
            await peer.send(whole)
            return True
        match switch.behaviour:
            case Behaviour.CUT | Behaviour.RESET:
                await peer.send(whole[: switch.share("sent", 0.5, len(whole))])
                if switch.behaviour is Behaviour.RESET:
                    peer.reset()
                return False
            case Behaviour.CORRUPT:
                await peer.send(chunk(event[:-1] + bytes([event[-1] ^ 1])))
                await asyncio.sleep(0.2)  # so that it is not taken for an end
                return False
            case Behaviour.ENDED:
                await peer.send(_END)
                return False
        for first in range(0, len(whole), 7):
            await peer.send(whole[first : first + 7])
            await asyncio.sleep(0)
        return True
