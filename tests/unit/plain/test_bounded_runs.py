"""Runs of the plain-Python door that end by themselves, on a clock that the test holds."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kinesis_spout.model.clock import moment
from kinesis_spout.model.record import Record
from kinesis_spout.plain.stream_tuples import Emitted
from kinesis_spout.testing import (
    InMemoryStream,
    InMemoryZooKeeper,
    ManualClock,
    SteppedSpout,
    in_memory_ports,
)
from shard_state import Checkpoint, ShardPhase

FIRST, SECOND = "shardId-000000000000", "shardId-000000000001"
LONG_SECONDS = 60.0


class Place:
    """A stream, a ZooKeeper, and spouts on them. Mutable."""

    def __init__(self, shards: int = 1) -> None:
        self.clock = ManualClock()
        self.stream = InMemoryStream("orders", shards=shards, clock=self.clock)
        self.zookeeper = InMemoryZooKeeper()
        self.spouts: list[SteppedSpout] = []

    def spout(self, **settings: Any) -> SteppedSpout:
        chosen = {"stream": "orders", "app": "billing", "initial_position": "trim_horizon", **settings}
        ports = in_memory_ports(self.stream, self.zookeeper)
        spout: SteppedSpout = SteppedSpout(ports=ports, scheme="text", retry_jitter=0.0, **chosen).open()
        self.spouts.append(spout)
        return spout

    def put(self, *payloads: str, key: str = "key") -> list[Record]:
        return [self.stream.put(payload.encode(), key) for payload in payloads]

    def run(
        self,
        spout: SteppedSpout,
        do: Callable[[Emitted], object] | None = None,
        seconds: float = LONG_SECONDS,
    ) -> list[Any]:
        """Hand out what there is until the run is done, or for so many seconds; gives the values."""
        values, until = [], self.clock.monotonic() + seconds
        while not spout.is_done and self.clock.monotonic() < until:
            emitted = spout.next_tuple()
            if emitted is None:
                self.clock.advance(0.05)
                continue
            values.append(emitted.values)
            (do or (lambda each: spout.ack(each.message_id)))(emitted)
        return values

    def stored(self, shard_id: str = FIRST) -> Checkpoint:
        return self.zookeeper.decode(shard_id)


@pytest.fixture
def place() -> Iterator[Place]:
    place = Place()
    yield place
    for spout in place.spouts:
        spout.close()


def test_until_latest_hands_out_what_was_there_at_the_start_and_ends_when_that_is_stored(
    place: Place,
) -> None:
    *_, last = place.put("a", "b", "c")
    spout = place.spout(until="latest")
    assert place.run(spout) == ["a", "b", "c"]
    assert spout.is_done
    assert list(spout) == []
    assert place.stored().base == last.sequence
    assert [status.phase for status in spout.shards()] == [ShardPhase.AT_BOUND]


def test_until_latest_ends_although_records_go_on_to_come(place: Place) -> None:
    place.put("old")
    spout, came = place.spout(until="latest"), 0

    def ack(emitted: Emitted) -> None:
        nonlocal came
        came += 1
        place.clock.advance(1.0)
        place.put(f"new {came}")
        assert spout.ack(emitted.message_id)

    values = place.run(spout, ack)
    assert values[:2] == ["old", "new 1"]
    assert spout.is_done
    assert len(values) <= 7, "what arrived 5 s after the start is for another run"


def test_a_time_leaves_out_the_first_record_that_arrived_then_and_what_is_behind_it(place: Place) -> None:
    place.put("a", "b")
    place.clock.advance(10.0)
    until = place.clock.time()
    place.put("c")
    place.clock.jump(-5.0)
    place.put("arrived earlier, and behind")
    place.clock.jump(5.0)
    spout = place.spout(until=until)
    assert place.run(spout) == ["a", "b"]
    assert spout.is_done
    spout.close()
    following = place.spout()
    assert place.run(following, seconds=5.0) == ["c", "arrived earlier, and behind"]


def test_a_time_that_is_yet_to_come_is_waited_for_and_the_clocks_may_differ_by_5_s(place: Place) -> None:
    place.put("a")
    began = place.clock.time()
    spout = place.spout(until=moment(began + 30.0))
    assert place.run(spout, seconds=20.0) == ["a"]
    place.put("b")
    assert place.run(spout) == ["b"]
    assert spout.is_done
    assert began + 35.0 <= place.clock.time() <= began + 37.0


@pytest.mark.parametrize(
    ("keyword", "handed_out"), [("at_sequence_number", ["a"]), ("after_sequence_number", ["a", "b"])]
)
def test_a_sequence_number_ends_its_shard_before_or_after_that_record(
    place: Place, keyword: str, handed_out: list[str]
) -> None:
    _, second, _ = place.put("a", "b", "c")
    spout = place.spout(until=f'{{"{FIRST}": "{keyword} {second.sequence_number}"}}')
    assert place.run(spout) == handed_out
    assert spout.is_done


@pytest.mark.parametrize("keyword", ["at_sequence_number", "after_sequence_number"])
@pytest.mark.parametrize(("number", "handed_out"), [(0, []), (10**56, ["a", "b"])])
def test_a_sequence_number_that_the_shard_does_not_have_is_only_compared(
    place: Place, keyword: str, number: int, handed_out: list[str]
) -> None:
    place.put("a", "b")
    spout = place.spout(until=f'{{"{FIRST}": "{keyword} {number}"}}')
    assert place.run(spout) == handed_out
    assert spout.is_done


def test_after_a_sequence_number_no_further_record_has_to_come(place: Place) -> None:
    *_, last = place.put("a", "b")
    spout = place.spout(until=f'{{"{FIRST}": "after_sequence_number {last.sequence_number}"}}')
    spout.next_tuple()
    values = place.run(spout)
    assert values == ["b"]
    assert not spout.is_done, "the first record is still out"


def test_a_shard_that_was_read_up_to_its_bound_before_has_nothing_for_this_run(place: Place) -> None:
    *_, last = place.put("a", "b")
    until = f'{{"{FIRST}": "after_sequence_number {last.sequence_number}"}}'
    spout = place.spout(until=until)
    assert place.run(spout) == ["a", "b"]
    spout.close()
    place.put("c")
    again = place.spout(until=until)
    assert place.run(again) == []
    assert again.is_done


def test_a_run_waits_for_its_retries_and_for_its_dead_letters(place: Place) -> None:
    place.put("fails", "works")
    spout = place.spout(until="latest", retry_limit=1)

    def do(emitted: Emitted) -> None:
        (spout.fail if emitted.values == "fails" else spout.ack)(emitted.message_id)

    assert place.run(spout, do) == ["fails", "works", "fails"]
    assert spout.is_done
    assert spout.counters.dead_lettered == 1


def test_a_run_that_was_killed_goes_on_where_it_was(place: Place) -> None:
    place.put(*"abcdef")
    until = place.clock.time() + 1.0
    spout = place.spout(until=until)
    for _ in range(3):
        emitted = spout.next_tuple()
        assert emitted is not None
        spout.ack(emitted.message_id)
    place.clock.advance(2.0)
    spout.do_what_is_due()
    spout.crash()
    place.clock.advance(10.0)
    place.put("too late")
    assert place.run(place.spout(until=until)) == [*"def"]


def test_children_are_read_up_to_the_bound_too(place: Place) -> None:
    place.put("parent")
    place.stream.split(FIRST)
    place.put("child")
    place.clock.advance(20.0)
    until = place.clock.time()
    place.put("too late")
    spout = place.spout(until=until)
    assert place.run(spout) == ["parent", "child"]
    assert spout.is_done
    assert place.stored().is_shard_end


def test_children_of_a_shard_that_has_ended_for_this_run_wait_for_another(place: Place) -> None:
    first, *_ = place.put("a", "b")
    place.stream.split(FIRST)
    place.put("child")
    spout = place.spout(until=f'{{"{FIRST}": "after_sequence_number {first.sequence_number}"}}')
    assert place.run(spout) == ["a"]
    assert spout.is_done
    spout.close()
    assert place.run(place.spout(until="latest")) == ["b", "child"]


def test_with_at_most_once_what_is_behind_the_end_is_not_claimed_for_good(place: Place) -> None:
    place.put("a")
    place.clock.advance(10.0)
    until = place.clock.time()
    place.put("b")
    spout = place.spout(until=until, guarantee="at_most_once")
    assert place.run(spout) == ["a"]
    assert spout.is_done
    spout.close()
    assert place.run(place.spout(until="latest", guarantee="at_most_once")) == ["b"]


def test_of_several_members_each_ends_with_its_shards_and_the_last_has_seen_them_all() -> None:
    place = Place(shards=2)
    for number in range(20):
        place.put(f"r{number}", key=f"key-{number}")
    one = place.spout(until="latest")
    other = place.spout(until="latest")
    values: list[Any] = []
    for _ in range(200):
        for spout in (one, other):
            if spout in place.spouts and spout.is_done:
                spout.close()
                place.spouts.remove(spout)
            elif spout in place.spouts:
                values += place.run(spout, seconds=0.1)
    assert not place.spouts
    assert sorted(values) == sorted(f"r{number}" for number in range(20))
