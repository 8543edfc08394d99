"""The plain-Python door while practically everything fails, on a clock that the test holds."""

from collections.abc import Callable, Iterator
from itertools import pairwise
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
            "retry_limit": 0,
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


def test_a_handler_that_is_broken_from_the_start_gives_up_fewer_than_fifty_records(place: Place) -> None:
    place.put(1000)
    place.work(600.0, place.fail)
    assert place.spout.breaker_pause is not None
    assert place.letters == 49


def test_with_retries_no_record_is_given_up() -> None:
    place = Place(retry_limit=3)
    place.put(1000)
    place.work(600.0, place.fail)
    assert place.letters == 0
    place.work(120.0, place.ack)
    assert place.spout.breaker_pause is None
    assert place.letters == 0
    assert place.spout.counters.acked == 1000
    place.spout.close()


def test_probes_come_one_by_one_at_growing_intervals_every_second_one_a_fresh_record(place: Place) -> None:
    place.put(1000)
    place.work(0.5, place.fail)
    assert place.spout.breaker_pause is not None
    tried: list[tuple[float, bool]] = []
    started = place.clock.monotonic()

    def fail(emitted: Emitted) -> None:
        tried.append((place.clock.monotonic() - started, emitted.message_id.endswith(".1")))
        place.fail(emitted)

    place.work(130.0, fail)
    gaps = [later - earlier for (earlier, _), (later, _) in pairwise(tried)]
    assert gaps == pytest.approx([2, 4, 8, 15, 15, 15, 15, 15, 15, 15], abs=0.2)
    assert [fresh for _, fresh in tried] == [False, True] * 5 + [False]


def test_time_outs_are_failures() -> None:
    place = Place(retry_limit=None, message_timeout_seconds=1.0)
    place.put(200)
    place.work(5.0, lambda _: None)
    assert place.spout.breaker_pause is not None
    assert place.spout.counters.timed_out >= 100
    place.spout.close()


def test_the_ack_of_a_probe_ends_the_pause(place: Place) -> None:
    place.put(300)
    place.work(0.5, place.fail)
    place.work(30.0, place.ack)
    assert place.spout.breaker_pause is None
    assert place.spout.counters.acked == 300 - 49


def test_the_handle_ends_the_pause(place: Place) -> None:
    place.put(150)
    place.work(0.5, place.fail)
    assert place.spout.resume()
    assert place.spout.breaker_pause is None
    assert len(place.work(0.1, place.ack)) >= 50
    assert not place.spout.resume()


def test_an_operator_ends_the_pause_by_zookeeper_and_sees_it_there(place: Place) -> None:
    place.put(300)
    place.work(1.0, place.fail)
    operator = place.zookeeper.process("operator").coordinator
    (notice,) = operator.pauses().values()
    assert "50 of the last 50 outcomes are failures" in notice
    assert "mostly ValueError at" in notice
    operator.resume()
    place.work(1.0, place.ack)
    assert place.spout.breaker_pause is None
    assert operator.pauses() == {}


def test_commits_go_on_while_it_pauses_and_a_restart_counts_no_attempt_of_the_pause() -> None:
    place = Place(retry_limit=1)
    place.put(150)
    place.work(0.01, place.fail)
    assert place.spout.breaker_pause is not None
    place.work(100.0, place.fail)
    place.spout.crash()
    place.spout = place.new_spout()
    taken = place.work(0.2, place.ack)
    assert len(taken) == 150
    # Nor of the failures that led to it.
    assert {emitted.message_id.rpartition(".")[2] for emitted in taken} == {"1"}
    place.spout.close()


def test_a_close_while_it_pauses_takes_the_notice_along(place: Place) -> None:
    place.put(300)
    place.work(1.0, place.fail)
    place.spout.close()
    assert place.zookeeper.process("operator").coordinator.pauses() == {}


def test_a_dead_letter_says_where_the_exception_was_raised(place: Place) -> None:
    place.put(2)
    place.work(0.1, place.fail)
    (letter, _) = place.ports.dead_letters.letters  # type: ignore[attr-defined]
    assert "in look_up" in letter.traceback
    assert letter.traceback.endswith("\nValueError")
    assert list(place.spout.failures.values()) == [2]
