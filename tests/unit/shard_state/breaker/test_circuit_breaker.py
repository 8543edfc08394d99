"""The rule that stops giving records up when practically every one fails."""

from collections import deque
from dataclasses import replace
from itertools import product
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shard_state import BreakerEvent, BreakerRule, CircuitBreaker
from shard_state.breaker.circuit_breaker import TRANSITIONS, BreakerState

STEADY = replace(BreakerRule().probes, jitter=0.0)


def a_breaker(**rule: Any) -> CircuitBreaker:
    return CircuitBreaker(BreakerRule(**{"probes": STEADY, **rule}), lambda: 0.0)


def note(breaker: CircuitBreaker, outcomes: int, failed: int, now: float = 0.0) -> None:
    breaker.note(outcomes=outcomes, failed=failed, now=now)


def mostly_failing(breaker: CircuitBreaker, outcomes: int) -> None:
    """Nine of ten fail, and no long row is among them."""
    for number in range(outcomes):
        note(breaker, 1, int(number % 10 != 0))


def opened(now: float = 0.0) -> CircuitBreaker:
    breaker = a_breaker()
    note(breaker, 100, 100, now)
    assert breaker.is_open
    return breaker


def test_every_state_answers_every_event() -> None:
    assert set(TRANSITIONS) == set(product(BreakerState, BreakerEvent))


def test_it_opens_when_nine_of_ten_of_the_last_thousand_outcomes_failed() -> None:
    breaker = a_breaker()
    note(breaker, 1000, 0)
    mostly_failing(breaker, 999)
    assert not breaker.is_open
    note(breaker, 1, 1)
    assert breaker.pause is not None
    assert (breaker.pause.failed, breaker.pause.outcomes) == (900, 1000)


def test_from_the_start_nine_of_ten_open_it_with_the_hundredth_outcome() -> None:
    breaker = a_breaker()
    mostly_failing(breaker, 99)
    assert not breaker.is_open
    note(breaker, 1, 1)
    assert breaker.is_open


@pytest.mark.parametrize("successes", [0, 1, 20, 1_000, 100_000])
def test_fifty_failures_in_a_row_open_it_whatever_came_before(successes: int) -> None:
    breaker = a_breaker()
    note(breaker, successes, 0)
    for _ in range(49):
        note(breaker, 1, 1)
    assert not breaker.is_open
    note(breaker, 1, 1)
    assert breaker.pause is not None
    assert (breaker.pause.failed, breaker.pause.outcomes) == (50, 50)


def test_a_success_between_them_ends_the_row() -> None:
    breaker = a_breaker()
    note(breaker, 1_000, 0)
    for _ in range(10):
        note(breaker, 49, 49)
        note(breaker, 1, 0)
    assert not breaker.is_open


def test_of_outcomes_that_came_together_those_behind_the_last_success_are_in_the_row() -> None:
    breaker = a_breaker()
    breaker.note(outcomes=1_000, failed=500, now=0.0, last_in_row=49)
    assert not breaker.is_open
    note(breaker, 1, 1)
    assert breaker.is_open


def test_a_short_row_is_a_doubt_until_one_succeeds_or_its_time_is_over() -> None:
    breaker = a_breaker()
    note(breaker, 5, 5, now=100.0)
    assert not breaker.doubts(100.0)
    note(breaker, 1, 1, now=110.0)
    assert breaker.doubts(399.9)
    assert not breaker.doubts(400.0)
    note(breaker, 1, 0)
    assert not breaker.doubts(111.0)
    note(breaker, 6, 6, now=500.0)
    assert breaker.doubts(500.0)


def test_it_never_doubts_without_a_ratio() -> None:
    breaker = a_breaker(failure_ratio=None)
    note(breaker, 40, 40)
    assert not breaker.doubts(0.0)


@pytest.mark.parametrize("share", [0.001, 0.01, 0.05, 0.3])
def test_failures_at_random_never_open_it(share: float) -> None:
    breaker, random = a_breaker(), Random(22)
    for _ in range(200_000):
        note(breaker, 1, int(random.random() < share))
        assert not breaker.is_open


def test_a_window_below_the_least_number_of_outcomes_is_enough_when_it_is_full() -> None:
    breaker = a_breaker(window=10)
    for _ in range(9):
        note(breaker, 1, 1)
    assert not breaker.is_open
    note(breaker, 1, 1)
    assert breaker.is_open


def test_many_outcomes_that_come_together_count_for_no_more_than_the_window() -> None:
    breaker = a_breaker()
    note(breaker, 100_000, 0)
    note(breaker, 3_000, 3_000)
    assert breaker.is_open


def test_a_burst_of_bad_records_among_good_ones_does_not_open_it() -> None:
    breaker = a_breaker()
    note(breaker, 1000, 0)
    note(breaker, 900, 800)
    note(breaker, 1000, 0)
    assert not breaker.is_open


