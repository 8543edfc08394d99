"""A shard that stands still has a state of its own, by its owner's words or by what is stored."""

from typing import Any

import pytest

from kinesis_spout.operations.shards import ShardState, ShardView
from kinesis_spout.operations.watch.live_status import LiveShard, LiveStatus
from kinesis_spout.operations.watch.sight import ShardSight, most_urgent_first, seen_shards

NOW = 1_000.0


def seen(state: ShardState = ShardState.READING, live: LiveShard | None = None, **view: Any) -> ShardSight:
    status = {} if live is None else {"worker": LiveStatus(shards=(live,))}
    (sight,) = seen_shards([ShardView(shard_id="a", state=state, owner="worker", **view)], {}, status, NOW)
    return sight


def test_a_shard_is_stalled_once_records_waited_and_nothing_was_stored_for_half_a_minute() -> None:
    sight = seen(stored_at=NOW - 45, oldest_unread_millis=31_000, lag_millis=0)
    assert sight.state is ShardState.STALLED
    assert sight.reason == "no progress was stored for 45 s, and records wait for 31 s"
    assert (sight.document()["state"], sight.document()["reason"]) == ("stalled", sight.reason)


@pytest.mark.parametrize(
    "told",
    [
        {"stored_at": NOW - 29, "oldest_unread_millis": 60_000},  # behind, and moving
        {"stored_at": NOW - 3_600, "oldest_unread_millis": 29_000},  # idle for an hour, and a record came
        {"stored_at": NOW - 3_600},
        {"oldest_unread_millis": 60_000},
        {"stored_at": NOW + 3_600, "oldest_unread_millis": 60_000},
    ],
)
def test_a_shard_that_moves_or_has_nothing_to_deliver_is_read(told: dict[str, Any]) -> None:
    sight = seen(**told)
    assert (sight.state, sight.reason) == (ShardState.READING, None)


def test_the_owner_knows_better_than_what_is_stored() -> None:
    still: dict[str, Any] = {"stored_at": NOW - 45, "oldest_unread_millis": 45_000}
    assert seen(live=LiveShard(shard_id="a", stalled=False), **still).state is ShardState.READING
    assert seen(live=LiveShard(shard_id="a"), **still).state is ShardState.STALLED
    told = seen(live=LiveShard(shard_id="a", stalled=True, reason="has not moved for 9 s: 1 in flight"))
    assert (told.state, told.reason) == (ShardState.STALLED, "has not moved for 9 s: 1 in flight")


@pytest.mark.parametrize("owner", ["worker", None])
def test_a_member_that_lost_the_shard_and_has_not_noticed_says_nothing_of_it(owner: str | None) -> None:
    view = ShardView(shard_id="a", state=ShardState.READING, owner=owner, lag_millis=5)
    told = {
        "worker": LiveStatus(shards=()),
        "zombie": LiveStatus(shards=(LiveShard(shard_id="a", stalled=True, lag_millis=90_000),)),
    }
    (sight,) = seen_shards([view], {}, told, NOW)
    assert (sight.state, sight.live, sight.lag_millis) == (ShardState.READING, None, 5)


def test_a_problem_of_reading_is_told_with_the_reason() -> None:
    sight = seen(live=LiveShard(shard_id="a", stalled=True, reason="stuck"), problem="access denied")
    assert sight.reason == "stuck; access denied"


def test_only_a_shard_that_is_read_stands_still() -> None:
    for state in set(ShardState) - {ShardState.READING}:
        sight = seen(state, LiveShard(shard_id="a", stalled=True), stored_at=0.0, lag_millis=90_000)
        assert sight.state is state


def test_a_list_shows_first_what_stands_still_and_last_what_is_over() -> None:
    ordered = most_urgent_first(seen(state) for state in sorted(ShardState) if state != "stalled")
    assert ordered[-1].state is ShardState.OVER
    stalled = seen(live=LiveShard(shard_id="a", stalled=True))
    assert most_urgent_first([*ordered, stalled])[0] is stalled
