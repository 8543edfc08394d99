"""``shards`` says where each shard stands."""

import pytest

from kinesis_spout.kinesis.aggregated_record import UserRecord
from kinesis_spout.operations.watch import sight
from kinesis_spout.operations.watch.live_status import LiveShard, LiveStatus
from shard_state import SHARD_END, SequenceNumber
from tests.unit.cli.fake_world import SETTINGS, FakeWorld


def by_id(world: FakeWorld, *more: str, exit_code: int = 0) -> dict[str, dict[str, object]]:
    return {row["shard_id"]: row for row in world.json("shards", *more, exit_code=exit_code)["shards"]}


def test_before_the_first_start_nothing_has_begun() -> None:
    world = FakeWorld()
    rows = by_id(world)
    assert [row["state"] for row in rows.values()] == ["not begun", "not begun"]
    assert {row["lag_millis"] for row in rows.values()} == {None}


def test_an_owned_shard_is_being_read_and_others_are_ready() -> None:
    world = FakeWorld()
    first, second = world.shard_ids
    world.store(world.consumer(), first)
    rows = by_id(world)
    assert (rows[first]["state"], rows[first]["owner"]) == ("reading", "consumer")
    assert (rows[second]["state"], rows[second]["owner"]) == ("ready", None)


def test_lag_and_age_are_those_of_the_first_record_after_the_checkpoint() -> None:
    world = FakeWorld(shards=1)
    (shard_id,) = world.shard_ids
    world.kinesis.put(b"read", "k")
    world.clock.advance(2)
    world.kinesis.put(b"unread", "k")
    world.clock.advance(3)
    read = world.kinesis.records(shard_id)[0].sequence
    world.store(world.consumer(), shard_id, base=read)
    row = by_id(world)[shard_id]
    assert (row["lag_millis"], row["oldest_unread_millis"]) == (0, 3000)
    assert row["checkpoint"] == str(read)


def test_failing_records_and_holes_are_counted() -> None:
    world = FakeWorld(shards=1)
    (shard_id,) = world.shard_ids
    base = SequenceNumber(1)
    world.store(
        world.consumer(),
        shard_id,
        base=base,
        holes=((SequenceNumber(4), SequenceNumber(5)),),
        anchor=SequenceNumber(2),
        attempts=((SequenceNumber(2), 3), (SequenceNumber(4), 1)),
    )
    row = by_id(world, "--no-lag")[shard_id]
    assert row["unfinished"] == [
        {"sequence_number": "2", "attempts": 3},
        {"sequence_number": "4", "attempts": 1},
    ]
    assert (row["retries"], row["holes"]) == (2, 1)


def test_children_wait_until_their_parent_is_over() -> None:
    world = FakeWorld(shards=1)
    (parent,) = world.shard_ids
    consumer = world.consumer()
    world.store(consumer, parent)
    world.kinesis.split(parent)
    rows = by_id(world)
    assert next(iter(rows)) == parent
    assert [row["state"] for row in rows.values()] == ["reading", "waiting", "waiting"]
    assert all(row["parents"] == [parent] for shard_id, row in rows.items() if shard_id != parent)
    world.store(consumer, parent, base=SHARD_END)
    assert [row["state"] for row in by_id(world).values()] == ["ready", "ready", "over"]


def test_a_stored_shard_that_is_not_listed_any_more_is_gone() -> None:
    world = FakeWorld(shards=1)
    consumer = world.consumer()
    world.store(consumer, "shardId-000000000099", base=SequenceNumber(1))
    assert by_id(world)["shardId-000000000099"]["state"] == "gone"


def test_what_cannot_be_read_is_a_row_with_a_problem_and_an_exit_code() -> None:
    world = FakeWorld()
    first, second = world.shard_ids
    world.consumer()
    world.zookeeper.put(first, b"{")
    world.store(world.consumer("two"), second, base=SequenceNumber(10**50))
    rows = by_id(world, exit_code=3)
    assert (rows[first]["state"], rows[second]["state"]) == ("unreadable", "reading")
    assert "retention" in str(rows[second]["problem"])
    _, err = world.call("shards", *SETTINGS, exit_code=3)
    assert first in err


