"""The plain-Python door while the handler is at fault, on a clock that the test holds."""

from collections.abc import Callable, Iterator
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from kinesis_spout.plain.stream_tuples import Emitted
from kinesis_spout.testing import (
    InMemoryStream,
    InMemoryZooKeeper,
    ManualClock,
    SteppedSpout,
    in_memory_ports,
)


def look_up(_: Emitted) -> None:
    raise ValueError("no database")


class Place:
    """A stream, a ZooKeeper and a spout on them. Mutable."""

    def __init__(self, **settings: Any) -> None:
        self.clock = ManualClock()
        self.stream = InMemoryStream("orders", shards=2, clock=self.clock)
        self.zookeeper = InMemoryZooKeeper()
        self.settings = {
            "stream": "orders",
            "app": "billing",
            "initial_position": "trim_horizon",
            "retry_limit": 3,
            "retry_jitter": 0.0,
            **settings,
        }
        self.spout = self.new_spout()

    def new_spout(self) -> SteppedSpout:
        self.ports = in_memory_ports(self.stream, self.zookeeper)
        spout: SteppedSpout = SteppedSpout(ports=self.ports, **self.settings).open()
        return spout

    @property
    def letters(self) -> int:
        return len(self.ports.dead_letters.letters)  # type: ignore[attr-defined]

    def put(self, count: int) -> None:
        for number in range(count):
            self.stream.put(f"r{number}".encode(), f"key-{number}")

    def work(self, seconds: float, do: Callable[[Emitted], object]) -> list[Emitted]:
        """Hand out what comes within so many seconds."""
        taken, until = [], self.clock.monotonic() + seconds
        while self.clock.monotonic() <= until:
            emitted = self.spout.next_tuple()
            if emitted is None:
                self.clock.advance(0.05)
                continue
            taken.append(emitted)
            do(emitted)
        return taken

    def fail(self, emitted: Emitted) -> None:
        with pytest.raises(ValueError) as raised:  # noqa: PT011 - of this test's own
            look_up(emitted)
        assert self.spout.fail(emitted.message_id, raised.value)

    def ack(self, emitted: Emitted) -> None:
        assert self.spout.ack(emitted.message_id)


@pytest.fixture
def place() -> Iterator[Place]:
    made = Place()
    yield made
    made.spout.close()


def test_a_handler_that_is_broken_gives_up_nothing_and_all_flows_after_its_mend(place: Place) -> None:
    place.put(1000)
    place.work(500.0, place.fail)
    trouble = place.spout.trouble
    assert trouble is not None
    assert trouble.slowed
    assert place.letters == 0
    place.work(15.0, place.ack)
    assert (place.spout.trouble, place.letters, place.spout.counters.acked) == (None, 0, 1000)


def test_while_it_is_broken_deliveries_become_few_and_every_second_one_is_fresh(place: Place) -> None:
    place.put(1000)
    place.work(200.0, place.fail)
    tried: list[tuple[float, bool]] = []

    def fail(each: Emitted) -> None:
        tried.append((place.clock.monotonic(), each.message_id.endswith(".1")))
        place.fail(each)

    place.work(100.0, fail)
    gaps = [later - earlier for (earlier, _), (later, _) in pairwise(tried)]
    assert min(gaps) >= 9
    assert {fresh for _, fresh in tried[::2]} != {fresh for _, fresh in tried[1::2]}


def test_time_outs_are_failures() -> None:
    place = Place(retry_limit=None, message_timeout_seconds=1.0)
    place.put(200)
    place.work(5.0, lambda _: None)
    assert place.spout.trouble is not None
    assert place.spout.counters.timed_out >= 30
    place.spout.close()


def test_a_handler_that_fails_for_nine_of_ten_records_is_not_slowed_and_gives_up_none(place: Place) -> None:
    random = Random(1)
    place.put(300)
    place.work(400.0, lambda each: place.fail(each) if random.random() < 0.9 else place.ack(each))
    place.work(20.0, place.ack)
    assert (place.letters, place.spout.counters.acked) == (0, 300)


def test_the_handle_lets_deliveries_flow(place: Place) -> None:
    place.put(150)
    place.work(30.0, place.fail)
    assert place.spout.resume()
    assert len(place.work(0.1, place.ack)) >= 50
    assert not place.spout.resume()


def test_an_operator_lets_them_flow_by_zookeeper_and_sees_the_trouble_there(place: Place) -> None:
    place.put(300)
    place.work(30.0, place.fail)
    operator = place.zookeeper.process("operator").coordinator
    (notice,) = operator.pauses().values()
    assert "deliveries slowed: the handler fails for" in notice
    assert "mostly ValueError at" in notice
    operator.resume()
    place.work(20.0, place.ack)
    assert place.spout.trouble is None
    assert operator.pauses() == {}


def test_a_restart_goes_on_slowly_and_counts_no_attempt(place: Place) -> None:
    place.put(150)
    place.work(120.0, place.fail)
    place.spout.crash()
    place.spout = place.new_spout()
    assert len(place.work(5.0, place.fail)) <= 2
    place.work(60.0, place.ack)
    assert (place.letters, place.spout.counters.acked) == (0, 150)


def test_a_close_takes_the_notice_along(place: Place) -> None:
    place.put(300)
    place.work(30.0, place.fail)
    place.spout.close()
    assert place.zookeeper.process("operator").coordinator.pauses() == {}


def test_a_dead_letter_says_where_the_exception_was_raised() -> None:
    place = Place(retry_limit=0)
    place.put(2)
    place.work(0.1, place.fail)
    (letter, _) = place.ports.dead_letters.letters  # type: ignore[attr-defined]
    assert "in look_up" in letter.traceback
    assert letter.traceback.endswith("\nValueError")
    assert list(place.spout.failures.values()) == [2]
    place.spout.close()
