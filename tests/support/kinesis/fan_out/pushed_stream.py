"""A stream in memory that is pushed: what tests of the doors read."""

from contextlib import ExitStack
from typing import Any

from kinesis_spout.kinesis import FanOutStream
from kinesis_spout.kinesis.read.fan_out.subscription_reader import SubscriptionPeriods
from kinesis_spout.testing import InMemoryShardLister, InMemoryStream
from tests.support.kinesis.fan_out.server import FanOutServer
from tests.support.kinesis.fan_out.service import FanOutService
from tests.support.kinesis.in_memory_client import InMemoryKinesisClient

AT_ONCE = SubscriptionPeriods(again_after_seconds=0.0)
"""The service here does not mind."""


def serve(stream: InMemoryStream, server: FanOutServer, opened: ExitStack, **options: Any) -> FanOutService:
    """Have a server push a stream."""
    service = FanOutService(lambda: InMemoryKinesisClient(stream), **{"again_after_seconds": 0.0, **options})
    server.service = service
    opened.callback(service.closed.set)
    return service


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
