"""``KeyedRate``: for one key so often, whatever the other keys do."""

import asyncio
import pickle
import random
import threading
import time
from collections import defaultdict
from typing import Any

import pytest

from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.recipes import KeyedRate
from kinesis_spout.testing import ManualClock

pytestmark = pytest.mark.no_second_run


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def test_calls_for_one_key_are_apart_and_those_for_others_do_not_wait(clock: ManualClock) -> None:
    rate = KeyedRate(2, clock=clock.monotonic)
    assert rate.try_acquire("a")
    assert rate.try_acquire("b")
    assert not rate.try_acquire("a")
    assert rate.wait_seconds("a") == pytest.approx(0.5, abs=0.01)
    assert rate.wait_seconds("c") == 0.0
    clock.advance(0.51)
    assert rate.try_acquire("a")
    assert not rate.try_acquire("a")


def test_a_burst_may_come_at_once_and_is_made_up_for(clock: ManualClock) -> None:
    rate = KeyedRate(1, burst=3, clock=clock.monotonic)
    assert [rate.try_acquire("a") for _ in range(4)] == [True, True, True, False]
    clock.advance(1.01)
    assert [rate.try_acquire("a") for _ in range(2)] == [True, False]
    clock.advance(10)
    assert [rate.try_acquire("a") for _ in range(4)] == [True, True, True, False]


@pytest.mark.parametrize(("per_second", "burst"), [(0.5, 1), (3.3, 2), (40, 1), (700, 1)])
def test_whatever_comes_no_span_has_more_calls_for_a_key_than_its_rate_and_the_burst(
    clock: ManualClock, per_second: float, burst: int
) -> None:
    seed = random.randrange(1 << 30)
    rng, rate = random.Random(seed), KeyedRate(per_second, burst=burst, clock=clock.monotonic)
    done: dict[str, list[float]] = defaultdict(list)
    for _ in range(600):
        key = rng.choice("abc")
        if rate.try_acquire(key):
            done[key].append(clock.monotonic())
        clock.advance(rng.expovariate(4 * per_second))
    for times in done.values():
        assert len(times) > 20, f"seed {seed}: nothing starves"
        for first in range(len(times)):
            for last in range(first, len(times)):
                span = times[last] - times[first]
                assert last - first + 1 <= per_second * span + burst + 1e-5, f"seed {seed}"


def test_an_idle_key_leaves_at_once(clock: ManualClock) -> None:
    rate = KeyedRate(10, clock=clock.monotonic)
    for number in range(1_000):
        assert rate.try_acquire(number)
    assert len(rate) == 1_000
    clock.advance(0.05)
    assert rate.try_acquire("late")
    clock.advance(0.06)
    assert len(rate) == 1
    clock.advance(0.1)
    assert len(rate) == 0
    assert not rate._states
    assert not rate._idle_at


def test_when_too_many_keys_are_busy_a_new_one_waits_for_one_of_them(clock: ManualClock) -> None:
    rate = KeyedRate(1, max_keys=2, clock=clock.monotonic)
    assert rate.try_acquire("a")
    clock.advance(0.5)
    assert rate.try_acquire("b")
    assert not rate.try_acquire("c")
    assert rate.wait_seconds("c") == pytest.approx(0.5, abs=0.01)
    clock.advance(0.51)
    assert rate.try_acquire("c")


def test_threads_that_wait_for_one_key_get_it_one_after_the_other() -> None:
    rate, acquired, began = KeyedRate(500), [], time.monotonic()

    def work() -> None:
        for _ in range(5):
            assert rate.acquire("a", timeout=60)
            acquired.append(time.monotonic())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(acquired) == 20
    assert max(acquired) - began >= 18 / 500


def test_who_cannot_get_it_in_time_is_told_at_once() -> None:
    rate = KeyedRate(0.001)
    assert rate.acquire("a", timeout=0)
    assert not rate.acquire("a", timeout=100)
    assert not asyncio.run(rate.acquire_async("a", timeout=100))


def test_tasks_of_an_event_loop_wait_without_holding_it_up() -> None:
    rate = KeyedRate(200)

    async def run() -> list[bool]:
        return await asyncio.gather(*(rate.acquire_async(key, 60) for key in "aaabbb"))

    assert asyncio.run(run()) == [True] * 6


def test_it_can_be_sent_to_a_worker_where_it_has_counted_nothing() -> None:
    rate = KeyedRate(1, burst=2, max_keys=7)
    rate.try_acquire("a")
    travelled = pickle.loads(pickle.dumps(rate))
    assert repr(travelled) == repr(rate) == "KeyedRate(1, burst=2, max_keys=7)"
    assert len(travelled) == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"per_second": 0},
        {"per_second": -1},
        {"per_second": float("nan")},
        {"per_second": float("inf")},
        {"per_second": "1"},
        {"per_second": 1, "burst": 0},
        {"per_second": 1, "burst": 1.5},
        {"per_second": 1, "max_keys": 0},
    ],
)
def test_what_is_no_rate_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfig, match="expected"):
        KeyedRate(**wrong)
