"""A Kinesis endpoint that costs next to nothing, in a process of its own so that its CPU is not counted.

Three kinds of streams, told apart by their names, need no creation:

    page-10000-1024          one shard, whose every GetRecords answers the same page: 10,000 records of 1,024 bytes
    shards-8-name            8 shards in memory, which PutRecords fills; the partition key is the shard's number
    backlog-8-10000-1024-2   8 shards with 2 such pages each, in growing sequence; see ``canned_backlog``
    orders-8-10000-1024-2    the same with JSON for data

It speaks plain HTTP, or TLS where it is given a certificate. It knows the actions the spout and its competitors
use, keeps no state but the records, and checks nothing: no emulator. Clients that also want other services of AWS
at the same address get them passed on to ``beside``.
"""

import asyncio
import base64
import functools
import json
import os
import random
import ssl
import subprocess
import sys
import time
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from canned_backlog import Backlog, Backlogs
from canned_fan_out import Puts, consumer, push
from certificates import Certificates

from kinesis_spout.kinesis import KinesisClientSettings
from kinesis_spout.kinesis.aggregated_record import UserRecord, aggregate

_ARRIVED: Final = 1_700_000_000.123
_FIRST_SEQUENCE: Final = 49_590_338_271_490_256_608_559_692_538_361_571_095_921_575_989_136_588_898


@functools.cache
def page_body(records: int, size_bytes: int) -> bytes:
    """Make the body of a GetRecords reply as Kinesis sends it, the same one for the same arguments."""
    source = random.Random(records * size_bytes)
    shown = [
        {
            "ApproximateArrivalTimestamp": round(_ARRIVED + at / 1000, 3),
            "Data": base64.b64encode(source.randbytes(size_bytes)).decode(),
            "EncryptionType": "NONE",
            "PartitionKey": f"customer-{at % 997}",
            "SequenceNumber": str(_FIRST_SEQUENCE + at * 16),
        }
        for at in range(records)
    ]
    return _encoded(
        {
            "MillisBehindLatest": 60_000,
            "NextShardIterator": f"page-{records}-{size_bytes}/0/0",
            "Records": shown,
        }
    )


@functools.cache
def aggregated_page_body(user_records: int, size_bytes: int, per_carrier: int) -> bytes:
    """Make the body of a GetRecords reply whose records are aggregated ones, of so many user records each."""
    source = random.Random(user_records * size_bytes)
    carriers = [
        aggregate(
            UserRecord(f"customer-{at % 997}", source.randbytes(size_bytes))
            for at in range(first, first + per_carrier)
        )
        for first in range(0, user_records, per_carrier)
    ]
    shown = [
        {
            "ApproximateArrivalTimestamp": round(_ARRIVED + at / 1000, 3),
            "Data": base64.b64encode(data).decode(),
            "EncryptionType": "NONE",
            "PartitionKey": "a",
            "SequenceNumber": str(_FIRST_SEQUENCE + at * 16),
        }
        for at, data in enumerate(carriers)
    ]
    return _encoded({"MillisBehindLatest": 60_000, "NextShardIterator": "aggregated/0/0", "Records": shown})


