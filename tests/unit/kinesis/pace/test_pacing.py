from itertools import pairwise

import pytest

from kinesis_spout.kinesis.pace import LEAST_THROTTLE, ByteBudget, Pacing, ReadPace
from kinesis_spout.model.errors import AccessDenied, KeyUnavailable, KinesisError, Throttled, Unavailable
from kinesis_spout.testing import ManualClock

LEAST, MOST = 0.0, 0.999999


def _wait_after(
    error: KinesisError, *, failures: int = 1, size_bytes: int = 0, jitter: float = LEAST
) -> float:
    pacing = Pacing(ready_at=0.0, jitter=lambda: jitter)
    pacing.succeeded(0.0, size_bytes)
    for _ in range(failures):
        pacing.ready_at = 0.0
        pacing.failed(0.0, error)
    return pacing.ready_at


@pytest.mark.parametrize(
    ("size_bytes", "seconds"), [(0, 0.2), (100_000, 0.2), (2_000_000, 1.0), (10_485_760, 5.24288)]
)
def test_a_page_delays_the_next_read_by_its_bytes(size_bytes: int, seconds: float) -> None:
    pacing = Pacing(ready_at=0.0, jitter=lambda: LEAST)

    pacing.succeeded(7.0, size_bytes)

    assert pacing.ready_at == pytest.approx(7.0 + seconds)


@pytest.mark.parametrize("jitter", [LEAST, MOST])
def test_a_throttle_waits_a_second_at_least(jitter: float) -> None:
    assert 1.0 <= _wait_after(Throttled("x"), jitter=jitter) <= 2.0


@pytest.mark.parametrize("jitter", [LEAST, MOST])
def test_a_throttle_after_a_full_reply_waits_five_seconds_at_least(jitter: float) -> None:
    assert 5.0 <= _wait_after(Throttled("x"), size_bytes=10_485_760, jitter=jitter) <= 10.0


def test_waits_grow_with_failures_in_a_row_up_to_a_cap() -> None:
    waits = [_wait_after(Unavailable("x"), failures=failures, jitter=MOST) for failures in range(1, 50)]

    assert waits == sorted(waits)
    assert waits[0] <= 0.4
    assert waits[-1] == pytest.approx(10.0, rel=1e-3)


def test_a_success_forgets_the_failures() -> None:
    pacing = Pacing(ready_at=0.0, jitter=lambda: MOST)
    for _ in range(10):
        pacing.failed(0.0, Unavailable("x"))
    pacing.ready_at = 0.0
    pacing.succeeded(0.0, 0)
    pacing.answered()

    pacing.failed(0.0, Unavailable("x"))

    assert pacing.ready_at <= 0.4


@pytest.mark.parametrize("error", [KeyUnavailable("x"), AccessDenied("x")])
def test_what_only_a_person_can_mend_is_tried_slowly(error: KinesisError) -> None:
    assert 30.0 <= _wait_after(error, failures=2) <= 33.0


@pytest.mark.parametrize("error", [KeyUnavailable("x"), AccessDenied("x")])
def test_a_stray_refusal_rests_the_shard_for_a_second(error: KinesisError) -> None:
    assert 1.0 <= _wait_after(error) <= 1.1


@pytest.mark.parametrize("before", [Throttled("x"), Unavailable("x")])
def test_a_stray_refusal_behind_failures_of_another_kind_rests_the_shard_for_a_second(
    before: KinesisError,
) -> None:
    pacing = Pacing(ready_at=0.0, jitter=lambda: LEAST)
    for error in (before, before, AccessDenied("x")):
        pacing.ready_at = 0.0
        pacing.failed(0.0, error)

    assert pacing.ready_at == pytest.approx(1.0)


def test_two_shards_that_failed_together_do_not_come_back_together() -> None:
    assert _wait_after(Throttled("x"), jitter=0.1) != _wait_after(Throttled("x"), jitter=0.8)


def test_a_pace_below_what_aws_allows_is_kept_in_calls_and_in_bytes() -> None:
    pacing = Pacing(
        ready_at=0.0, jitter=lambda: LEAST, pace=ReadPace(interval_seconds=1.0, bytes_per_second=500_000)
    )

    pacing.succeeded(0.0, 0)
    assert pacing.ready_at == 1.0

    pacing.succeeded(1.0, 1_000_000)
    assert pacing.ready_at == 3.0


def test_a_throttle_halves_the_pace_and_pages_bring_it_back() -> None:
    clock = ManualClock()
    pacing = Pacing(ready_at=0.0, jitter=lambda: LEAST)
    pacing.failed(pacing.await_turn(clock), Throttled("x"))
    waits = []
    for _ in range(12):
        started = pacing.await_turn(clock)
        pacing.succeeded(started, 0)
        waits.append(pacing.ready_at - started)

    assert waits[0] == pytest.approx(0.4)
    assert all(after <= before + 1e-9 for before, after in pairwise(waits))
    assert waits[-1] == pytest.approx(0.2)


def test_however_often_a_shard_is_throttled_it_is_read_on() -> None:
    pacing = Pacing(ready_at=0.0, jitter=lambda: LEAST)
    for _ in range(100):
        pacing.failed(0.0, Throttled("x"))

    assert pacing.throttled_to == LEAST_THROTTLE


def test_an_outage_says_nothing_of_other_consumers() -> None:
    pacing = Pacing(ready_at=0.0, jitter=lambda: LEAST)
    pacing.failed(0.0, Unavailable("x"))

    assert pacing.throttled_to == 1.0


def test_two_pollers_of_a_shard_come_to_equal_parts_of_what_it_gives() -> None:
    """Five calls a second in all; who comes too soon is throttled. One was there first, at the full rate."""
    clocks, calls = 0.0, [0, 0]
    pollers = [Pacing(ready_at=start, jitter=lambda: 0.5) for start in (0.0, 20.0)]
    recent: list[float] = []
    while clocks < 600.0:
        at = min((0, 1), key=lambda each: pollers[each].ready_at)
        clocks = pollers[at].ready_at
        clock = ManualClock()
        clock.advance(clocks)
        started = pollers[at].await_turn(clock)
        recent = [each for each in recent if each > started - 1.0]
        if len(recent) < 5:
            recent.append(started)
            calls[at] += started > 100.0
            pollers[at].succeeded(started, 0)
            pollers[at].answered()
        else:
            pollers[at].failed(started, Throttled("x"))

    assert min(calls) > 0.8 * max(calls)
    assert sum(calls) > 0.6 * 5 * 500


def test_getters_of_one_shard_that_share_a_pacing_keep_to_its_rate_together() -> None:
    clock, pacing = ManualClock(), Pacing(ready_at=0.0, jitter=lambda: LEAST)

    begins = [pacing.await_turn(clock) for _ in range(6)]

    assert begins == pytest.approx([0.0, 0.2, 0.4, 0.6, 0.8, 1.0])


def test_what_an_executor_has_read_is_paid_for_from_its_beginning() -> None:
    pacing = Pacing(ready_at=0.0, jitter=lambda: LEAST, budget=ByteBudget(1_000_000))

    pacing.read_elsewhere(10.0, 4_000_000, ready_at=12.0, throttled_to=0.5)

    assert (pacing.ready_at, pacing.throttled_to) == (14.0, 0.5)
