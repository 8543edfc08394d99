"""Whose turn it is: round by round, and record by record."""

import pytest

from shard_state.owned_shards import REST_SECONDS_PER_SHARD, RoundRobin

pytestmark = pytest.mark.no_second_run


def ring(members: str) -> RoundRobin:
    turns = RoundRobin()
    for member in members:
        turns.add(member)
    return turns


def order(turns: RoundRobin) -> str:
    return "".join(turns.round())


def test_whoever_was_served_goes_to_the_back() -> None:
    turns = ring("abc")
    turns.served("a")
    assert order(turns) == "bca"


def test_whoever_was_not_served_keeps_its_turn() -> None:
    turns = ring("abc")
    turns.served("b")
    turns.served("b")
    assert order(turns) == "acb"


def test_whoever_joins_comes_last_and_joining_twice_changes_nothing() -> None:
    turns = ring("ab")
    turns.add("c")
    turns.add("a")
    assert order(turns) == "abc"


def test_whoever_leaves_costs_nobody_a_turn() -> None:
    turns = ring("abc")
    turns.remove("a")
    turns.remove("unknown")
    turns.served("a")
    assert order(turns) == "bc"
    assert "a" not in turns
    assert len(turns) == 2


def test_a_round_names_everybody_once_although_members_are_served_meanwhile() -> None:
    turns = ring("abc")
    seen = []
    for member in turns.round():
        turns.served(member)
        turns.add("new")
        seen.append(member)
    assert seen == ["a", "b", "c"]


# Record by record


def turns_of(*shard_ids: str) -> RoundRobin:
    turns = RoundRobin()
    for shard_id in shard_ids:
        turns.add(shard_id)
    return turns


def test_a_shard_that_has_nothing_is_not_looked_at_until_it_has_rested() -> None:
    turns = turns_of("idle", "busy")
    turns.rest(0.0)
    assert [turns.current(0.0) for _ in range(100)] == ["busy"] * 100
    turns.rest(0.0)
    assert turns.current(0.0) is None
    assert turns.current(2 * REST_SECONDS_PER_SHARD) == "idle"


def test_looking_at_idle_shards_costs_the_same_however_many_there_are() -> None:
    looks = {}
    for count in (10, 1000):
        turns = turns_of(*(f"{number}" for number in range(count)))
        looks[count] = 0
        for tick in range(1000):
            while turns.current(tick / 1000) is not None:
                looks[count] += 1
                turns.rest(tick / 1000)
    assert looks[1000] <= 1.0 / REST_SECONDS_PER_SHARD + 1000
    assert looks[10] <= 10 * 1000


def test_a_shard_that_sleeps_is_not_looked_at_until_it_is_woken() -> None:
    turns = turns_of("a", "b")
    turns.sleep()
    turns.rest(0.0)
    assert turns.current(1e-9) is None
    assert turns.current(1e9) == "b"
    turns.wake("a")
    turns.wake("unknown")
    assert order(turns) == "ba"


def test_a_shard_that_rests_can_be_woken_before_its_time() -> None:
    turns = turns_of("a")
    turns.rest(0.0)
    turns.wake("a")
    assert turns.current(0.0) == "a"


def test_a_shard_that_joins_twice_is_in_the_ring_once() -> None:
    turns = turns_of("a", "b")
    turns.rest(0.0)
    turns.add("a")
    turns.served("b")
    assert turns.current(0.0) == "a"
    turns.rest(0.0)
    turns.remove("b")
    assert turns.current(0.0) is None
    assert len(turns) == 1
