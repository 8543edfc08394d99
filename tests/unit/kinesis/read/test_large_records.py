"""Records of 10 MiB, the most that Kinesis takes, and records without a partition key (strategy AUTO)."""

from typing import TYPE_CHECKING, cast

import pytest

from kinesis_spout.kinesis import PollingShardGetter, Prefetcher
from kinesis_spout.model.errors import Throttled
from kinesis_spout.testing import InMemoryShardLister, InMemoryStream, ManualClock
from shard_state import Position
from tests.support.consumer.buffered_shard import buffered_shard
from tests.support.kinesis.in_memory_client import InMemoryKinesisClient
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from mypy_boto3_kinesis import KinesisClient

    from kinesis_spout.model.record import Record

SHARD = "shardId-000000000000"
LARGEST = [bytes([number]) * (10 * 1024 * 1024) for number in range(3)]


class Scene:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.stream = InMemoryStream("orders", clock=self.clock)
        for data in LARGEST:
            self.stream.put(data)
        self.getter = PollingShardGetter(
            cast("KinesisClient", InMemoryKinesisClient(self.stream)),
            stream="orders",
            shard_id=SHARD,
            position=Position.trim_horizon(),
            lister=InMemoryShardLister(self.stream),
            clock=self.clock,
            jitter=lambda: 0.0,
        )


def test_each_fills_a_page_and_the_next_read_waits_as_long_as_the_shard_needs() -> None:
    scene = Scene()
    read = []
    for _ in LARGEST:
        (record,) = scene.getter.read(10_000).records
        read.append(record)
        assert scene.getter.ready_at - scene.clock.monotonic() > 5

    assert [record.data for record in read] == LARGEST
    assert [record.partition_key for record in read] == [None] * 3


def test_a_throttle_after_one_keeps_the_shard_waiting_for_five_seconds() -> None:
    scene = Scene()
    scene.getter.read(10_000)
    scene.stream.throttle()
    with pytest.raises(Throttled):
        scene.getter.read(10_000)
    assert scene.getter.ready_at - scene.clock.monotonic() > 4.99

    assert scene.getter.read(10_000).records[0].data == LARGEST[1]


def test_columns_hold_one_whole_with_no_key() -> None:
    scene = Scene()
    batches = [scene.getter.read_arrow(10_000).batch for _ in LARGEST]

    assert [batch.column("data").to_pylist() for batch in batches] == [[data] for data in LARGEST]
    assert {batch.column("partitionKey")[0].as_py() for batch in batches} == {None}


def test_a_buffer_that_is_smaller_than_one_hands_them_over_one_by_one() -> None:
    scene = Scene()
    polled: list[Record] = []
    with Prefetcher(most=1, clock=scene.clock) as prefetcher:
        getter = buffered_shard(scene.getter, prefetcher, max_bytes=1, clock=scene.clock)

        def has_all() -> bool:
            emitted = getter.poll()
            if emitted is not None:
                polled.append(emitted[0])
            assert getter.buffered[1] <= len(LARGEST[0])
            scene.clock.advance(6)
            prefetcher.look()
            return len(polled) == len(LARGEST)

        wait_until(has_all, "three records")
        getter.close()
    assert [record.data for record in polled] == LARGEST
