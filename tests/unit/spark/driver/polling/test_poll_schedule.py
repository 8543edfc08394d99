"""Whose shard is polled when."""

import pytest

from kinesis_spout.spark.driver.polling.poll_schedule import PollSchedule, aligned, tick_seconds


def test_polls_that_may_begin_at_different_times_begin_at_the_same_tick() -> None:
    tick = tick_seconds(0.2)
    started = [100.0, 100.003, 100.011, 100.019]

    assert len({aligned(each + 0.18, tick) for each in started}) == 1


def test_rarer_polls_keep_to_ticks_of_more_frequent_ones() -> None:
    tick = tick_seconds(0.2)
    ticks = {aligned(100.0 + number * tick, tick) for number in range(20)}

    for doublings in (1, 2, 3):
        rare = aligned(100.0, tick * 2**doublings)
        assert any(rare == pytest.approx(each) for each in ticks)


@pytest.mark.parametrize("late", [0.0, 0.005, 0.019, 0.035])
def test_a_poll_that_begins_a_little_late_does_not_cost_its_shard_a_tick(late: float) -> None:
    tick = tick_seconds(0.2)
    began = aligned(100.0, tick)

    ready_at = began + late + 0.2
    assert aligned(ready_at - 0.02, tick) == pytest.approx(began + tick)


def test_nobody_is_polled_before_the_time() -> None:
    schedule = PollSchedule()
    schedule.put("a", 2.0, 0.2)
    schedule.put("b", 1.0, 0.2)

    assert schedule.next_at() == 1.0
    assert schedule.take(0.9) is None
    assert schedule.take(1.5) == "b"
    assert schedule.take(1.5) is None
    assert schedule.next_at() == 2.0


def test_a_busy_shard_does_not_wait_for_the_idle_ones_that_are_due_with_it() -> None:
    """Invariant 15."""
    schedule = PollSchedule()
    for number in range(1000):
        schedule.put(f"idle-{number}", 1.0, 0.8)
    schedule.put("busy", 1.2, 0.2)

    assert schedule.take(1.1) == "idle-0"
    assert schedule.take(1.2) == "busy"


def test_busy_shards_do_not_starve_an_idle_one() -> None:
    schedule = PollSchedule()
    schedule.put("idle", 1.0, 0.8)
    taken = []
    for number in range(10):
        now = 1.0 + number * 0.2
        schedule.put("busy", now, 0.2)
        taken.append(schedule.take(now))

    assert taken.count("idle") == 1


def test_the_last_word_about_a_shard_holds() -> None:
    schedule = PollSchedule()
    schedule.put("a", 1.0, 0.2)
    schedule.put("a", 5.0, 0.2)
    schedule.put("b", 5.0, 0.2)
    schedule.put("b", 1.0, 0.2)
    schedule.put("c", 0.5, 0.2)
    schedule.remove("c")

    assert schedule.next_at() == 1.0
    assert schedule.take(2.0) == "b"
    assert schedule.take(2.0) is None
    assert schedule.take(5.0) == "a"
    assert schedule.next_at() is None


def test_a_shard_that_is_due_and_was_put_off_is_due_no_more() -> None:
    schedule = PollSchedule()
    for shard_id in ("a", "b"):
        schedule.put(shard_id, 1.0, 0.2)
    assert schedule.take(1.0) == "a"
    schedule.put("b", 3.0, 0.2)

    assert schedule.take(2.0) is None
    assert schedule.next_at() == 3.0
