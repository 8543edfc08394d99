"""The part of the canned endpoint that pushes: a subscription to a shard in memory, fed as records are put."""

import asyncio
import contextlib
import json
from typing import Any, Final, Protocol

from tests.support.kinesis.unkind.frames import chunk, event_frame, initial_response

_HEARTBEAT_SECONDS: Final = 5.0
_HEAD: Final = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/vnd.amazon.eventstream\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)


class Readable(Protocol):
    """What ``GetShardIterator`` and ``GetRecords`` answer, by the actions' names."""

    def answer(self, action: str, request: dict[str, Any]) -> bytes: ...


class Puts:
    """Wakes subscriptions when records were put. Mutable."""

    def __init__(self) -> None:
        self._changed: dict[tuple[str, str], asyncio.Event] = {}

    def of(self, stream: str, key: str) -> asyncio.Event:
        return self._changed.setdefault((stream, key), asyncio.Event())

    def happened(self, request: dict[str, Any]) -> None:
        for key in {record["PartitionKey"] for record in request["Records"]}:
            self.of(request["StreamName"], key).set()


def consumer(stream_arn: str, name: str) -> dict[str, Any]:
    """Describe a registered consumer: every one that is asked for is there."""
    return {
        "ConsumerName": name,
        "ConsumerARN": f"{stream_arn}/consumer/{name}:1",
        "ConsumerStatus": "ACTIVE",
        "ConsumerCreationTimestamp": 1_700_000_000,
    }


async def push(streams: Readable, puts: Puts, request: dict[str, Any], writer: asyncio.StreamWriter) -> None:
    """Answer SubscribeToShard, until the reader hangs up."""
    stream = request["ConsumerARN"].partition(":stream/")[2].partition("/")[0]
    shard_id, start = request["ShardId"], request["StartingPosition"]
    asked = {"StreamName": stream, "ShardId": shard_id, "ShardIteratorType": start["Type"]}
    if "SequenceNumber" in start:
        asked["StartingSequenceNumber"] = start["SequenceNumber"]
    iterator = json.loads(streams.answer("GetShardIterator", asked))["ShardIterator"]
    continuation = start.get("SequenceNumber", "0")
    changed = puts.of(stream, str(int(shard_id.rpartition("-")[2])))
    writer.write(_HEAD + chunk(initial_response()))
    while True:
        changed.clear()
        reply = json.loads(streams.answer("GetRecords", {"ShardIterator": iterator}))
        iterator, records = reply["NextShardIterator"], reply["Records"]
        continuation = records[-1]["SequenceNumber"] if records else continuation
        event = {
            "Records": records,
            "ContinuationSequenceNumber": continuation,
            "MillisBehindLatest": 0,
            "ChildShards": None,
        }
        writer.write(chunk(event_frame(event)))
        await writer.drain()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(changed.wait(), _HEARTBEAT_SECONDS)
