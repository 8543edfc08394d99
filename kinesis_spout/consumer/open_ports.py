"""From settings to the real world: Kinesis, ZooKeeper, and where dead letters go."""

from collections.abc import Callable
from contextlib import ExitStack

from msgspec.structs import asdict

from kinesis_spout.consumer.ports import Ports
from kinesis_spout.consumer.rates import DeliveryRate
from kinesis_spout.dead_letters.sink_url import open_sink
from kinesis_spout.kinesis import KinesisClientSettings, KinesisShardLister, ReadSettings, ShardGetters
from kinesis_spout.kinesis.pace import ApplicationBudget
from kinesis_spout.kinesis.shard_paces import ShardPaces
from kinesis_spout.model.clock import SystemClock
from kinesis_spout.ports import ShardGetter
from kinesis_spout.settings import SpoutConfig
from kinesis_spout.settings.kinesis import client_settings as settings_of_client
from kinesis_spout.settings.kinesis import read_settings as settings_of_read
from kinesis_spout.settings.zookeeper import zookeeper_settings as settings_of_zookeeper
from kinesis_spout.zookeeper import ZooKeeperBackend, ZooKeeperSettings
from shard_state import Position


def client_settings(config: SpoutConfig) -> KinesisClientSettings:
    """Say how Kinesis is reached; can be sent to executors."""
    return settings_of_client(asdict(config), config.stream_region)


def read_settings(config: SpoutConfig) -> ReadSettings:
    """Say how shards are read; can be sent to executors."""
    return settings_of_read(asdict(config), fan_out_consumer=config.fan_out_consumer)


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
        zookeeper = zookeeper_settings(config)
        server = zookeeper.server(opened)
        budget = ApplicationBudget(config.max_total_fetch_bytes_per_second)
        return ports_of(config, lambda: zookeeper.connect(config.stream_name, server), opened, budget)


def ports_of(
    config: SpoutConfig,
    connect: Callable[[], ZooKeeperBackend],
    opened: ExitStack,
    budget: ApplicationBudget,
    deliveries: DeliveryRate | None = None,
) -> Ports:
    """Open the ports of one stream.

    Args:
        config: its settings.
        connect: gives the place of its progress.
        opened: what is open already, and is closed with the ports.
        budget: of the application in this process.
        deliveries: how often records are delivered of all streams; None: of this one alone, as its settings say.
    """
    aws = client_settings(config)
    client = aws.connect()
    dead_letters = open_sink(config.dead_letters_url, client=client, aws=aws)
    opened.callback(dead_letters.close)
    backend = connect()
    opened.callback(backend.coordinator.close)
    clock = SystemClock()
    lister = KinesisShardLister(client, config.stream, clock=clock)

    read = read_settings(config)
    paces = ShardPaces(clock, pace=read.pace, budget=budget)
    opened.callback(paces.close)
    getters = ShardGetters(client, config.stream, read, lister=lister, clock=clock)
    opened.callback(getters.close)

    def open_getter(shard_id: str, position: Position) -> ShardGetter:
        return getters.open(
            shard_id, position, hash_keys=lister.hash_keys(shard_id), pacing=paces.of(shard_id)
        )

    def open_rereader(shard_id: str, position: Position) -> ShardGetter:
        return getters.polled(
            shard_id, position, hash_keys=lister.hash_keys(shard_id), pacing=paces.of(shard_id)
        )

    return Ports(
        lister=lister,
        open_getter=open_getter,
        open_rereader=open_rereader,
        store=backend.store,
        coordinator=backend.coordinator,
        group=backend.group,
        dead_letters=dead_letters,
        clock=clock,
        paces=paces,
        deliveries=deliveries,
        close=opened.pop_all().close,
    )
