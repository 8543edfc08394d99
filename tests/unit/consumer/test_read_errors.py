"""A shard that cannot be read is said in the log, once, and then now and then."""

import logging

import pytest

from kinesis_spout.consumer.consumer_state import ReadErrors
from kinesis_spout.kinesis.retry_policy import LONGEST_REMINDER_SECONDS
from kinesis_spout.model.errors import AccessDenied, KeyUnavailable, KinesisError, Throttled, Unavailable
from kinesis_spout.testing import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def read_errors(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> ReadErrors:
    caplog.set_level(logging.INFO)
    return ReadErrors(clock)


def fail_for(read_errors: ReadErrors, clock: ManualClock, error: KinesisError, seconds: float) -> None:
    """Let a shard fail every 10 s."""
    for _ in range(int(seconds / 10)):
        read_errors.failed("shard-1", error)
        clock.advance(10)


def test_an_error_that_stays_is_said_at_once_and_then_at_growing_intervals(
    read_errors: ReadErrors, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    fail_for(read_errors, clock, Unavailable("down"), 50)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "shard-1" in caplog.text
    assert "down" in caplog.text
    fail_for(read_errors, clock, Unavailable("down"), 24 * 3600)
    # 1, 2, 4... 32 minutes, and then once an hour.
    assert 6 + 22 <= len(caplog.records) <= 6 + 25
    assert LONGEST_REMINDER_SECONDS == 3600


def test_another_error_of_the_shard_and_the_same_of_another_shard_are_said(
    read_errors: ReadErrors, caplog: pytest.LogCaptureFixture
) -> None:
    for error in (Unavailable("down"), KeyUnavailable("no key"), KeyUnavailable("no key")):
        read_errors.failed("shard-1", error)
    read_errors.failed("shard-2", KeyUnavailable("no key"))
    assert len(caplog.records) == 3


def test_throttles_are_not_said_and_do_not_hide_what_is(
    read_errors: ReadErrors, caplog: pytest.LogCaptureFixture
) -> None:
    read_errors.failed("shard-1", Throttled("slowly"))
    assert not caplog.records
    read_errors.failed("shard-1", Unavailable("down"))
    read_errors.failed("shard-1", Throttled("slowly"))
    read_errors.failed("shard-1", Unavailable("down"))
    assert len(caplog.records) == 1


def test_a_recovery_is_said_and_the_next_error_is_news(
    read_errors: ReadErrors, caplog: pytest.LogCaptureFixture
) -> None:
    read_errors.failed("shard-1", Unavailable("down"))
    assert [str(error) for error in read_errors.current] == ["down"]
    read_errors.worked("shard-1")
    read_errors.worked("shard-1")
    assert read_errors.current == []
    read_errors.failed("shard-1", Unavailable("down"))
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO", "WARNING"]


def test_a_shard_that_is_read_no_more_has_no_error(read_errors: ReadErrors) -> None:
    read_errors.failed("shard-1", Unavailable("down"))
    read_errors.drop(["shard-1", "shard-2"])
    assert read_errors.current == []


def test_an_error_that_ends_the_reading_is_not_said_to_be_retried(
    read_errors: ReadErrors, caplog: pytest.LogCaptureFixture
) -> None:
    read_errors.failed("shard-1", AccessDenied("before anything was read"))
    assert not caplog.records
    assert read_errors.current == []