def test_without_lag_no_shard_is_read() -> None:
    world = FakeWorld()
    world.consumer()
    rows = by_id(world, "--no-lag")
    assert {row["lag_millis"] for row in rows.values()} == {None}


def test_a_pipe_gets_plain_columns() -> None:
    world = FakeWorld()
    world.consumer()
    out, _ = world.call("shards", *SETTINGS)
    lines = out.splitlines()
    assert lines[0].split()[:3] == ["shard", "state", "parents"]
    assert [line.split()[:2] for line in lines[1:]] == [[shard_id, "ready"] for shard_id in world.shard_ids]


def test_a_shard_whose_owner_has_paused_says_so_and_what_to_do() -> None:
    world = FakeWorld()
    first, second = world.shard_ids
    consumer = world.consumer()
    world.store(consumer, first)
    consumer.coordinator.show_pause("paused: 97 of the last 100 outcomes are failures")
    rows = by_id(world)
    assert (rows[first]["state"], rows[first]["owner"]) == ("paused", "consumer")
    assert rows[first]["pause"] == "paused: 97 of the last 100 outcomes are failures"
    assert rows[first]["lag_millis"] is not None
    assert (rows[second]["state"], rows[second]["pause"]) == ("ready", None)
    _, err = world.call("shards", *SETTINGS)
    assert "consumer has paused: 97 of the last 100 outcomes are failures; `kinesis-spout resume`" in err


def test_behind_the_last_user_record_of_an_aggregate_the_age_is_that_of_the_next_record() -> None:
    world = FakeWorld(shards=1)
    (shard_id,) = world.shard_ids
    read = world.kinesis.put_aggregated([UserRecord("k", b"one"), UserRecord("k", b"two")])
    world.clock.advance(2)
    world.kinesis.put(b"unread", "k")
    world.clock.advance(3)

    world.store(world.consumer(), shard_id, base=read[1].sequence)

    row = by_id(world)[shard_id]
    assert (row["lag_millis"], row["oldest_unread_millis"]) == (0, 3000)
    assert row["checkpoint"] == str(read[1].sequence)


def test_a_shard_that_stands_still_comes_first_and_says_why() -> None:
    world = FakeWorld()
    first, second = world.shard_ids
    consumer = world.consumer()
    for shard_id in (first, second):
        world.store(consumer, shard_id)
    while not world.kinesis.records(second):
        world.kinesis.put(b"unread", str(world.clock.time()))
        world.clock.advance(1)
    world.clock.advance(40)
    for record in world.kinesis.records(first):  # that one goes on
        world.store(consumer, first, base=record.sequence)
    rows = world.json("shards")["shards"]
    assert [(row["shard_id"], row["state"]) for row in rows] == [(second, "stalled"), (first, "reading")]
    assert rows[0]["reason"].startswith("no progress was stored for 4")
    out, err = world.call("shards", *SETTINGS)
    assert out.splitlines()[1].split()[:2] == [second, "stalled"]
    assert f"{second}: {rows[0]['reason']}" in err


def test_a_member_with_an_address_is_asked_whether_its_shards_move(monkeypatch: pytest.MonkeyPatch) -> None:
    world = FakeWorld()
    first, second = world.shard_ids
    world.store(world.consumer(), second)
    says = LiveShard(shard_id=second, stalled=True, reason="has not moved for 9 s: 1 in flight")
    monkeypatch.setattr(
        sight, "ask_members", lambda _members, _config: {"consumer": LiveStatus(shards=(says,))}
    )
    rows = world.json("shards", "--no-lag")["shards"]
    assert [(row["shard_id"], row["state"]) for row in rows] == [(second, "stalled"), (first, "ready")]
    assert rows[0]["reason"] == says.reason


def test_of_many_shards_that_stand_still_some_are_named_and_the_others_counted() -> None:
    world = FakeWorld(shards=300)
    consumer = world.consumer()
    for shard_id in world.shard_ids:
        world.kinesis.put(b"unread")
        world.store(consumer, shard_id)
    world.clock.advance(40)
    out, err = world.call("shards", *SETTINGS)
    assert out.count("stalled") == 300
    *named, more = err.splitlines()
    assert (len(named), more) == (8, "and 292 more: `kinesis-spout shards --json` has all of them")
    assert all("no progress was stored for 40 s" in line for line in named)
