"""Who gets which shard. The planner's model tries what nobody thought of; here is what must be so at least."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import pairwise

import pytest

from shard_state import (
    SHARD_END,
    Assignment,
    AssignmentPlanner,
    Checkpoint,
    GroupMember,
    MemberMode,
    Position,
    Shard,
)
from shard_state.assignment.assignment_planner import FIRST_REST_SECONDS, LASTING_SECONDS

A, B, C = (GroupMember(name=name, joined=at) for at, name in enumerate("abc"))
BUSY = 1_000_000.0


def shards(count: int) -> list[Shard]:
    return [Shard(shard_id=f"s{at:03}") for at in range(count)]


def planner_of(listed: Iterable[Shard], current: Assignment | None = None) -> AssignmentPlanner:
    planner = AssignmentPlanner(current or Assignment())
    planner.listed(listed, {})
    return planner


def planned(planner: AssignmentPlanner, *members: GroupMember, now: float = 0.0) -> Assignment:
    """Plan, and check that the same again would change nothing."""
    planner.plan(members, now)
    assert planner.plan(members, now) is None
    return planner.current


def next_plan_at(planner: AssignmentPlanner) -> float | None:
    return planner.next_plan_at


def counts(assignment: Assignment) -> dict[str, int]:
    return dict(Counter(assignment.owners.values()))


def moved(before: Assignment, after: Assignment) -> set[str]:
    return {name for name, owner in before.owners.items() if after.owners.get(name) != owner}


def observing(member: GroupMember, assignment: Assignment, rates: Mapping[str, float]) -> GroupMember:
    return replace(member, rates={name: rates[name] for name in assignment.of(member.name)})


# Who takes part


def test_one_member_gets_everything() -> None:
    planner = planner_of(shards(3))
    assert planned(planner, A) == Assignment(
        epoch=1,
        members=frozenset("a"),
        owners={"s000": "a", "s001": "a", "s002": "a"},
        parents={"s000": (), "s001": (), "s002": ()},
    )


def test_without_members_nothing_is_assigned() -> None:
    planner = planner_of(shards(2))
    planned(planner, A)
    assert planned(planner).owners == {}


def test_a_member_that_joins_gets_its_share_and_nothing_else_moves() -> None:
    planner = planner_of(shards(10))
    before = planned(planner, A, B)
    after = planned(planner, A, B, C)
    assert sorted(counts(after).values()) == [3, 3, 4]
    assert moved(before, after) == after.of("c")
    assert after.epoch == before.epoch + 1


def test_the_shards_of_a_member_that_is_gone_go_to_those_that_have_least() -> None:
    planner = planner_of(shards(9))
    before = planned(planner, A, B, C)
    after = planned(planner, A, C)
    assert sorted(counts(after).values()) == [4, 5]
    assert moved(before, after) == before.of("b")


def test_a_member_that_drains_gives_everything_up_and_gets_nothing() -> None:
    planner = planner_of(shards(4))
    planned(planner, A, B)
    assert counts(planned(planner, A, replace(B, draining=True))) == {"a": 4}
    assert planned(planner, replace(A, draining=True), replace(B, draining=True)).owners == {}
    assert counts(planned(planner, A, B)) == {"a": 2, "b": 2}


def test_a_member_gets_as_many_shards_as_its_weight_says() -> None:
    heavy = replace(A, weight=3.0)
    assert counts(planned(planner_of(shards(12)), heavy, B)) == {"a": 9, "b": 3}


def test_a_heavy_member_gets_no_more_than_its_share_beside_many_light_ones() -> None:
    """Its share is 45 of 50, and half a shard is that of each of the others."""
    light = [GroupMember(name=f"light-{at}", weight=1.0) for at in range(10)]
    assert counts(planned(planner_of(shards(50)), GroupMember(name="heavy", weight=90.0), *light))[
        "heavy"
    ] in (
        44,
        45,
        46,
    )


def test_every_living_member_finds_itself_in_the_assignment_whether_it_owns_something_or_not() -> None:
    planner = planner_of(shards(1))
    members = (A, B, standby(C), replace(GroupMember(name="d"), draining=True))
    assert planned(planner, *members).members == set("abcd")
    assert planned(planner, A, B).members == set("ab"), "although nothing moves"


def test_who_is_listed_first_makes_no_difference() -> None:
    one, other = planner_of(shards(7)), planner_of(reversed(shards(7)))
    assert planned(one, A, B, C) == planned(other, C, B, A)


# Stand-bys


def standby(member: GroupMember) -> GroupMember:
    return replace(member, mode=MemberMode.STANDBY)


def test_a_stand_by_gets_nothing_while_somebody_shares() -> None:
    assert counts(planned(planner_of(shards(4)), standby(A), B)) == {"b": 4}


def test_without_members_that_share_the_stand_by_that_joined_first_gets_everything() -> None:
    planner = planner_of(shards(4))
    planned(planner, standby(A), standby(B), C)
    assert counts(planned(planner, standby(B), standby(A))) == {"a": 4}


def test_a_stand_by_that_has_taken_over_keeps_everything_until_somebody_shares() -> None:
    planner = planner_of(shards(4))
    planned(planner, standby(B))
    assert counts(planned(planner, standby(A), standby(B))) == {"b": 4}
    assert counts(planned(planner, standby(A), standby(B), C)) == {"c": 4}


def test_a_stand_by_that_drains_gets_nothing() -> None:
    planner = planner_of(shards(2))
    assert counts(planned(planner, replace(standby(A), draining=True), standby(B))) == {"b": 2}


# Which shards


SPLIT = [Shard(shard_id="p"), Shard(shard_id="q", parents=("p",)), Shard(shard_id="r", parents=("p",))]
MERGE = [*shards(2), Shard(shard_id="m", parents=("s000", "s001"))]


def test_children_are_assigned_when_their_parent_is_over_and_not_before() -> None:
    planner = planner_of(SPLIT)
    assert planned(planner, A, B).owners == {"p": "a"}
    after = planned(planner, replace(A, ended=frozenset("p")), B)
    assert after.owners.keys() == {"q", "r"}
    assert counts(after) == {"a": 1, "b": 1}
    assert after.parents == {"q": ("p",), "r": ("p",)}


def test_the_child_of_a_merge_waits_for_both_parents() -> None:
    planner = planner_of(MERGE)
    planned(planner, A)
    planner.over(["s000"])
    assert planned(planner, A).owners.keys() == {"s001"}
    planner.over(["s001"])
    assert planned(planner, A).owners.keys() == {"m"}


@pytest.mark.parametrize("member", [standby(B), replace(B, draining=True)], ids=["stand-by", "drains"])
def test_the_end_of_a_shard_counts_whoever_stored_it(member: GroupMember) -> None:
    planner = planner_of(SPLIT)
    assert planned(planner, A, replace(member, ended=frozenset("p"))).owners.keys() == {"q", "r"}


def test_what_the_store_says_is_over_is_not_assigned() -> None:
    planner = AssignmentPlanner(Assignment())
    planner.listed(SPLIT, {"p": Checkpoint(start=Position.trim_horizon(), base=SHARD_END, parents=())})
    assert planned(planner, A).owners.keys() == {"q", "r"}


def test_when_every_listed_shard_is_over_it_says_so() -> None:
    planner = planner_of(shards(2))
    assert not planned(planner, A).all_over
    planner.over(["s000"])
    assert not planned(planner, A).all_over
    planner.over(["s001"])
    assert planned(planner, A) == Assignment(epoch=3, members=frozenset("a"), all_over=True)
    assert planned(AssignmentPlanner(planner.current), A) == planner.current, "before anything was listed"
    planner.listed([*shards(2), Shard(shard_id="c", parents=("s000", "s001"))], {})
    assert planned(planner, A) == Assignment(
        epoch=4, members=frozenset("a"), owners={"c": "a"}, parents={"c": ("s000", "s001")}
    )


def test_not_everything_is_over_while_a_shard_is_assigned_that_a_list_lacks() -> None:
    before = planned(planner_of(shards(2)), A)
    planner = AssignmentPlanner(before)
    planner.listed(shards(1), {})
    planner.over(["s000"])
    after = planned(planner, A)
    assert after.owners.keys() == {"s001"}
    assert not after.all_over


def test_a_shard_that_only_the_store_knows_is_assigned_with_the_parents_stored() -> None:
    planner = AssignmentPlanner(Assignment())
    stored = Checkpoint(start=Position.trim_horizon(), parents=("gone",))
    planner.listed(shards(1), {"z": stored, "old": stored})
    planner.over(["s000", "z"])
    assert planned(planner, A).parents == {"old": ("gone",)}


def test_an_assigned_shard_that_a_list_lacks_stays_assigned_and_its_children_wait() -> None:
    planner = planner_of(SPLIT)
    before = planned(planner, A)
    planner.listed(SPLIT[1:], {})
    assert planned(planner, A) == before


# One leader after another


def test_the_next_leader_leaves_everything_where_it_is() -> None:
    before = planned(planner_of(shards(7)), A, B, C)
    planner = planner_of(shards(7), before)
    assert planner.plan([A, B, C], 0.0) is None
    assert planner.current == before


def test_before_anything_was_listed_what_is_assigned_is_shared_out() -> None:
    before = planned(planner_of(SPLIT), A)
    planner = AssignmentPlanner(before)
    assert planned(planner, B).owners == {"p": "b"}
    planner.listed(SPLIT[1:], {})
    assert planned(planner, B).owners == {"p": "b"}, "a list that lacks it does not set its children free"


# Loads


def test_idle_shards_are_spread_by_number_and_a_busy_one_has_a_member_for_itself() -> None:
    planner = planner_of(shards(10))
    rates = dict.fromkeys((shard.shard_id for shard in shards(10)), 0.0) | {"s000": BUSY}
    first = planned(planner, A, B)
    assert sorted(counts(first).values()) == [5, 5]
    hot = first.owners["s000"]
    members = [observing(member, first, rates) for member in (A, B)]
    planned(planner, *members, now=1.0)
    after = planned(planner, *members, now=1.0 + LASTING_SECONDS)
    assert after.of(hot) == {"s000"}


def test_a_member_gives_shards_away_once_it_has_had_too_much_for_minutes() -> None:
    planner = planner_of(shards(4))
    first = planned(planner, A, B, now=100.0)
    assert next_plan_at(planner) is None
    rates = dict.fromkeys(first.owners, BUSY) | dict.fromkeys(first.of("a"), 3 * BUSY)
    members = [observing(member, first, rates | {min(first.of("a")): BUSY}) for member in (A, B)]
    assert planned(planner, *members, now=110.0) == first
    assert next_plan_at(planner) == 110.0 + LASTING_SECONDS
    after = planned(planner, *members, now=110.0 + LASTING_SECONDS)
    assert moved(first, after) == {min(first.of("a"))}
    assert next_plan_at(planner) is None

    changed = dict.fromkeys(first.owners, BUSY)
    members = [observing(member, after, changed) for member in (A, B)]
    assert planned(planner, *members, now=300.0) == after
    assert next_plan_at(planner) == 300.0 + LASTING_SECONDS
    last = planned(planner, *members, now=300.0 + LASTING_SECONDS)
    assert sorted(counts(last).values()) == [2, 2]


def test_after_a_move_what_is_still_too_much_waits_for_as_long_again() -> None:
    planner = planner_of(shards(8))
    first = planned(planner, A, B, now=0.0)

    def heavy(now: float, loads: Mapping[str, float]) -> Assignment:
        planner.plan([observing(member, planner.current, loads) for member in (A, B)], now)
        return planner.current

    loads = dict.fromkeys(first.owners, BUSY) | dict.fromkeys(first.of("a"), 2 * BUSY)
    heavy(1.0, loads)
    after = heavy(1.0 + LASTING_SECONDS, loads)
    assert moved(first, after)
    loads = dict.fromkeys(first.owners, BUSY) | dict.fromkeys(after.of("a") & first.of("a"), 6 * BUSY)
    assert heavy(2.0 + LASTING_SECONDS, loads) == after
    assert next_plan_at(planner) == 2.0 + 2 * LASTING_SECONDS


def test_a_shard_that_was_moved_rests_longer_each_time() -> None:
    planner = planner_of(shards(4))
    current = planned(planner, A, B)
    moves = {shard.shard_id: list[float]() for shard in shards(4)}
    for now in range(0, 24 * 3600, 60):
        busy = current.of("ab"[now // 900 % 2])
        rates = dict.fromkeys(current.owners, 0.0) | dict.fromkeys(busy, BUSY)
        before = current
        members = [observing(member, before, rates) for member in (A, B)]
        current = planned(planner, *members, now=float(now))
        for shard_id in moved(before, current):
            moves[shard_id].append(now)
    pauses = [[later - earlier for earlier, later in pairwise(each)] for each in moves.values()]
    assert any(len(each) > 1 for each in pauses)
    for each in pauses:
        assert all(pause >= FIRST_REST_SECONDS for pause in each)
        assert all(later >= 2 * FIRST_REST_SECONDS for earlier, later in pairwise(each) if earlier < 7_000)


def test_a_load_that_is_too_much_now_and_then_moves_nothing() -> None:
    planner = planner_of(shards(4))
    first = planned(planner, A, B)
    for at in range(100):
        busy = first.of("ab"[at % 2])
        rates = {name: BUSY * (3 if name in busy else 1) for name in first.owners}
        members = [observing(member, first, rates) for member in (A, B)]
        assert planned(planner, *members, now=at * LASTING_SECONDS / 2) == first


def test_loads_that_differ_by_a_fifth_are_left_as_they_are() -> None:
    for less, stays in ((0.85, True), (0.75, False)):
        planner = planner_of(shards(40))
        first = planned(planner, A, B)
        rates = dict.fromkeys(first.of("a"), BUSY) | dict.fromkeys(first.of("b"), less * BUSY)
        members = [observing(member, first, rates) for member in (A, B)]
        planned(planner, *members)
        assert (planned(planner, *members, now=LASTING_SECONDS) == first) is stays


def test_a_member_that_joins_gets_its_share_of_the_load_at_once() -> None:
    planner = planner_of(shards(6))
    first = planned(planner, A)
    rates = {f"s{at:03}": BUSY * (1 + at) for at in range(6)}
    after = planned(planner, observing(A, first, rates), B, now=1.0)
    loads = [sum(rates[name] for name in after.of(member)) for member in "ab"]
    assert loads[0] == pytest.approx(loads[1], rel=0.2)
    assert next_plan_at(planner) is None


def test_a_shard_that_moves_keeps_its_rate_until_its_new_owner_has_observed_one() -> None:
    planner = planner_of(shards(4))
    rates = dict.fromkeys((shard.shard_id for shard in shards(4)), BUSY) | {"s000": 9 * BUSY}
    planned(planner, observing(A, planned(planner, A), rates))
    planned(planner, B)
    of_a_before = replace(A, rates={"s000": 0.0}, draining=True)
    assert planned(planner, of_a_before, B, C).of("c") == {"s000"}
