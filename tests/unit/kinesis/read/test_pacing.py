import pytest

from kinesis_spout.errors import AccessDenied, KeyUnavailable, KinesisError, Throttled, Unavailable
from kinesis_spout.kinesis.read.pacing import Pacing

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

    pacing.failed(0.0, Unavailable("x"))

    assert pacing.ready_at <= 0.4


@pytest.mark.parametrize("error", [KeyUnavailable("x"), AccessDenied("x")])
def test_what_only_a_person_can_mend_is_tried_slowly(error: KinesisError) -> None:
    assert 30.0 <= _wait_after(error) <= 33.0


def test_two_shards_that_failed_together_do_not_come_back_together() -> None:
    assert _wait_after(Throttled("x"), jitter=0.1) != _wait_after(Throttled("x"), jitter=0.8)
