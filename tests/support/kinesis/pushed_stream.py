"""A stream in memory that is pushed, by the subscriptions of the unkind endpoint: what tests of the doors read."""

import asyncio
import json
import ssl
import threading
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from botocore.exceptions import ClientError

from kinesis_spout.kinesis import FanOutStream, KinesisClientSettings
from kinesis_spout.kinesis.calls import RAW_BODY
from kinesis_spout.kinesis.read.fan_out.subscription_reader import SubscriptionPeriods
from kinesis_spout.testing import InMemoryShardLister, InMemoryStream
from tests.support.kinesis.in_memory_client import InMemoryKinesisClient
from tests.support.kinesis.unkind.account import Account, AwsError, Stream
from tests.support.kinesis.unkind.behaviours import EVENT, Behaviour, Switch
from tests.support.kinesis.unkind.server import Server
from tests.support.kinesis.unkind.subscriptions import RECORDS_AN_EVENT, event_of

AT_ONCE = SubscriptionPeriods(again_after_seconds=0.0)
"""The service here does not mind."""
FAULTS = (Behaviour.CUT, Behaviour.CORRUPT, Behaviour.SLOW, Behaviour.ENDED)
"""What can happen to an event."""


class _InMemoryAccount(Account):
    """Has any stream that is asked for, as consumers are registered at one."""

    def stream(self, region: str, request: dict[str, Any]) -> Stream:
        arn = request.get("StreamARN", "")
        name = arn.partition(":stream/")[2].partition("/")[0] or request["StreamName"]
        if (region, name) not in self.streams:
            self.streams[region, name] = Stream(
                region=region,
                name=name,
                created=0.0,
                ready_at=0.0,
                busy_seconds=0.0,
                max_record_kib=1024,
                mode="PROVISIONED",
            )
        return self.streams[region, name]


class _InMemoryCursor:
    """A shard of a stream in memory. Mutable."""

    is_gone = False

    def __init__(self, client: InMemoryKinesisClient, stream: Stream, request: dict[str, Any]) -> None:
        start = request["StartingPosition"]
        asked = {"StreamName": stream.name, "ShardId": request["ShardId"], "ShardIteratorType": start["Type"]}
        names = {"SequenceNumber": "StartingSequenceNumber", "Timestamp": "Timestamp"}
        asked |= {as_asked: start[name] for name, as_asked in names.items() if name in start}
        self._client = client
        self._continuation = start.get("SequenceNumber")
        try:
            self._iterator = client.get_shard_iterator(**asked)["ShardIterator"]
        except ClientError as error:
            raise _told(error) from error

    def read(self) -> tuple[dict[str, Any], bool]:
        try:
            page = self._client.get_records(ShardIterator=self._iterator, Limit=RECORDS_AN_EVENT)
        except ClientError as error:
            raise _told(error) from error
        reply = json.loads(page[RAW_BODY])
        if reply["Records"]:
            self._continuation = reply["Records"][-1]["SequenceNumber"]
        self._iterator = reply.get("NextShardIterator")
        return event_of(reply, self._continuation)


def _told(error: ClientError) -> AwsError:
    return AwsError(error.response["Error"]["Code"], str(error))


