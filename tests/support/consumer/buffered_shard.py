"""A shard of the plain-Python door by itself."""

import threading
from typing import Any

from kinesis_spout.kinesis import Prefetcher
from kinesis_spout.kinesis.read.shard_reader import Room
from kinesis_spout.model.clock import Clock, SystemClock
from kinesis_spout.plain.buffered_shard import BufferedShard
from kinesis_spout.ports import ShardGetter


def buffered_shard(
    getter: ShardGetter,
    prefetcher: Prefetcher,
    *,
    max_bytes: int = 16 * 1024 * 1024,
    clock: Clock | None = None,
    **settings: Any,
) -> BufferedShard:
    room, clock = Room(lambda: max_bytes), clock or SystemClock()
    return BufferedShard(getter, prefetcher, room, lock=threading.RLock(), clock=clock, **settings)
