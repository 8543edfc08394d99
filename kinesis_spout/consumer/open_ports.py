"""From settings to the real world: Kinesis, ZooKeeper, and where dead letters go."""

from contextlib import ExitStack
from functools import partial

from msgspec.structs import asdict

from kinesis_spout.clock import SystemClock
from kinesis_spout.consumer.ports import OpenGetter, Ports
from kinesis_spout.dead_letters.sink_url import open_sink
from kinesis_spout.kinesis import FanOutStream, KinesisClientSettings, KinesisShardLister, PollingShardGetter
from kinesis_spout.ports import ShardGetter
from kinesis_spout.settings import SpoutConfig
from kinesis_spout.settings.kinesis_client import client_settings as settings_of_client
from kinesis_spout.settings.zookeeper.place import zookeeper_settings as settings_of_zookeeper
from kinesis_spout.zookeeper import ZooKeeperSettings
from shard_state import Position


def client_settings(config: SpoutConfig) -> KinesisClientSettings:
    """Say how Kinesis is reached; can be sent to executors."""
    return settings_of_client(asdict(config), config.stream_region)


def zookeeper_settings(config: SpoutConfig) -> ZooKeeperSettings:
    """Say where progress is kept."""
    return settings_of_zookeeper(config.app, asdict(config))


def open_ports(config: SpoutConfig) -> Ports:
    """Connect to everything that a consumer with these settings needs.

    ``Ports.close`` closes all of it. When a step fails, what the steps before it opened is closed.

    Raises:
        InvalidConfig: no region; no Java for the embedded ZooKeeper.
        StoreUnavailable, StoreError: no ZooKeeper answers, or the embedded one does not start.
        DeadLetterError: the sink cannot be opened.
    """
    with ExitStack() as opened:
        aws = client_settings(config)
        client = aws.connect()
        dead_letters = open_sink(config.dead_letters_url, client=client, aws=aws)
        opened.callback(dead_letters.close)
        zookeeper = zookeeper_settings(config)
        backend = zookeeper.connect(config.stream_name, zookeeper.server(opened))
        opened.callback(backend.session.close)
        clock = SystemClock()
        lister = KinesisShardLister(client, config.stream, clock=clock)

        def open_polling(shard_id: str, position: Position) -> ShardGetter:
            return PollingShardGetter(
                client,
                stream=config.stream,
                shard_id=shard_id,
                position=position,
                lister=lister,
                fail_on_data_loss=config.fail_on_data_loss,
                clock=clock,
            )

        open_getter: OpenGetter = open_polling
        if config.fan_out_consumer is not None:
            fan_out = FanOutStream(
                client, config.stream, consumer_name=config.fan_out_consumer, lister=lister, clock=clock
            )
            opened.callback(fan_out.close)
            open_getter = partial(fan_out.getter, fail_on_data_loss=config.fail_on_data_loss)
        return Ports(
            lister=lister,
            open_getter=open_getter,
            open_rereader=open_polling,
            store=backend.store,
            coordinator=backend.coordinator,
            group=backend.group,
            dead_letters=dead_letters,
            clock=clock,
            close=opened.pop_all().close,
        )
