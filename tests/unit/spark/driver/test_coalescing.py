"""A query that coalesces, from the records on the stream to what is counted, retried, dead-lettered and stored."""

from collections.abc import Iterator

import pytest

from kinesis_spout.model.errors import HandlerKilledWorker
from kinesis_spout.model.handler import Reject
from kinesis_spout.model.record import Record
from kinesis_spout.spark.tasks.coalescing import CoalescingKey
from tests.support.waiting import wait_until
from tests.unit.spark.driver.world import Diary, EngineWorld, KillsWorker


@pytest.fixture
def world() -> Iterator[EngineWorld]:
    made = EngineWorld()
    yield made
    made.close()


def letter(record: Record) -> str:
    """The key of "a1" is "a"."""
    return record.data.decode()[0]


def key(order: str = "unordered") -> CoalescingKey | None:
    return CoalescingKey.of(letter, order)


def test_the_newest_of_each_key_is_handled_and_the_others_are_counted_and_stored(world: EngineWorld) -> None:
    *_, last = world.put("a1", "b1", "a2", "a3", "b2", "c1")
    diary = Diary()
    running = world.start(diary, coalescing=key())
    world.until_stored(last)

    assert diary.payloads == ["a3", "b2", "c1"]
    counters = running.query.counters
    assert (counters.delivered, counters.acked, counters.coalesced, counters.finished) == (3, 3, 3, 6)
    wait_until(lambda: running.query.lastProgress is not None, "there is progress")
    progress = running.query.lastProgress
    assert progress is not None
    assert progress["totals"]["coalesced"] == 3


def test_records_wait_for_the_retry_of_their_newest_and_are_coalesced_with_what_came_meanwhile(
    world: EngineWorld,
) -> None:
    world.put("a1", "b1", "a2")
    diary = Diary(a2=[ValueError("no")])
    running = world.start(diary, coalescing=key(), retry_backoff_seconds=0.3)
    diary.until({"a2"})
    *_, last = world.put("b2", "a3")
    world.until_stored(last)

    assert diary.attempts("a1") == []
    assert diary.attempts("a2") == [1]
    assert diary.payloads[-1] == "a3"
    assert (running.query.counters.retried, running.query.counters.coalesced) == (1, 2)


def test_a_newest_record_that_is_given_up_gives_way_to_the_next_newest(world: EngineWorld) -> None:
    *_, last = world.put("a1", "a2", "a3")
    diary = Diary(a3=[Reject("no")])
    running = world.start(diary, coalescing=key())
    world.until_stored(last)

    assert diary.payloads == ["a3", "a2"]
    assert [each.data for each in world.dead_letters.read()] == [b"a3"]
    assert running.query.counters.coalesced == 1


@pytest.mark.parametrize("blind", [None, HandlerKilledWorker])
def test_nothing_is_lost_when_the_newest_kills_its_worker(
    world: EngineWorld, blind: type[HandlerKilledWorker] | None
) -> None:
    *_, last = world.put("a1", "b1", "a2", "b2", "a3", "c1")
    diary = Diary(a3=[KillsWorker() for _ in range(30)])
    world.start(diary, coalescing=key(), blind=blind, retry_limit=1)
    world.until_stored(last)

    assert [each.data for each in world.dead_letters.read()] == [b"a3"]
    handled = [payload for payload in diary.payloads if payload != "a3"]
    newest = {payload[0]: payload for payload in handled}
    assert newest == {"a": "a2", "b": "b2", "c": "c1"}


def test_where_the_shard_waits_the_newest_of_each_key_is_handled_in_order(world: EngineWorld) -> None:
    *_, last = world.put("a1", "b1", "a2", "b2", "c1")
    diary = Diary(a2=[ValueError("no")])
    world.start(diary, coalescing=key("shard"), order="shard")
    world.until_stored(last)

    assert diary.payloads[-2:] == ["b2", "c1"]
    assert diary.payloads.index("b2") > max(at for at, each in enumerate(diary.payloads) if each == "a2")