def test_it_is_content_while_the_window_is_full_of_successes_and_only_then() -> None:
    breaker, content = a_breaker(), []
    for outcomes, failed in ((999, 0), (1, 0), (3000, 7), (999, 0), (2, 0)):
        note(breaker, outcomes, failed)
        content.append(breaker.is_content)
    assert content == [False, True, False, False, True]


def test_without_a_ratio_it_never_opens() -> None:
    breaker = a_breaker(failure_ratio=None)
    note(breaker, 10_000, 10_000)
    assert not breaker.is_open


def test_probes_come_at_growing_intervals_up_to_the_cap() -> None:
    breaker, now, waits = opened(), 0.0, []
    for _ in range(8):
        due = breaker.next_probe(None)
        assert due is not None
        assert not breaker.may_probe(due - 0.001)
        assert breaker.may_probe(due)
        waits.append(due - now)
        now = due
        breaker.probe_sent()
        assert not breaker.may_probe(now + 1e6), "one at a time"
        assert breaker.next_probe(None) is None
        breaker.probe_failed(now)
    assert waits == pytest.approx([1, 2, 4, 8, 15, 15, 15, 15])


def test_the_first_probe_that_succeeds_closes_it_and_the_old_failures_are_forgotten() -> None:
    breaker = opened()
    breaker.probe_sent()
    breaker.probe_passed()
    assert not breaker.is_open
    note(breaker, 49, 49)
    assert not breaker.is_open
    note(breaker, 1, 1)
    assert breaker.is_open


def test_an_operator_closes_it_also_while_a_probe_is_out_whose_end_changes_nothing_then() -> None:
    breaker = opened()
    breaker.probe_sent()
    assert breaker.resume()
    assert not breaker.resume()
    breaker.probe_failed(5.0)
    assert not breaker.is_open


def test_outcomes_of_what_was_under_way_change_nothing_while_it_is_open() -> None:
    breaker = opened()
    note(breaker, 5, 0)
    assert breaker.is_open
    assert breaker.resume()
    note(breaker, 49, 49)
    assert not breaker.is_open


def test_a_probe_of_which_nobody_knows_the_end_is_followed_by_another_one_as_soon() -> None:
    breaker = opened()
    breaker.probe_sent()
    breaker.probe_vanished(10.0)
    assert breaker.next_probe(None) == 11.0
    breaker.probe_sent()
    breaker.probe_lost()
    assert breaker.may_probe(11.0)
    assert breaker.pause is not None
    assert breaker.pause.probes_failed == 0


def test_every_second_probe_should_be_a_fresh_record() -> None:
    breaker = opened()
    preferred = []
    for _ in range(4):
        preferred.append(breaker.prefers_fresh)
        breaker.probe_sent()
        breaker.probe_failed(0.0)
    assert preferred == [False, True, False, True]


def test_a_retry_is_no_probe_before_it_is_due() -> None:
    breaker = opened()
    assert breaker.next_probe(30.0) == 30.0
    assert breaker.next_probe(0.5) == 1.0


def test_it_tells_that_it_opened_that_a_probe_failed_and_that_it_closed() -> None:
    breaker = opened()
    breaker.probe_sent()
    breaker.probe_failed(1.0)
    breaker.probe_sent()
    breaker.probe_passed()
    told = [(each.event, each.probes_failed, each.wait_seconds) for each in breaker.take_notices()]
    assert told == [
        (BreakerEvent.TRIPPED, 0, 1.0),
        (BreakerEvent.PROBE_FAILED, 1, 2.0),
        (BreakerEvent.PROBE_PASSED, 1, 0.0),
    ]
    assert breaker.take_notices() == []


@given(st.lists(st.booleans(), max_size=200), st.sampled_from((0.5, 0.9, 1.0)))
def test_one_by_one_the_window_is_exactly_the_last_outcomes(failures: list[bool], ratio: float) -> None:
    breaker = a_breaker(failure_ratio=ratio, window=20, least=5)
    last: deque[bool] = deque(maxlen=20)
    for failed in failures:
        note(breaker, 1, int(failed))
        last.append(failed)
        expected = failed and len(last) >= 5 and sum(last) >= ratio * len(last)
        assert breaker.is_open == expected
        if expected:
            breaker.resume()
            last.clear()


@given(st.lists(st.tuples(st.integers(1, 50), st.floats(0, 1)), max_size=50))
def test_it_never_opens_while_no_run_of_outcomes_has_so_many_failures(runs: list[tuple[int, float]]) -> None:
    breaker = a_breaker(failure_ratio=0.9, window=20, least=5)
    for outcomes, share in runs:
        note(breaker, outcomes, min(int(outcomes * share), int(outcomes * 0.8)))
        assert not breaker.is_open


@pytest.mark.parametrize(
    "rule",
    [
        {"failure_ratio": 0.0},
        {"failure_ratio": 1.1},
        {"window": 0},
        {"least": 0},
        {"in_a_row": 0},
        {"doubtful": 0},
    ],
)
def test_a_rule_out_of_range_is_refused(rule: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="expected"):
        BreakerRule(**rule)
