"""The sliding window of a rate."""

import random

import pytest

from kinesis_spout.consumer.limits.rate_window import RateWindow


def test_a_window_holds_the_rate_of_a_second_and_no_more() -> None:
    window = RateWindow(10)
    assert (window.limit, window.seconds, window.free(5.0)) == (10, 1.0, 10)
    window.note(7, 5.0)
    assert window.free(5.9) == 3
    window.note(3, 5.9)
    assert window.free(5.99) == 0
    assert window.free(6.01) == 7
    assert window.free(6.95) == 10


@pytest.mark.parametrize(
    ("per_second", "limit", "seconds"),
    [(0.1, 1, 10.0), (2.5, 3, 1.2), (1, 1, 1.0), (1_000_000, 1_000_000, 1.0)],
)
def test_a_rate_that_is_no_whole_number_has_a_window_of_another_length(
    per_second: float, limit: int, seconds: float
) -> None:
    window = RateWindow(per_second)
    assert window.limit == limit
    assert window.seconds == pytest.approx(seconds, abs=0.001)


def test_it_says_when_so_much_is_free() -> None:
    window = RateWindow(4)
    window.note(2, 1.0)
    window.note(2, 1.5)
    assert window.free_at(1, 1.6) == pytest.approx(2.0, abs=0.002)
    assert window.free_at(3, 1.6) == pytest.approx(2.5, abs=0.002)
    assert window.free_at(2, 2.1) == 2.1
    assert window.free(window.free_at(3, 1.6)) >= 3


def test_what_was_done_counts_also_where_the_rate_has_just_become_less() -> None:
    window = RateWindow(10)
    window.note(6, 1.0)
    window.change(5)
    assert window.free(1.5) == 0
    window.note(4, 1.6)
    assert window.free(1.7) == 0
    assert window.free_at(1, 1.7) > 1.7
    assert window.free(2.1) == 1, "the four that found no room are counted now"
    assert window.free(3.2) == 5


@pytest.mark.parametrize("per_second", [0.3, 1, 7.7, 50])
def test_whatever_comes_no_span_has_more_than_its_rate_and_one_window(per_second: float) -> None:
    seed = random.randrange(1 << 30)
    rng, window = random.Random(seed), RateWindow(per_second)
    now, done = 0.0, []
    while now < 40 / per_second + 20:
        count = min(window.free(now), rng.randrange(1, 9))
        window.note(count, now)
        done.extend([now] * count)
        now += rng.expovariate(2 * per_second)
    for first in range(len(done)):
        for last in range(first, len(done)):
            span = done[last] - done[first]
            assert last - first + 1 <= per_second * span + window.limit + 1e-9, f"seed {seed}"
            if span < window.seconds - 0.001:
                assert last - first + 1 <= window.limit, f"seed {seed}"
    assert len(done) > 20, f"seed {seed}: nothing starves"