class CannedKinesis(AbstractContextManager["CannedKinesis"]):
    """The endpoint's process. Mutable; ends with the ``with`` statement, and with the process that began it.

    Args:
        beside: the address of whoever answers what is not for Kinesis; empty if nobody does.
        certificates: for TLS; None: it speaks plain HTTP.
    """

    def __init__(self, beside: str = "", certificates: Certificates | None = None) -> None:
        self._beside = beside
        self._certificates = certificates

    def __enter__(self) -> Self:
        certificates = self._certificates
        self._process = subprocess.Popen(
            [sys.executable, __file__, self._beside, str(certificates.endpoint) if certificates else ""],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        scheme = "https" if certificates else "http"
        self.url = f"{scheme}://127.0.0.1:{int(self._process.stdout.readline())}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()  # closes its standard input, which ends it

    def extend(self, stream: str, pages: int) -> None:
        """Add pages to each shard of a backlog."""
        body = json.dumps({"StreamName": stream, "Pages": pages}).encode()
        request = Request(self.url, body, {"X-Amz-Target": "Kinesis.Extend"})
        certificates = self._certificates
        trusted = ssl.create_default_context(cafile=certificates.authority) if certificates else None
        with urlopen(request, context=trusted) as answer:
            answer.read()

    @property
    def settings(self) -> KinesisClientSettings:
        """How the spout reaches it."""
        return KinesisClientSettings(
            region="us-east-1", endpoint_url=self.url, aws_access_key_id="test", aws_secret_access_key="test"
        )


def shard_name(number: int) -> str:
    """Name a shard by its number."""
    return f"shardId-{number:012}"


class _Streams:
    """The records of the streams that were put to. Mutable."""

    def __init__(self) -> None:
        self._shards: dict[tuple[str, int], list[dict[str, Any]]] = {}
        self._sequence = _FIRST_SEQUENCE
        self._backlogs = Backlogs()
        self.puts = Puts()

    def answer(self, action: str, request: dict[str, Any]) -> bytes:
        answer: dict[str, Any] | bytes = getattr(self, f"_{action}")(**request)
        return answer if isinstance(answer, bytes) else _encoded(answer)

    def _Extend(self, *, StreamName: str, Pages: int) -> dict[str, Any]:  # noqa: N802, N803 - as in the API
        self._backlogs.extend(StreamName, Pages)
        return {}

    def _DescribeStream(self, *, StreamName: str, **_: object) -> dict[str, Any]:  # noqa: N802, N803
        summary = self._DescribeStreamSummary(StreamName=StreamName)["StreamDescriptionSummary"]
        shards = self._ListShards(StreamName=StreamName)["Shards"]
        return {"StreamDescription": summary | {"Shards": shards, "HasMoreShards": False}}

    @staticmethod
    def _DescribeStreamSummary(*, StreamName: str, **_: object) -> dict[str, Any]:  # noqa: N802, N803
        backlog = Backlog.named(StreamName)
        return {
            "StreamDescriptionSummary": {
                "StreamName": StreamName,
                "StreamARN": f"arn:aws:kinesis:us-east-1:000000000000:stream/{StreamName}",
                "StreamStatus": "ACTIVE",
                "StreamCreationTimestamp": _ARRIVED,
                "RetentionPeriodHours": 24,
                "EnhancedMonitoring": [],
                "OpenShardCount": 1 if backlog is None else backlog.shards,
            }
        }

    @staticmethod
    def _DescribeStreamConsumer(*, StreamARN: str, ConsumerName: str) -> dict[str, Any]:  # noqa: N802, N803
        return {"ConsumerDescription": consumer(StreamARN, ConsumerName)}

    def _ListShards(self, *, StreamName: str, **_: object) -> dict[str, Any]:  # noqa: N802, N803
        backlog = Backlog.named(StreamName)
        if backlog is not None:
            return {"Shards": self._backlogs.shards(backlog)}
        kind, count, *_rest = StreamName.split("-")
        return {
            "Shards": [
                {
                    "ShardId": shard_name(number),
                    "HashKeyRange": {"StartingHashKey": str(number), "EndingHashKey": str(number)},
                    "SequenceNumberRange": {"StartingSequenceNumber": str(_FIRST_SEQUENCE)},
                }
                for number in range(int(count) if kind == "shards" else 1)
            ]
        }

    def _GetShardIterator(  # noqa: N802
        self,
        *,
        StreamName: str,  # noqa: N803
        ShardId: str,  # noqa: N803
        ShardIteratorType: str,  # noqa: N803
        StartingSequenceNumber: str = "0",  # noqa: N803
        **_: object,
    ) -> dict[str, Any]:
        backlog = Backlog.named(StreamName)
        if backlog is not None:
            return self._backlogs.iterator(
                StreamName, backlog, ShardId, ShardIteratorType, StartingSequenceNumber
            )
        number = int(ShardId.rpartition("-")[2])
        after = int(StartingSequenceNumber) - (ShardIteratorType == "AT_SEQUENCE_NUMBER")
        records = self._shards.get((StreamName, number), [])
        if ShardIteratorType == "AT_TIMESTAMP":  # only ever asked for now, by who starts at the tip
            at = len(records)
        else:
            at = sum(int(record["SequenceNumber"]) <= after for record in records)
        return {"ShardIterator": f"{StreamName}/{number}/{at}"}

    def _GetRecords(self, *, ShardIterator: str, Limit: int = 10_000) -> dict[str, Any] | bytes:  # noqa: N802, N803
        stream, number, at = ShardIterator.split("/")
        backlog = Backlog.named(stream)
        if backlog is not None:
            return self._backlogs.records(stream, backlog, f"{stream}/{number}", int(at), Limit)
        if stream.startswith("page-"):
            _, records, size_bytes = stream.split("-")
            return page_body(int(records), int(size_bytes))
        found = self._shards.get((stream, int(number)), [])[int(at) : int(at) + Limit]
        return {
            "MillisBehindLatest": 0,
            "NextShardIterator": f"{stream}/{number}/{int(at) + len(found)}",
            "Records": found,
        }

    def _PutRecords(self, *, StreamName: str, Records: list[dict[str, Any]]) -> dict[str, Any]:  # noqa: N802, N803
        for record in Records:
            self._sequence += 16
            number = int(record["PartitionKey"])
            self._shards.setdefault((StreamName, number), []).append(
                {
                    "ApproximateArrivalTimestamp": time.time(),
                    "Data": record["Data"],
                    "PartitionKey": record["PartitionKey"],
                    "SequenceNumber": str(self._sequence),
                }
            )
        return {"FailedRecordCount": 0, "Records": [{"SequenceNumber": "1", "ShardId": "0"}] * len(Records)}


def _encoded(document: dict[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


async def _serve_connection(
    streams: _Streams, beside: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            lines = head.decode("latin-1").split("\r\n")[1:]
            headers = {
                name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)
            }
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            service, _, action = headers.get("x-amz-target", "").rpartition(".")
            if not service.startswith("Kinesis"):
                writer.write(await _passed_on(beside, head, body))
                break
            request = json.loads(body)
            if action == "SubscribeToShard":
                await push(streams, streams.puts, request, writer)
                break
            answer = streams.answer(action, request)
            if action == "PutRecords":
                streams.puts.happened(request)
            writer.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/x-amz-json-1.1\r\n"
                b"x-amzn-RequestId: 00000000-0000-0000-0000-000000000000\r\n"
                b"Content-Length: %d\r\n\r\n" % len(answer)
            )
            writer.write(answer)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass  # the caller hung up, or there is nobody beside
    finally:
        writer.close()


async def _passed_on(beside: str, head: bytes, body: bytes) -> bytes:
    """Have a request of another service answered, on a connection of its own."""
    address = urlsplit(beside)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    lines = [line for line in head.split(b"\r\n") if line and not line.lower().startswith(b"connection:")]
    writer.write(b"\r\n".join([*lines, b"Connection: close", b"", b""]) + body)
    answer = await reader.read()
    writer.close()
    return answer


async def _serve(beside: str, certificate: str) -> None:
    streams = _Streams()
    tls = None
    if certificate:
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(certificate)
    serve_connection = functools.partial(_serve_connection, streams, beside)
    server = await asyncio.start_server(serve_connection, "127.0.0.1", 0, limit=1 << 20, ssl=tls)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    os._exit(0)  # there is nothing to keep, and connections may still be open


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], sys.argv[2]))
