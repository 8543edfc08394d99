"""A Kinesis endpoint that takes everything that is put, in a process of its own, whose CPU is not counted.

It is no emulator: it keeps nothing. It answers for as many records as it got, and counts them.
"""

import asyncio
import json
import os
import subprocess
import sys
from types import TracebackType
from typing import Any, Final, Self
from urllib.request import Request, urlopen

STREAM: Final = "puts"
SHARDS: Final = 4
_HASH_KEYS: Final = 1 << 128
_ANSWER: Final = (
    b'{"SequenceNumber":"49590338271490256608559692538361571095921575989136588898","ShardId":"shardId-%012d"}'
)


class PutEndpoint:
    """The running server, and how to reach it."""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self.url = f"http://127.0.0.1:{int(self._process.stdout.readline())}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()  # closes its standard input, which ends it

    def taken(self) -> int:
        """Say how many records of Kinesis were put since it was asked the last time."""
        with urlopen(Request(self.url, b"{}", {"X-Amz-Target": "Kinesis.Taken"})) as answer:
            count: int = json.load(answer)
        return count


def _shard(number: int) -> dict[str, Any]:
    first, last = number * _HASH_KEYS // SHARDS, (number + 1) * _HASH_KEYS // SHARDS - 1
    return {
        "ShardId": f"shardId-{number:012}",
        "HashKeyRange": {"StartingHashKey": str(first), "EndingHashKey": str(last)},
        "SequenceNumberRange": {"StartingSequenceNumber": "1"},
    }


_SUMMARY: Final = {
    "StreamName": STREAM,
    "StreamARN": f"arn:aws:kinesis:us-east-1:000000000000:stream/{STREAM}",
    "StreamStatus": "ACTIVE",
    "StreamCreationTimestamp": 1_700_000_000.0,
    "RetentionPeriodHours": 24,
    "EnhancedMonitoring": [],
    "OpenShardCount": SHARDS,
}
_REPLIES: Final = {
    "ListShards": {"Shards": [_shard(number) for number in range(SHARDS)]},
    "DescribeStreamSummary": {"StreamDescriptionSummary": _SUMMARY},
    "DescribeStream": {
        "StreamDescription": _SUMMARY
        | {"Shards": [_shard(number) for number in range(SHARDS)], "HasMoreShards": False}
    },
}


class _Server:
    """Counts. Mutable."""

    def __init__(self) -> None:
        self._taken = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                headers = {
                    name.lower(): value.strip()
                    for name, _, value in (
                        line.partition(":") for line in head.decode("latin-1").split("\r\n")[1:]
                    )
                }
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                answer = self._answer(headers.get("x-amz-target", "").rpartition(".")[2], body)
                writer.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: application/x-amz-json-1.1\r\n"
                    b"x-amzn-RequestId: 00000000-0000-0000-0000-000000000000\r\n"
                    b"Content-Length: %d\r\n\r\n" % len(answer) + answer
                )
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the caller hung up
        finally:
            writer.close()

    def _answer(self, action: str, body: bytes) -> bytes:
        if action == "Taken":
            taken, self._taken = self._taken, 0
            return b"%d" % taken
        if action != "PutRecords":
            return json.dumps(_REPLIES[action]).encode()
        if (
            b'"PartitionKey":"a"' in body or b'"PartitionKey": "a"' in body
        ):  # aggregated: in the shard it is meant for
            records = json.loads(body)["Records"]
            shards = [int(record.get("ExplicitHashKey", 0)) * SHARDS // _HASH_KEYS for record in records]
        else:
            shards = [0] * body.count(b'"PartitionKey"')
        self._taken += len(shards)
        return b'{"FailedRecordCount":0,"Records":[%b]}' % b",".join([_ANSWER % shard for shard in shards])


async def _main() -> None:
    server = await asyncio.start_server(_Server().serve, "127.0.0.1", 0, limit=1 << 20)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    os._exit(0)  # there is nothing to keep, and connections may still be open


if __name__ == "__main__":
    asyncio.run(_main())
