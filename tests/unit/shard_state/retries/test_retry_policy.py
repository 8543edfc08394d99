import math
from typing import Any

import pytest

from shard_state import Counts, History, Retry, RetryPolicy

pytestmark = pytest.mark.no_second_run

LAST = 1 - 2**-53
"""The largest number that random() gives."""


def failed(times: int) -> History:
    return History(0.0, 0.0, Counts(), failures=times)


def delay(policy: RetryPolicy, attempts: int, random: float = 0.0) -> float:
    return policy.after(failed(attempts), random=random).delay_seconds


def test_three_retries_are_the_default_as_in_kinesis_storm_spout() -> None:
    assert RetryPolicy().limit == 3


def test_delays_grow_by_the_multiplier_up_to_the_cap() -> None:
    policy = RetryPolicy(limit=None, backoff_seconds=0.5, multiplier=3.0, cap_seconds=10.0)
    assert [delay(policy, attempts) for attempts in range(1, 6)] == pytest.approx([0.5, 1.5, 4.5, 10.0, 10.0])


@pytest.mark.parametrize("attempts", [10, 1_000, 10**9])
@pytest.mark.parametrize("multiplier", [1.5, 2.0, 1e300])
def test_a_patient_record_does_not_overflow_the_delay(attempts: int, multiplier: float) -> None:
    policy = RetryPolicy(limit=None, backoff_seconds=1e-3, multiplier=multiplier, cap_seconds=60.0)
    assert delay(policy, attempts) <= 60.0
    assert delay(policy, 10**9) == 60.0


def test_a_multiplier_of_one_keeps_the_delay() -> None:
    assert delay(RetryPolicy(limit=None, backoff_seconds=2.0, multiplier=1.0), 10**9) == 2.0


def test_jitter_only_shortens_and_by_its_share_at_most() -> None:
    policy = RetryPolicy(backoff_seconds=10.0, jitter=0.25)
    assert delay(policy, 1, random=0.0) == 10.0
    assert delay(policy, 1, random=0.5) == pytest.approx(8.75)
    assert 7.5 <= delay(policy, 1, random=LAST) < 7.5000001


def test_the_default_is_never_a_hot_loop() -> None:
    assert delay(RetryPolicy(), 1, random=LAST) >= 0.9


def test_a_backoff_of_zero_retries_at_once() -> None:
    assert delay(RetryPolicy(limit=None, backoff_seconds=0.0, cap_seconds=0.0), 10**9) == 0.0


def test_the_handlers_own_delay_replaces_the_computed_one() -> None:
    policy = RetryPolicy(limit=1, jitter=1.0)
    assert policy.after(failed(1), random=0.5, delay_seconds=600.0) == Retry(delay_seconds=600.0)
    assert policy.after(failed(1), random=0.5, delay_seconds=-1.0) == Retry(delay_seconds=0.0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"limit": -1},
        {"backoff_seconds": -0.1},
        {"backoff_seconds": math.nan},
        {"multiplier": 0.9},
        {"multiplier": math.inf},
        {"cap_seconds": 0.5},
        {"cap_seconds": math.inf},
        {"jitter": -0.1},
        {"jitter": 1.1},
    ],
)
def test_a_policy_that_makes_no_sense_is_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"expected {next(iter(wrong))} to be"):
        RetryPolicy(**wrong)
