"""``tail`` prints what is on a stream, and what comes."""

import base64
import json
from typing import Any

import pytest

from kinesis_spout.kinesis.aggregated_record import UserRecord, take_apart
from kinesis_spout.model.errors import StreamNotFound
from tests.unit.cli.fake_world import FakeWorld

STREAM = ("--stream", "orders")
BEGINNING = ("--from", "trim_horizon")


def tailed(world: FakeWorld, *arguments: str) -> list[dict[str, Any]]:
    out, _ = world.call("tail", "--json", *arguments, *STREAM)
    return [json.loads(line) for line in out.splitlines()]


def texts(world: FakeWorld, *arguments: str) -> list[str]:
    return [row["data_text"] for row in tailed(world, *arguments)]


def test_records_are_printed_as_lines_and_steer_no_terminal() -> None:
    world = FakeWorld(shards=1)
    world.kinesis.put("größer\x1b[2J".encode(), "k")
    world.kinesis.put(b"\xff", "k")
    out, _ = world.call("tail", *BEGINNING, "-n", "2", *STREAM)
    first, second = out.splitlines()
    assert first.split("  ")[1:] == ["shardId-000000000000", "-", "k", r"größer\x1b[2J"]
    assert first.startswith("2023-11-14T22:13:20.000Z")
    assert second.endswith(r"  \xff")
    assert world.opened == ["stream"], "no application, no ZooKeeper"


def test_json_has_a_line_for_each_record_with_its_data_whole() -> None:
    world = FakeWorld(shards=1)
    record = world.kinesis.put(b"\xff", "k")
    (row,) = tailed(world, *BEGINNING, "-n", "1")
    assert (row["sequence_number"], row["partition_key"]) == (record.sequence_number, "k")
    assert (row["data_text"], row["data_base64"]) == (None, "/w==")


def test_it_ends_after_as_many_records_as_asked() -> None:
    world = FakeWorld()
    for number in range(20):
        world.kinesis.put(str(number).encode(), str(number))
    assert len(texts(world, *BEGINNING, "-n", "7")) == 7


def test_it_begins_with_what_comes_unless_told_otherwise() -> None:
    world = FakeWorld(shards=1)
    world.kinesis.put(b"old", "k")
    world.clock.advance(60)
    lister = world.kinesis.list_shards

    def put_then_list() -> Any:
        world.kinesis.list_shards = lister  # type: ignore[method-assign]
        world.kinesis.put(b"new", "k")
        return lister()

    world.kinesis.list_shards = put_then_list  # type: ignore[method-assign]
    assert texts(world, "-n", "1") == ["new"]
    assert texts(world, "-n", "1", "--from", str(world.clock.time() - 90)) == ["old"]


def test_parents_come_before_their_children() -> None:
    world = FakeWorld(shards=1)
    (parent,) = world.shard_ids
    world.kinesis.put(b"parent", "k")
    first, second = world.kinesis.split(parent)
    world.kinesis.put(b"child", "k")
    world.kinesis.merge(first.shard_id, second.shard_id)
    world.kinesis.put(b"grandchild", "k")
    assert texts(world, *BEGINNING, "-n", "3") == ["parent", "child", "grandchild"]


def test_only_the_chosen_shard_is_read_and_the_end_of_it_is_the_end() -> None:
    world = FakeWorld(shards=1)
    (parent,) = world.shard_ids
    world.kinesis.put(b"parent", "k")
    world.kinesis.split(parent)
    world.kinesis.put(b"child", "k")
    assert texts(world, *BEGINNING, "--shard", parent) == ["parent"]
    _, err = world.call("tail", "--shard", "shardId-9", *STREAM, exit_code=1)
    assert parent in err


def test_what_may_pass_is_told_and_read_again() -> None:
    world = FakeWorld(shards=1)
    world.kinesis.put(b"data", "k")
    world.kinesis.make_unavailable(times=1)
    out, err = world.call("tail", *BEGINNING, "-n", "1", *STREAM)
    assert out.endswith("data\n")
    assert "is tried again" in err


def test_what_does_not_pass_ends_it() -> None:
    world = FakeWorld(shards=1)
    world.kinesis.fail_next(StreamNotFound("gone"))
    world.call("tail", *BEGINNING, "-n", "1", *STREAM, exit_code=3)


@pytest.mark.parametrize("start", ["yesterday", "2999-01-01T00:00:00Z", "2026-01-31T12:00:00"])
def test_a_place_that_is_none_is_refused_before_anything_is_opened(start: str) -> None:
    world = FakeWorld()
    _, err = world.call("tail", "--from", start, *STREAM, exit_code=2)
    assert err.startswith("error: --from: expected")
    assert world.opened == []


def test_user_records_are_printed_one_by_one_and_no_more_than_asked_for() -> None:
    world = FakeWorld(shards=1)
    records = world.kinesis.put_aggregated(UserRecord("k", payload) for payload in (b"one", b"two", b"three"))

    rows = tailed(world, *BEGINNING, "-n", "2")

    assert [(row["data_text"], row["sub_sequence_number"]) for row in rows] == [("one", 0), ("two", 1)]
    assert {row["sequence_number"] for row in rows} == {records[0].sequence_number}


def test_a_line_says_where_in_its_aggregated_record_a_user_record_was() -> None:
    world = FakeWorld(shards=1)
    world.kinesis.put_aggregated([UserRecord("a", b"one"), UserRecord("b", b"two")])
    world.kinesis.put(b"whole", "c")

    out, _ = world.call("tail", *BEGINNING, "-n", "3", *STREAM)

    assert [line.split("  ")[2:] for line in out.splitlines()] == [
        ["0", "a", "one"],
        ["1", "b", "two"],
        ["-", "c", "whole"],
    ]


@pytest.mark.parametrize("switch", [("--deaggregate", "false"), ("--set", "deaggregate=false")])
def test_told_so_it_leaves_aggregated_records_whole(switch: tuple[str, str]) -> None:
    world = FakeWorld(shards=1)
    inside = [UserRecord("k", b"one"), UserRecord("k", b"two", "7")]
    world.kinesis.put_aggregated(inside)

    (whole,) = tailed(world, *BEGINNING, "-n", "1", *switch)

    assert whole["sub_sequence_number"] is None
    assert take_apart(base64.b64decode(whole["data_base64"])) == tuple(inside)
    apart = tailed(world, *BEGINNING, "-n", "2", "--deaggregate", "true")
    assert [(row["sub_sequence_number"], row["explicit_hash_key"]) for row in apart] == [(0, None), (1, "7")]


def test_a_switch_that_is_neither_is_refused_by_its_name() -> None:
    _, err = FakeWorld().call("tail", "--deaggregate", "perhaps", *STREAM, exit_code=2)
    assert "--deaggregate: expected true or false" in err
