"""Kinesis behind the ports: client, lister, getters."""

from kinesis_spout.kinesis.client import KinesisClientSettings
from kinesis_spout.kinesis.lister import KinesisShardLister, stream_names
from kinesis_spout.kinesis.read.arrow import ArrowPage
from kinesis_spout.kinesis.read.fan_out.pushed_getter import FanOutShardGetter, FanOutStream
from kinesis_spout.kinesis.read.polled_getter import PollingShardGetter
from kinesis_spout.kinesis.read.polling.prefetcher import Prefetcher
from kinesis_spout.kinesis.read.read_settings import ReadSettings
from kinesis_spout.kinesis.shard_getters import ShardGetters
from kinesis_spout.model.columns import SCHEMA

__all__ = [
    "SCHEMA",
    "ArrowPage",
    "FanOutShardGetter",
    "FanOutStream",
    "KinesisClientSettings",
    "KinesisShardLister",
    "PollingShardGetter",
    "Prefetcher",
    "ReadSettings",
    "ShardGetters",
    "stream_names",
]
