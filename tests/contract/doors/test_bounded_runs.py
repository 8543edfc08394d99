"""Runs that end by themselves."""

from collections.abc import Callable

import pytest

from kinesis_spout.model.clock import moment
from shard_state import ShardPhase
from tests.support.consumer.doors import FIRST, DoorWorld


def after(number: object) -> str:
    return f'{{"{FIRST}": "after_sequence_number {number}"}}'


def test_until_latest_hands_out_what_was_there_at_the_start_and_ends_when_that_is_stored(
    world: DoorWorld,
) -> None:
    *_, last = world.put("a", "b", "c")
    reader = world.start(until="latest")
    assert world.run(reader) == ["a", "b", "c"]
    assert reader.is_done
    assert world.run(reader) == []
    assert world.stored().base == last.sequence
    assert [status.phase for status in reader.handle.shards()] == [ShardPhase.AT_BOUND]


def test_until_latest_ends_although_records_go_on_to_come(world: DoorWorld) -> None:
    world.put("old")
    reader, came = world.start(until="latest"), 0

    def more_comes(_: str) -> None:
        nonlocal came
        came += 1
        world.clock.advance(1.0)
        world.put(f"new {came}")

    world.meanwhile = more_comes
    values = world.run(reader)
    assert values[:2] == ["old", "new 1"]
    assert reader.is_done
    assert len(values) <= 7, "what arrived 5 s after the start is for another run"


def test_a_time_leaves_out_the_first_record_that_arrived_then_and_what_is_behind_it(world: DoorWorld) -> None:
    world.put("a", "b")
    world.clock.advance(10.0)
    until = world.clock.time()
    world.put("c")
    world.clock.jump(-5.0)
    world.put("arrived earlier, and behind")
    world.clock.jump(5.0)
    reader = world.start(until=until)
    assert world.run(reader) == ["a", "b"]
    assert reader.is_done
    reader.close()
    assert world.run(world.start(), seconds=5.0) == ["c", "arrived earlier, and behind"]


def test_a_time_that_is_yet_to_come_is_waited_for_and_the_clocks_may_differ_by_5_s(world: DoorWorld) -> None:
    world.put("a")
    began = world.clock.time()
    reader = world.start(until=moment(began + 30.0))
    assert world.run(reader, seconds=20.0) == ["a"]
    world.put("b")
    assert world.run(reader) == ["b"]
    assert reader.is_done
    assert began + 35.0 <= world.clock.time() <= began + 40.0


@pytest.mark.parametrize(
    ("keyword", "handled"), [("at_sequence_number", ["a"]), ("after_sequence_number", ["a", "b"])]
)
def test_a_sequence_number_ends_its_shard_before_or_after_that_record(
    world: DoorWorld, keyword: str, handled: list[str]
) -> None:
    _, second, _ = world.put("a", "b", "c")
    reader = world.start(until=f'{{"{FIRST}": "{keyword} {second.sequence_number}"}}')
    assert world.run(reader) == handled
    assert reader.is_done


@pytest.mark.parametrize("keyword", ["at_sequence_number", "after_sequence_number"])
@pytest.mark.parametrize(("number", "handled"), [(0, []), (10**56, ["a", "b"])])
def test_a_sequence_number_that_the_shard_does_not_have_is_only_compared(
    world: DoorWorld, keyword: str, number: int, handled: list[str]
) -> None:
    world.put("a", "b")
    reader = world.start(until=f'{{"{FIRST}": "{keyword} {number}"}}')
    assert world.run(reader) == handled
    assert reader.is_done


def test_a_shard_that_was_read_up_to_its_bound_before_has_nothing_for_this_run(world: DoorWorld) -> None:
    *_, last = world.put("a", "b")
    until = after(last.sequence_number)
    reader = world.start(until=until)
    assert world.run(reader) == ["a", "b"]
    reader.close()
    world.put("c")
    again = world.start(until=until)
    assert world.run(again) == []
    assert again.is_done


def test_a_run_waits_for_its_retries_and_for_its_dead_letters(world: DoorWorld) -> None:
    world.put("fails", "works")
    world.outcomes["fails"] = [ValueError("always")] * 9
    reader = world.start(until="latest", retry_limit=1)
    assert world.run(reader) == ["fails", "works", "fails"]
    assert reader.is_done
    assert reader.handle.counters.dead_lettered == 1


def test_a_run_that_was_killed_goes_on_where_it_was(world: DoorWorld) -> None:
    world.put(*"abc")
    until = world.clock.time() + 1.0
    reader = world.start(until=until)
    assert world.run(reader, seconds=0.5) == [*"abc"]
    world.put(*"def")
    world.clock.advance(2.0)
    world.run(reader, seconds=0.1)
    reader.crash()
    world.clock.advance(10.0)
    world.put("too late")
    world.run(world.start(until=until))
    payloads = [payload for payload, _ in world.handled]
    assert [payload for payload in payloads if payload in "abc"] == [*"abc"], "they were stored"
    assert set(payloads) == {*"abcdef"}


def test_children_are_read_up_to_the_bound_too(world: DoorWorld) -> None:
    world.put("parent")
    world.stream.split(FIRST)
    world.put("child")
    world.clock.advance(20.0)
    until = world.clock.time()
    world.put("too late")
    reader = world.start(until=until)
    assert world.run(reader) == ["parent", "child"]
    assert reader.is_done
    assert world.stored().is_shard_end


def test_children_of_a_shard_that_has_ended_for_this_run_wait_for_another(world: DoorWorld) -> None:
    first, *_ = world.put("a", "b")
    world.stream.split(FIRST)
    world.put("child")
    reader = world.start(until=after(first.sequence_number))
    assert world.run(reader) == ["a"]
    assert reader.is_done
    reader.close()
    assert world.run(world.start(until="latest")) == ["b", "child"]


def test_with_at_most_once_what_is_behind_the_end_is_not_claimed_for_good(world: DoorWorld) -> None:
    world.put("a")
    world.clock.advance(10.0)
    until = world.clock.time()
    world.put("b")
    reader = world.start(until=until, guarantee="at_most_once")
    assert world.run(reader) == ["a"]
    assert reader.is_done
    reader.close()
    assert world.run(world.start(until="latest", guarantee="at_most_once")) == ["b"]


def test_of_several_members_each_ends_with_its_shards_and_the_last_has_seen_them_all(
    doors: Callable[..., DoorWorld],
) -> None:
    world = doors(shards=2)
    first, second = world.put_in_both()
    running = [world.start(until="latest"), world.start(until="latest")]
    for _ in range(200):
        for reader in list(running):
            world.run(reader, seconds=0.1)
            if reader.is_done:
                reader.close()
                running.remove(reader)
    assert not running
    assert sorted(payload for payload, _ in world.handled) == sorted(first | second)
