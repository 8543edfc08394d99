"""From settings to the real world: Kinesis, ZooKeeper, and where dead letters go."""

from contextlib import ExitStack
from dataclasses import replace

from msgspec.structs import asdict

from kinesis_spout.consumer.limits.delivery_rate import DeliveryRate
from kinesis_spout.consumer.ports import Ports
from kinesis_spout.dead_letters.sink_url import open_sink
from kinesis_spout.kinesis import (
    KinesisClientSettings,
    KinesisShardLister,
    ReadSettings,
    ShardGetters,
    stream_names,
)
from kinesis_spout.kinesis.pace import ApplicationBudget, ShardPaces
from kinesis_spout.model.clock import Clock, SystemClock
from kinesis_spout.model.errors import refuse_other_kind
from kinesis_spout.ports import ShardGetter
from kinesis_spout.settings import SpoutConfig
from kinesis_spout.settings.kinesis import client_settings as settings_of_client
from kinesis_spout.settings.kinesis import read_settings as settings_of_read
from kinesis_spout.settings.zookeeper import zookeeper_settings as settings_of_zookeeper
from kinesis_spout.zookeeper import ZooKeeperSettings, begun_streams, unique_member_name
from shard_state import Position


def client_settings(config: SpoutConfig) -> KinesisClientSettings:
    return settings_of_client(asdict(config), config.stream_region)


def read_settings(config: SpoutConfig) -> ReadSettings:
    return settings_of_read(asdict(config), fan_out_consumer=config.fan_out_consumer)


def zookeeper_settings(config: SpoutConfig) -> ZooKeeperSettings:
    return settings_of_zookeeper(config.app, asdict(config))


class RealPorts:
    """One session with ZooKeeper, one budget and one rate for all streams of a spout.

    Streams that are reached in the same way share a client of Kinesis.

    Raises:
        InvalidConfig: no Java for the embedded ZooKeeper.
        StoreUnavailable, StoreError: no ZooKeeper answers, or the embedded one does not start.
    """

    def __init__(self, config: SpoutConfig) -> None:
        self._config = config
        self.clock: Clock = SystemClock()
        self._zookeeper = zookeeper_settings(config)
        self._member = unique_member_name()
        self._budget = ApplicationBudget(config.max_total_fetch_bytes_per_second)
        self._deliveries = DeliveryRate(
            config.max_deliveries_per_second, config.max_total_deliveries_per_second
        )
        with ExitStack() as opened:
            self._session = self._zookeeper.session(self._zookeeper.server(opened))
            opened.callback(self._session.close)
            self._session.start()
            self._opened = opened.pop_all()

    def names(self, config: SpoutConfig) -> list[str]:
        return stream_names(client_settings(config).connect(), clock=self.clock)

    def begun(self) -> tuple[float | None, frozenset[str]]:
        return begun_streams(self._session, self._config.zookeeper_root, self._config.app)

    def open(self, config: SpoutConfig) -> Ports:
        """Open the ports of one stream. A failed step closes what the steps before it opened.

        Raises:
            InvalidConfig: no region.
            StoreUnavailable: ZooKeeper does not answer.
            DeadLetterError: the sink cannot be opened.
        """
        with ExitStack() as opened:
            aws = client_settings(config)
            client = aws.connect()
            dead_letters = open_sink(config.dead_letters_url, client=client, aws=aws)
            opened.callback(dead_letters.close)
            backend = self._zookeeper.place(config.stream_name, self._session, self._member)
            opened.callback(backend.coordinator.close)
            lister = KinesisShardLister(client, config.stream, clock=self.clock)
            read = read_settings(config)
            paces = ShardPaces(self.clock, pace=read.pace, budget=self._budget)
            opened.callback(paces.close)
            getters = ShardGetters(client, config.stream, read, lister=lister, clock=self.clock)
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
                clock=self.clock,
                paces=paces,
                deliveries=self._deliveries,
                close=opened.pop_all().close,
            )

    def close(self) -> None:
        self._opened.close()


def open_ports(config: SpoutConfig) -> Ports:
    """Open Kinesis, ZooKeeper and the dead letters of one stream; ``Ports.close`` closes them.

    Raises:
        InvalidConfig: no region, or no Java for the embedded ZooKeeper.
        StoreUnavailable, StoreError: no ZooKeeper answers, or the embedded one does not start.
        DeadLetterError: the sink cannot be opened.
    """
    refuse_other_kind("config", "a SpoutConfig, as SpoutConfig.of(...) makes", config, "app", "stream")
    with ExitStack() as opened:
        real = RealPorts(config)
        opened.callback(real.close)
        ports = real.open(config)
        opened.callback(ports.close)
        return replace(ports, close=opened.pop_all().close)
