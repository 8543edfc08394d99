"""The contract of ``ShardLister``: the fake, and the real lister over each endpoint."""

import pytest

from kinesis_spout.model.errors import StreamNotFound
from shard_state import Shard
from tests.support.kinesis.streams_under_test import FIRST_SHARD, MakeStream, StreamUnderTest

pytestmark = pytest.mark.endpoint


def _listed(stream: StreamUnderTest) -> dict[str, Shard]:
    return {shard.shard_id: shard for shard in stream.lister().list_shards()}


def test_the_shards_of_a_new_stream_are_open_and_divide_the_hash_keys(make_stream: MakeStream) -> None:
    listed = _listed(make_stream(shards=3))

    ranges = sorted(shard.hash_range for shard in listed.values())
    assert [shard.closed for shard in listed.values()] == [False] * 3
    assert [shard.parents for shard in listed.values()] == [()] * 3
    assert (ranges[0][0], ranges[-1][1]) == (0, 2**128 - 1)
    assert [low[1] + 1 for low in ranges[:-1]] == [high[0] for high in ranges[1:]]


def test_a_split_closes_the_parent_and_lists_two_children(make_stream: MakeStream) -> None:
    stream = make_stream()

    stream.split(FIRST_SHARD)

    listed = _listed(stream)
    children = [shard for shard in listed.values() if shard.parents == (FIRST_SHARD,)]
    assert listed[FIRST_SHARD].closed
    assert sorted((child.hash_range, child.closed) for child in children) == [
        ((0, 2**127 - 1), False),
        ((2**127, 2**128 - 1), False),
    ]


def test_a_merge_lists_a_child_of_both_parents(make_stream: MakeStream) -> None:
    stream = make_stream(shards=2)
    low, high = sorted(_listed(stream))

    stream.merge(low, high)

    listed = _listed(stream)
    child = next(shard for shard in listed.values() if shard.shard_id not in (low, high))
    assert (listed[low].closed, listed[high].closed, child.closed) == (True, True, False)
    assert set(child.parents) == {low, high}
    assert child.hash_range == (0, 2**128 - 1)


def test_the_summary_says_which_stream_it_is_and_when_it_was_made(make_stream: MakeStream) -> None:
    stream = make_stream()

    summary = stream.lister().summary()

    assert summary.name == stream.name
    assert summary.arn.endswith(f":stream/{stream.name}")
    assert summary.created == pytest.approx(stream.clock.time(), abs=60)
    assert stream.lister().summary() == summary


def test_a_stream_that_is_not_there_is_named(make_stream: MakeStream) -> None:
    stream = make_stream()
    stream.delete()

    with pytest.raises(StreamNotFound, match=stream.name):
        stream.lister().list_shards()
    with pytest.raises(StreamNotFound, match=stream.name):
        stream.lister().summary()
