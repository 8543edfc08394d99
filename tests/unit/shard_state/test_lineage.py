import random
from collections.abc import Collection

import pytest

from shard_state import Shard
from shard_state.lineage import blocking_parents, parents_first

pytestmark = pytest.mark.no_second_run


def blocked_by(
    shard: Shard, *, listed: Collection[str] = (), stored: Collection[str] = (), over: Collection[str] = ()
) -> list[str]:
    return blocking_parents(shard, {name: Shard(shard_id=name) for name in listed}, stored, over)


CHILD_OF_SPLIT = Shard(shard_id="c", parents=("a",))
CHILD_OF_MERGE = Shard(shard_id="c", parents=("a", "b"))


def test_a_shard_without_parents_is_free() -> None:
    assert blocked_by(Shard(shard_id="a"), listed="a") == []


def test_a_child_waits_until_its_parent_is_over() -> None:
    assert blocked_by(CHILD_OF_SPLIT, listed="ac", stored="a") == ["a"]
    assert blocked_by(CHILD_OF_SPLIT, listed="ac", stored="a", over="a") == []


def test_the_child_of_a_merge_waits_for_both_parents() -> None:
    assert blocked_by(CHILD_OF_MERGE, listed="abc") == ["a", "b"]
    assert blocked_by(CHILD_OF_MERGE, listed="abc", over="a") == ["b"]
    assert blocked_by(CHILD_OF_MERGE, listed="abc", over="b") == ["a"]
    assert blocked_by(CHILD_OF_MERGE, listed="abc", over="ab") == []


def test_a_parent_that_was_never_read_blocks_while_it_is_listed() -> None:
    assert blocked_by(CHILD_OF_SPLIT, listed="ac") == ["a"]


def test_a_parent_that_is_only_stored_blocks() -> None:
    assert blocked_by(CHILD_OF_SPLIT, listed="c", stored="a") == ["a"]


def test_a_parent_that_retention_trimmed_blocks_nobody() -> None:
    assert blocked_by(CHILD_OF_MERGE, listed="bc") == ["b"]
    assert blocked_by(CHILD_OF_SPLIT, listed="c") == []


def test_parents_come_before_children_whatever_the_order_of_the_list() -> None:
    shards = [
        Shard(shard_id="z"),
        Shard(shard_id="m", parents=("z", "gone")),
        Shard(shard_id="a", parents=("m",)),
        Shard(shard_id="b", parents=("m", "a")),
    ]
    for seed in range(10):
        random.Random(seed).shuffle(shards)
        assert [shard.shard_id for shard in parents_first(shards)] == ["z", "m", "a", "b"]


def test_unrelated_shards_come_by_their_id() -> None:
    assert [shard.shard_id for shard in parents_first(map(_alone, "cab"))] == ["a", "b", "c"]


def test_a_stream_that_was_resharded_thousands_of_times_is_ordered_too() -> None:
    generations = [
        Shard(shard_id=f"{5000 - at}", parents=(f"{5001 - at}",) if at else ()) for at in range(5000)
    ]
    ordered = parents_first(reversed(generations))
    assert ordered == generations


def test_shards_that_are_their_own_ancestors_are_ordered_too_each_once() -> None:
    ring = [
        Shard(shard_id="a", parents=("c",)),
        Shard(shard_id="b", parents=("a",)),
        Shard(shard_id="c", parents=("b", "root")),
        Shard(shard_id="self", parents=("self",)),
        Shard(shard_id="root"),
    ]
    for seed in range(10):
        random.Random(seed).shuffle(ring)
        assert [shard.shard_id for shard in parents_first(ring)] == ["b", "root", "c", "a", "self"]


def _alone(name: str) -> Shard:
    return Shard(shard_id=name)
