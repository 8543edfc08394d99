"""A record's shard follows from its key, as far as the list of shards knows."""

from kinesis_spout.kinesis.write.hash_key_ranges import WHOLE_STREAM, HashKeyRanges, hash_key
from shard_state import Shard

HALF = 1 << 127
PARENT = Shard(shard_id="parent", closed=True)
LOW = Shard(shard_id="low", parents=("parent",), hash_range=(0, HALF - 1))
HIGH = Shard(shard_id="high", parents=("parent",), hash_range=(HALF, 2 * HALF - 1))


def test_a_key_hashes_to_its_md5() -> None:
    assert hash_key("") == 0xD41D8CD98F00B204E9800998ECF8427E


def test_an_explicit_hash_key_goes_before_the_key() -> None:
    assert hash_key("key", "17") == 17


def test_each_hash_key_lies_in_the_open_shard_whose_range_holds_it() -> None:
    ranges = HashKeyRanges([HIGH, PARENT, LOW])
    assert [ranges.shard_of(key) for key in (0, HALF - 1, HALF, 2 * HALF - 1)] == [
        "low",
        "low",
        "high",
        "high",
    ]


def test_a_list_is_old_once_a_shard_is_named_that_it_has_not_even_closed() -> None:
    ranges = HashKeyRanges([HIGH, PARENT, LOW])
    assert not ranges.are_older_than("parent")
    assert ranges.are_older_than("child")


def test_a_stream_that_may_not_be_listed_is_one_shard_and_stays_so() -> None:
    unknown = HashKeyRanges.unknown()
    assert {unknown.shard_of(0), unknown.shard_of(2 * HALF - 1)} == {WHOLE_STREAM}
    assert not unknown.are_older_than("low")