class FanOutServer:
    """The subscriptions of the unkind endpoint over HTTP, from a thread of this process. A context manager.

    It pushes one stream at a time. Clients stay connected from one to the next: one of boto3 costs a second.

    Args:
        certificate: a PEM file with its key, for TLS.
    """

    def __init__(self, certificate: Path | None = None) -> None:
        self._certificate = certificate
        self._stream = InMemoryStream()
        self._account = _InMemoryAccount()
        self._server = Server(
            self._account,
            is_kind=True,
            begin=lambda *asked: _InMemoryCursor(InMemoryKinesisClient(self._stream), *asked),
        )
        self._subscriptions = self._server.subscriptions
        self._started = threading.Event()
        self._thread = threading.Thread(target=asyncio.run, args=(self._serve(),), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._started.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def _serve(self) -> None:
        tls = None
        if self._certificate is not None:
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            tls.load_cert_chain(self._certificate)
        listening = await asyncio.start_server(self._server.serve, "127.0.0.1", 0, ssl=tls)
        self._port = listening.sockets[0].getsockname()[1]
        self._loop, self._closing = asyncio.get_running_loop(), asyncio.Event()
        self._started.set()
        await self._closing.wait()
        listening.close()
        for peer in list(self._server.peers):
            peer.writer.transport.abort()

    def close(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._closing.set)
            self._thread.join()

    @property
    def url(self) -> str:
        return f"http{'s' if self._certificate else ''}://127.0.0.1:{self._port}"

    def settings(self, **others: Any) -> KinesisClientSettings:
        return KinesisClientSettings(
            region="us-east-1",
            endpoint_url=self.url,
            aws_access_key_id="test",
            aws_secret_access_key="test",
            **others,
        )

    def serve(self, stream: InMemoryStream, **settings: float) -> None:
        """Push this stream from now on, kindly; ``settings`` are those of ``Subscriptions.set``."""
        self.take_over()  # what a test before has left
        self._stream = stream
        self._account.streams.clear()
        self._server.table.switch_off()
        self._server.table.happened.clear()
        self._subscriptions.reset()
        self._subscriptions.set(**settings)

    def push(self, fault: Behaviour, times: int = 1) -> None:
        """Have it happen to the next events, whoever gets them."""
        self._switch_on(fault, EVENT, times)

    def refuse_next(self, code: str) -> None:
        """Answer the next subscription with an error."""
        self._switch_on(Behaviour.ERROR, "SubscribeToShard", 1, code=code)

    def fail_next(self, code: str) -> None:
        """Send an error within a stream, in place of the next event."""
        self._switch_on(Behaviour.ERROR, EVENT, 1, code=code)

    def _switch_on(self, behaviour: Behaviour, operation: str, times: int, **how: Any) -> None:
        switch = Switch(behaviour=behaviour, operations=frozenset({operation}), times=times, how=how)
        self._server.table.switch_on(switch)

    @property
    def counts(self) -> Counter[str]:
        """How often each behaviour happened."""
        return self._server.table.happened

    @property
    def granted(self) -> list[dict[str, Any]]:
        """The requests to subscribe that were granted."""
        return self._subscriptions.granted

    @property
    def is_pushing(self) -> bool:
        return bool(self._subscriptions.under_way)

    def take_over(self, shard_id: str | None = None) -> int:
        """End subscriptions as if another member had subscribed. Returns how many."""
        return self._subscriptions.take_over(shard_id)

    def is_caught_up(self, shard_id: str) -> bool:
        return self._subscriptions.is_caught_up(self._stream.name, shard_id)

    @property
    def consumers(self) -> dict[str, dict[str, Any]]:
        """Those that are registered, by their names; a test may remove them."""
        found = [stream.consumers for stream in self._account.streams.values()]
        return found[0] if found else {}


def serve(stream: InMemoryStream, server: FanOutServer, opened: ExitStack, **options: Any) -> FanOutServer:
    """Have a server push a stream, until the stack is closed; ``options`` are those of ``Subscriptions.set``."""
    server.serve(stream, **options)
    opened.callback(server.take_over)
    return server


def subscribed(
    stream: InMemoryStream, server: FanOutServer, opened: ExitStack, **options: Any
) -> FanOutStream:
    """Give the subscriptions of a process to a stream that is served.

    Options are those of ``FanOutStream``, and ``client``.
    """
    fan_out = FanOutStream(
        options.pop("client", None) or server.settings().connect(),
        stream.name,
        consumer_name="app",
        lister=InMemoryShardLister(stream),
        **{"periods": AT_ONCE, "jitter": lambda: 0.0, **options},
    )
    opened.callback(fan_out.close)
    return fan_out


class PushingClient(InMemoryKinesisClient):
    """A client in memory that subscribes over HTTP."""

    def __init__(self, stream: InMemoryStream, server: FanOutServer) -> None:
        super().__init__(stream)
        pushing: Any = server.settings().connect()
        self.subscribe_to_shard = pushing.subscribe_to_shard
        self.describe_stream_consumer = pushing.describe_stream_consumer
        self.register_stream_consumer = pushing.register_stream_consumer
