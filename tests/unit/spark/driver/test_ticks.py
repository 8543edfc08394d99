"""The ticks that polls keep to."""

import pytest

from kinesis_spout.spark.driver.tip_poller import aligned, tick_seconds


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
