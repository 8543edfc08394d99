"""Kinesis behind the ports: client, lister, getters.

The names here are loaded when they are first used: a door that is only imported has no connection to make, and a
task reads one kind of page.
"""

from typing import TYPE_CHECKING, Final

from kinesis_spout.model.extras import lazy_names

if TYPE_CHECKING:
    from kinesis_spout.kinesis.client_settings import KinesisClientSettings
    from kinesis_spout.kinesis.lister import KinesisShardLister, stream_names
    from kinesis_spout.kinesis.read.arrow import ArrowPage
    from kinesis_spout.kinesis.read.fan_out.pushed_getter import FanOutShardGetter, FanOutStream
    from kinesis_spout.kinesis.read.polled_getter import PollingShardGetter
    from kinesis_spout.kinesis.read.prefetcher import Prefetcher
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

_NAMES: Final = {
    "kinesis_spout.kinesis.client_settings": ("KinesisClientSettings",),
    "kinesis_spout.kinesis.lister": ("KinesisShardLister", "stream_names"),
    "kinesis_spout.kinesis.read.arrow": ("ArrowPage",),
    "kinesis_spout.kinesis.read.fan_out.pushed_getter": ("FanOutShardGetter", "FanOutStream"),
    "kinesis_spout.kinesis.read.polled_getter": ("PollingShardGetter",),
    "kinesis_spout.kinesis.read.prefetcher": ("Prefetcher",),
    "kinesis_spout.kinesis.read.read_settings": ("ReadSettings",),
    "kinesis_spout.kinesis.shard_getters": ("ShardGetters",),
    "kinesis_spout.model.columns": ("SCHEMA",),
}

__getattr__, __dir__ = lazy_names(__name__, _NAMES)
