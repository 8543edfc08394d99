"""SubscribeToShard: events that are pushed to registered consumers over an event stream.

One subscription for each consumer and shard: within 5 s of the last one another is refused; later it takes over,
and the old one is told so. It ends after 300 s, and at the end of the shard.
"""

import asyncio
import time
from dataclasses import dataclass
from typing import Any, Final

from tests.support.kinesis.fan_out.frames import chunk, event_frame, exception_frame, initial_response
from tests.support.kinesis.unkind.account import AwsError, Shard, Stream
from tests.support.kinesis.unkind.behaviours import EVENT, Behaviour, Call
from tests.support.kinesis.unkind.operations import Operations, told_error
from tests.support.kinesis.unkind.sending import Peer

_RECORDS_AN_EVENT: Final = 1_000
_AGAIN_SECONDS: Final = 5.0
_OF_EVENTS: Final = (Behaviour.CUT, Behaviour.RESET, Behaviour.CORRUPT, Behaviour.SLOW, Behaviour.ENDED)
_END: Final = b"0\r\n\r\n"
_HEAD: Final = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/vnd.amazon.eventstream\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)


@dataclass(kw_only=True, eq=False)
class Subscription:
    """One under way. Mutable."""

    stream: Stream
    shard: Shard
    consumer: dict[str, Any]
    number: int
    """Of the next record."""
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

    def __init__(self, operations: Operations) -> None:
        self._operations = operations
        self._account = operations.account
        self._table = operations.table
        self._under_way: dict[tuple[str, str], Subscription] = {}
        self._begun_at: dict[tuple[str, str], float] = {}
        self.reset()

    def reset(self) -> None:
        self.set(again_after_seconds=0.0, lasts_seconds=300.0, poll_seconds=0.01, heartbeat_seconds=0.05)

    def set(self, **settings: float) -> None:
        """Set AWS' 5 s and 300 s, how often the stream is looked at, and how often an empty event is sent."""
        self.__dict__.update(settings)

    def take_over(self, shard_id: str | None) -> int:
        """End subscriptions as if another member had subscribed; returns how many."""
        found = [each for each in self._under_way.values() if shard_id in {None, each.shard.id}]
        for each in found:
            each.is_taken_over = True
        return len(found)

    def is_caught_up(self, stream: str, shard_id: str) -> bool:
        wanted = stream, shard_id
        found = [each for each in self._under_way.values() if (each.stream.name, each.shard.id) == wanted]
        return bool(found) and all(each.is_caught_up for each in found)

    async def serve(self, call: Call, region: str, request: dict[str, Any], peer: Peer) -> bool:
        """Push until it ends; the connection takes no more then. Raises AwsError if it is refused."""
        operations, account = self._operations, self._account
        operations.refuse(call)
        stream, consumer = operations.consumer(region, request)
        if consumer["ConsumerStatus"] != "ACTIVE":
            raise AwsError("ResourceInUseException", f"Consumer {consumer['ConsumerName']} is not ACTIVE.")
        shard, start = account.shard(stream, request["ShardId"]), request["StartingPosition"]
        number = account.start(
            stream, shard, start["Type"], start.get("SequenceNumber"), start.get("Timestamp")
        )
        key = consumer["ConsumerARN"], shard.id
        self._check_again(call, key)
        begun = self._begun_at[key] = time.monotonic()
        subscription = self._under_way[key] = Subscription(
            stream=stream, shard=shard, consumer=consumer, number=number, begun=begun
        )
        try:
            await peer.send(_HEAD + chunk(initial_response()))
            last = await self._push(call._replace(operation=EVENT), subscription, peer)
            if last is not None:
                await peer.send(last + _END)
        finally:
            if self._under_way.get(key) is subscription:
                del self._under_way[key]
        return False

    def _check_again(self, call: Call, key: tuple[str, str]) -> None:
        """Refuse another subscription so soon; later it takes over."""
        limits = self._table.is_on(call, Behaviour.LIMITS)
        again_after = self.again_after_seconds if limits is None else _AGAIN_SECONDS
        if time.monotonic() - self._begun_at.get(key, -1e9) < again_after:
            if limits is not None:
                self._table.count(limits)
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
            shard = subscription.shard
            page = self._account.page(shard, subscription.number, _RECORDS_AN_EVENT)
            reply = self._account.reply(subscription.stream, shard, subscription.number, page)
            is_last = "NextShardIterator" not in reply
            if page or is_last or time.monotonic() - sent_at >= self.heartbeat_seconds:
                error = self._table.drawn(call, Behaviour.ERROR)
                if error is not None:
                    return chunk(exception_frame(told_error(error).code))
                if page:
                    subscription.number = page[-1]["number"] + 1
                if not await self._send(call, event_frame(_event(subscription, reply)), peer):
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
        if subscription.shard.is_gone or subscription.consumer["ConsumerStatus"] == "DELETING":
            return chunk(exception_frame("ResourceNotFoundException"))
        return b"" if time.monotonic() - subscription.begun > self.lasts_seconds else None

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


def _event(subscription: Subscription, reply: dict[str, Any]) -> dict[str, Any]:
    is_last = "NextShardIterator" not in reply
    continuation = subscription.shard.number_before(subscription.number)
    return {
        "Records": reply["Records"],
        "ContinuationSequenceNumber": None if is_last else str(continuation),
        "MillisBehindLatest": reply["MillisBehindLatest"],
        "ChildShards": reply.get("ChildShards"),
    }
