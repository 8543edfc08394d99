"""A reading is shared by all who look, made only when somebody does, and less often where it is slow."""

import threading

import pytest

from kinesis_spout.model.errors import StoreUnavailable
from kinesis_spout.operations.errors import NotReadYet
from kinesis_spout.operations.watch.refreshed import Refreshed


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_all_who_look_share_a_reading_until_it_is_old() -> None:
    clock, read = Clock(), iter(range(100))
    refreshed = Refreshed(lambda: next(read), 1.0, monotonic=clock)
    assert [refreshed.ask(60).get() for _ in range(10)] == [0] * 10
    clock.now += 0.9
    assert refreshed.ask(60).get() == 0
    clock.now += 0.2
    assert refreshed.ask(60).get() == 1


def test_browsers_that_look_at_the_same_time_cause_one_reading() -> None:
    go, count = threading.Event(), 0

    def read() -> int:
        nonlocal count
        go.wait(60)
        count += 1
        return count

    refreshed = Refreshed(read, 60.0)
    got: list[int] = []
    threads = [threading.Thread(target=lambda: got.append(refreshed.ask(60).get())) for _ in range(10)]
    for thread in threads:
        thread.start()
    go.set()
    for thread in threads:
        thread.join(60)
    assert got == [1] * 10


def test_who_has_no_patience_gets_what_there_is() -> None:
    go, clock = threading.Event(), Clock()
    values = iter(("old", "new"))

    def read() -> str:
        value = next(values)
        if value == "new":
            go.wait(60)
        return value

    refreshed = Refreshed(read, 1.0, monotonic=clock)
    assert refreshed.ask(60).get() == "old"
    clock.now += 2
    assert refreshed.ask(0.0).get() == "old"
    assert refreshed.age() == 2
    go.set()
    assert refreshed.ask(60).get() == "new"


def test_a_failure_is_raised_and_the_last_value_is_kept_beside_it() -> None:
    clock, fails = Clock(), False

    def read() -> str:
        if fails:
            raise StoreUnavailable("away")
        return "value"

    refreshed = Refreshed(read, 1.0, monotonic=clock)
    refreshed.ask(60)
    fails = True
    clock.now += 2
    reading = refreshed.ask(60)
    assert reading.value == "value"
    with pytest.raises(StoreUnavailable, match="away"):
        reading.get()


def test_a_bug_is_raised_where_it_was_asked_for() -> None:
    def read() -> None:
        raise ZeroDivisionError

    refreshed = Refreshed(read, 1.0)
    with pytest.raises(ZeroDivisionError):
        refreshed.ask(60)


def test_a_reading_that_costs_much_is_made_less_often() -> None:
    clock, cpu, count = Clock(), Clock(), 0

    def read() -> int:
        nonlocal count
        count += 1
        cpu.now += 0.2
        return count

    refreshed = Refreshed(read, 1.0, monotonic=clock, cpu_seconds=cpu)
    assert refreshed.ask(60).get() == 1
    clock.now += 1.9
    assert refreshed.ask(60).get() == 1
    clock.now += 0.2
    assert refreshed.ask(60).get() == 2


def test_a_reading_that_waited_long_is_made_as_often_as_others() -> None:
    clock, count = Clock(), 0

    def read() -> int:
        nonlocal count
        count += 1
        clock.now += 5.0
        return count

    refreshed = Refreshed(read, 1.0, monotonic=clock, cpu_seconds=lambda: 7.0)
    assert refreshed.ask(60).get() == 1
    assert refreshed.ask(60).get() == 2


def test_who_looks_before_the_first_reading_has_ended_is_told_so() -> None:
    go = threading.Event()

    def read() -> str:
        go.wait(60)
        return "first"

    refreshed = Refreshed(read, 1.0)
    with pytest.raises(NotReadYet, match="look again in a moment"):
        refreshed.ask(0.0).get()
    go.set()
    assert refreshed.ask(60).get() == "first"


def test_what_was_changed_is_read_anew() -> None:
    read = iter(range(100))
    refreshed = Refreshed(lambda: next(read), 60.0)
    refreshed.ask(60)
    refreshed.expire()
    assert refreshed.ask(60).get() == 1


def test_what_was_changed_during_a_reading_is_read_again() -> None:
    go, begun = threading.Event(), threading.Event()
    values = iter(("before", "after"))

    def read() -> str:
        value = next(values)
        begun.set()
        go.wait(60)
        return value

    refreshed = Refreshed(read, 60.0)
    refreshed.ask(0.0)
    assert begun.wait(60)
    refreshed.expire()
    go.set()
    assert refreshed.ask(60).get() == "after"


def test_who_can_spare_some_time_gets_an_older_reading_unless_something_was_changed() -> None:
    clock, read = Clock(), iter(range(100))
    refreshed = Refreshed(lambda: next(read), 1.0, monotonic=clock)
    assert refreshed.ask(60, 50.0).get() == 0, "the first does not wait"
    clock.now += 50.0
    assert refreshed.ask(60, 50.0).get() == 0
    clock.now += 2.0
    assert refreshed.ask(60, 50.0).get() == 1
    refreshed.expire()
    assert refreshed.ask(60, 50.0).get() == 2
