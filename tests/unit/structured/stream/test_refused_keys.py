"""A query one of whose shards has a key that KMS refuses."""

import threading
from typing import Any, cast

from kinesis_spout.kinesis import PollingShardGetter, Prefetcher, ReadSettings
from kinesis_spout.kinesis.io_thread import IO
from kinesis_spout.kinesis.read.shard_reader import Room
from kinesis_spout.kinesis.retry_policy import OUTAGE_SECONDS, SLOW_SECONDS, STRAY_SECONDS
from kinesis_spout.model.errors import KeyUnavailable
from kinesis_spout.structured.pages.page_buffer import PageBuffer
from kinesis_spout.structured.stream.shard_fetcher import FetchCounters, ShardFetcher
from kinesis_spout.testing import InMemoryShardLister, InMemoryStream, ManualClock
from shard_state import Position
from tests.support.kinesis.in_memory_client import InMemoryKinesisClient

SHARD = "shardId-000000000000"


def test_the_shard_is_read_again_slowly_ends_no_query_and_holds_the_others_up_for_a_minute_only() -> None:
    clock = ManualClock()
    stream = InMemoryStream("orders", clock=clock)
    stream.put(b"one", "key")
    clock.advance(3600)
    getter = PollingShardGetter(
        cast("Any", InMemoryKinesisClient(stream)),
        stream="orders",
        shard_id=SHARD,
        position=Position.trim_horizon(),
        lister=InMemoryShardLister(stream),
        clock=clock,
    )
    changed = threading.Condition()
    buffer = PageBuffer()
    fetcher = ShardFetcher(
        ("orders", SHARD),
        getter,
        buffer=buffer,
        prefetcher=Prefetcher(clock=clock),
        room=Room(lambda: 1 << 30),
        changed=changed,
        counters=FetchCounters(),
        settings=ReadSettings(max_records_per_fetch=10),
        periods=(0.2, 1.0),
        until=None,
        clock=clock,
        found_children=lambda *_: None,
        position=Position.trim_horizon(),
    )
    stream.fail_next(KeyUnavailable("key disabled"), times=4)
    begun = clock.monotonic()
    for failures in range(4):
        due_at = IO.run(fetcher.fetch())
        assert due_at is not None
        assert due_at - clock.monotonic() >= (SLOW_SECONDS if failures else STRAY_SECONDS)
        assert fetcher.failure is None
        assert fetcher.is_waited_for == (clock.monotonic() - begun < OUTAGE_SECONDS)
        clock.advance(due_at - clock.monotonic())

    IO.run(fetcher.fetch())
    assert buffer.bytes_of(("orders", SHARD)) > 0
