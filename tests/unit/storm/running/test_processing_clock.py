"""Processing time goes on steadily, whatever is done to the wall clock."""

import logging

import pytest

from kinesis_spout.storm.running.clocks import ProcessingClock
from kinesis_spout.testing import ManualClock

EPOCH = 1_000.0


class World:
    """A machine's clocks, and processing time by them. Mutable."""

    def __init__(self) -> None:
        self.machine = ManualClock(EPOCH)
        self.clock = ProcessingClock(self.machine.monotonic, self.machine.time)

    def after(self, seconds: float) -> float:
        """Give the time after so many seconds, in which somebody looks ten times."""
        for _ in range(9):
            self.machine.advance(seconds / 10)
            self.clock.now()
        self.machine.advance(seconds / 10)
        return self.clock.now() - EPOCH


def test_it_is_the_wall_clock_while_nobody_sets_that() -> None:
    world = World()

    assert world.after(5) == pytest.approx(5)


def test_a_wall_clock_that_is_set_back_does_not_set_it_back_and_it_waits_for_it_at_half_speed() -> None:
    world = World()
    world.after(10)
    world.machine.jump(-4)

    assert world.clock.now() == EPOCH + 10
    assert world.after(4) == pytest.approx(12)
    assert world.after(4) == pytest.approx(14)
    assert world.after(4) == pytest.approx(18), "both agree"


def test_it_catches_up_with_a_wall_clock_that_is_set_ahead_at_twice_its_speed() -> None:
    world = World()
    world.machine.jump(4)

    assert world.clock.now() == EPOCH
    assert world.after(3) == pytest.approx(6)
    assert world.after(3) == pytest.approx(10)
    assert world.after(3) == pytest.approx(13), "both agree"


@pytest.mark.parametrize("seconds", [3_600, -3_600])
def test_a_wall_clock_that_is_wrong_for_a_moment_moves_it_by_no_more_than_that(seconds: float) -> None:
    world = World()
    world.machine.jump(seconds)
    world.after(0.2)
    world.machine.jump(-seconds)

    assert world.after(1) == pytest.approx(1.2, abs=0.2)


@pytest.mark.parametrize("seconds", [0.15, -0.15, 3_600.0, -3_600.0])
def test_a_jump_is_told_once(caplog: pytest.LogCaptureFixture, seconds: float) -> None:
    world = World()
    with caplog.at_level(logging.WARNING):
        world.machine.jump(seconds)
        world.after(60)

    [told] = caplog.messages
    assert told.startswith(f"the wall clock was set by {seconds:+.3f} s")


def test_a_clock_that_is_slewed_is_told_of_not_at_all(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    for _ in range(100):
        world.machine.jump(0.05)
        world.after(1)

    assert caplog.messages == []


def test_it_begins_where_it_was_when_the_state_was_stored_also_on_a_machine_that_is_behind(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    world.clock.not_before(EPOCH + 100)

    assert world.clock.now() == EPOCH + 100
    assert world.after(100) == pytest.approx(150)
    assert world.after(200) == pytest.approx(300), "both agree"
    assert "100.000 s ahead of this machine's clock" in caplog.text


def test_one_that_nobody_has_asked_for_days_takes_a_new_state_for_one_of_now(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As that of a consumer which stood by."""
    world = World()
    world.machine.advance(300_000)
    world.clock.not_before(EPOCH + 299_999)

    assert world.after(1) == pytest.approx(300_001)
    assert caplog.messages == []


def test_a_state_of_the_past_does_not_set_it_back() -> None:
    world = World()
    world.clock.not_before(EPOCH - 100)

    assert world.after(1) == pytest.approx(1)
