"""Listings that lag, and listings that forget."""

import threading
from dataclasses import replace

from kinesis_spout.model.clock import SystemClock
from kinesis_spout.ports import StreamSummary
from kinesis_spout.structured.offsets import StreamOffset
from kinesis_spout.structured.stream.stream_shards import StreamShards
from shard_state import Position, Shard, StartPositions

RANGE = (0, (1 << 128) - 1)
GRANDPARENT = Shard(shard_id="shardId-0", parents=(), hash_range=RANGE, closed=True)
PARENT = Shard(shard_id="shardId-1", parents=("shardId-0",), hash_range=RANGE, closed=True)
CHILD = Shard(shard_id="shardId-2", parents=("shardId-1",), hash_range=RANGE)


class Listing:
    def __init__(self, *shards: Shard) -> None:
        self.shards = list(shards)

    def summary(self) -> StreamSummary:
        return StreamSummary(name="orders", arn="arn", created=1.0)

    def list_shards(self) -> list[Shard]:
        return list(self.shards)


def shards_of(listing: Listing) -> StreamShards:
    shards = StreamShards(
        "orders", listing, changed=threading.Condition(), period_seconds=1.0, clock=SystemClock()
    )
    shards.load()
    return shards


def all_at_end(offset: StreamOffset, *but: Shard) -> StreamOffset:
    names = {shard.shard_id for shard in but}
    return StreamOffset(
        created=offset.created,
        shards={id_: replace(shard, at_end=id_ not in names) for id_, shard in offset.shards.items()},
    )


def test_a_shard_at_its_end_that_vanished_is_not_read_again_when_it_is_listed_again() -> None:
    listing = Listing(GRANDPARENT, PARENT, CHILD)
    shards = shards_of(listing)
    offset = shards.first_offset(StartPositions(default=Position.trim_horizon()), now=0.0)
    offset = all_at_end(offset, CHILD)
    listing.shards = [CHILD]
    shards.refresh()
    offset = shards.brought_up_to_date(offset)
    assert list(offset.shards) == [CHILD.shard_id]
    listing.shards = [GRANDPARENT, PARENT, CHILD]
    shards.refresh()
    offset = shards.brought_up_to_date(offset)
    assert offset.readable() == [CHILD.shard_id]


def test_a_child_that_the_last_page_named_stays_known_while_the_listing_lags() -> None:
    listing = Listing(PARENT)
    shards = shards_of(listing)
    offset = shards.first_offset(StartPositions(default=Position.trim_horizon()), now=0.0)
    shards.found([CHILD])
    shards.refresh()
    assert shards.brought_up_to_date(all_at_end(offset)).readable() == [CHILD.shard_id]
    assert CHILD in shards.list_shards()


def test_a_child_that_was_listed_once_is_gone_when_the_listing_says_so() -> None:
    listing = Listing(PARENT)
    shards = shards_of(listing)
    shards.found([CHILD])
    listing.shards = [PARENT, CHILD]
    shards.refresh()
    listing.shards = [PARENT]
    assert shards.list_shards() == [PARENT]
