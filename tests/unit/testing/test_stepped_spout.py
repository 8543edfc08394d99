"""The plain-Python door on the public fakes, where nothing happens but by the clock of the test."""

from collections.abc import Callable
from math import inf

import pytest

from kinesis_spout.model.errors import AccessDenied, DeadLetterError, SpoutClosed
from kinesis_spout.testing import (
    SteppedSpout,
)
from tests.support import threads
from tests.support.consumer.world import SteppedWorld

pytestmark = pytest.mark.no_second_run

FIRST = "shardId-000000000000"


@pytest.fixture
def world() -> SteppedWorld:
    return SteppedWorld(scheme="text", retry_jitter=0.0)


@pytest.fixture(autouse=True)
def _without_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    threads.forbid_starts(monkeypatch)


@pytest.mark.parametrize("end", [SteppedSpout.close, SteppedSpout.crash], ids=["close", "crash"])
def test_a_restart_over_a_split_gives_every_record_of_the_children_once(
    world: SteppedWorld, end: Callable[[SteppedSpout], None]
) -> None:
    world.put("before 0", "before 1")
    first = world.spout()
    assert world.handles(first, seconds=2.0) == ["before 0", "before 1"]
    world.stream.split(FIRST)
    world.put("after 0", "after 1", "after 2")
    end(first)
    second = world.spout()
    assert sorted(world.handles(second, seconds=5.0)) == ["after 0", "after 1", "after 2"]
    second.close()


def test_what_was_acked_and_not_committed_comes_again_after_a_crash(world: SteppedWorld) -> None:
    world.put("one")
    first = world.spout()
    assert world.handles(first, seconds=0.1) == ["one"]  # commits are a second apart
    first.crash()
    second = world.spout()
    assert world.handles(second, seconds=2.0) == ["one"]
    second.crash()
    assert world.handles(world.spout(), seconds=2.0) == []


def test_a_spout_that_crashed_leaves_its_shards_to_the_next_one_at_once(world: SteppedWorld) -> None:
    first = world.spout()
    first.crash()
    with pytest.raises(SpoutClosed):
        first.next_tuple()
    assert world.zookeeper.owners == {}
    second = world.spout()
    world.put("one")
    assert world.handles(second, seconds=1.0) == ["one"]


def test_a_commit_is_made_when_the_clock_says_so_and_not_before(world: SteppedWorld) -> None:
    def checkpoint() -> str:
        return str(world.zookeeper.decode(FIRST).base)

    world.put("one")
    spout = world.spout()
    assert world.handles(spout, seconds=0.05) == ["one"]
    assert checkpoint() == "SHARD_START"
    world.clock.advance(1.0)
    spout.do_what_is_due()
    assert checkpoint() == world.stream.records(FIRST)[0].sequence_number


def test_a_sink_that_fails_is_tried_again_on_the_clock(world: SteppedWorld) -> None:
    world.dead_letters.fail_writes(2)
    world.put("one")
    spout = world.spout()
    emitted = spout.next_tuple()
    assert emitted is not None
    for _ in range(4):
        assert spout.fail(emitted.message_id, "no use")
        world.clock.advance(10.0)
        emitted = spout.next_tuple() or emitted
    assert isinstance(spout.last_error, DeadLetterError)
    assert not spout.all_done
    world.handles(spout, seconds=30.0)
    assert [letter.error for letter in world.dead_letters.letters] == ["no use"]
    assert spout.all_done


def test_the_retry_of_a_record_that_has_just_failed_is_due(world: SteppedWorld) -> None:
    world.put("one", "two")
    spout = world.spout()
    first, second = spout.next_tuple(), spout.next_tuple()
    assert first is not None
    assert second is not None
    assert spout.due_at == inf
    assert spout.ack(second.message_id)
    assert spout.fail(first.message_id)
    assert spout.due_at == world.clock.monotonic() + 1.0


def test_an_error_that_does_not_pass_is_raised_by_the_next_tuple(world: SteppedWorld) -> None:
    spout = world.spout()
    world.stream.fail_next(AccessDenied("not allowed"))
    with pytest.raises(AccessDenied):
        world.handles(spout, seconds=1.0)


def test_the_last_letters_are_written_when_it_is_closed(world: SteppedWorld) -> None:
    world.put("bad")
    spout = world.spout(retry_limit=0)
    world.clock.advance(1.0)
    spout.do_what_is_due()
    emitted = spout.next_tuple()
    assert emitted is not None
    spout.fail(emitted.message_id, "it is bad")
    assert not world.dead_letters.letters
    spout.close()
    assert [letter.data for letter in world.dead_letters.letters] == [b"bad"]
