"""What an error means is decided in one place."""

import pytest

from kinesis_spout.consumer.consumer import LAST_COMMIT_SECONDS
from kinesis_spout.kinesis import calls as kinesis_errors
from kinesis_spout.kinesis import retry_policy
from kinesis_spout.kinesis.calls import ResourceNotFound
from kinesis_spout.kinesis.retry_policy import (
    SLOW_SECONDS,
    STRAY_SECONDS,
    Action,
    CallRetryPolicy,
    Tries,
    Work,
    reaction_to,
)
from kinesis_spout.model import errors
from kinesis_spout.model.errors import (
    AccessDenied,
    DataLoss,
    ExpiredIterator,
    InvalidIterator,
    KeyUnavailable,
    KinesisError,
    KinesisSpoutError,
    ShardNotFound,
    StoreUnavailable,
    StreamNotFound,
    Throttled,
    Unavailable,
)
from kinesis_spout.testing import ManualClock


@pytest.mark.parametrize("error", [Unavailable("x"), ExpiredIterator("x"), InvalidIterator("x")])
def test_what_may_pass_is_retried_soon_also_at_the_start(error: KinesisError) -> None:
    for work in (Work.QUERY, Work.CONSUME):
        reaction = reaction_to(error, work)
        assert (reaction.action, reaction.wait_seconds, reaction.is_throttle) == (Action.RETRY, 0, False)


def test_a_throttle_is_retried_and_counted_as_one() -> None:
    reaction = reaction_to(Throttled("x"))
    assert (reaction.action, reaction.is_throttle) == (Action.RETRY, True)


@pytest.mark.parametrize("work", [Work.QUERY, Work.CONSUME])
def test_a_key_that_is_refused_is_asked_for_again_slowly_and_nothing_is_skipped(work: Work) -> None:
    reaction = reaction_to(KeyUnavailable("x"), work)
    assert (reaction.action, reaction.wait_seconds) == (Action.RETRY, SLOW_SECONDS)


def test_denied_access_is_a_mistake_at_the_start_and_may_pass_later() -> None:
    assert reaction_to(AccessDenied("x"), Work.QUERY).action is Action.FAIL
    later = reaction_to(AccessDenied("x"))
    assert (later.action, later.wait_seconds) == (Action.RETRY, SLOW_SECONDS)


def test_a_shard_that_was_trimmed_is_ended() -> None:
    assert reaction_to(ShardNotFound("x")).action is Action.END_SHARD


@pytest.mark.parametrize(
    "error", [DataLoss("x"), StreamNotFound("x"), KinesisError("x"), ZeroDivisionError()]
)
def test_what_time_does_not_change_fails(error: Exception) -> None:
    assert reaction_to(error).action is Action.FAIL


KINDS: list[type[KinesisSpoutError]] = sorted(
    {
        kind
        for module in (errors, kinesis_errors)
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, KinesisSpoutError)
    },
    key=lambda kind: kind.__name__,
)


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_is_retriable_exactly_where_a_query_tries_again(kind: type[KinesisSpoutError]) -> None:
    assert kind.retriable == (reaction_to(kind("x"), Work.QUERY).action is Action.RETRY)


@pytest.mark.parametrize(
    "kind", [KinesisError, StreamNotFound, DataLoss, AccessDenied, KeyUnavailable, ResourceNotFound]
)
def test_a_listing_or_a_write_fails_at_once_where_a_minute_changes_nothing(kind: type[KinesisError]) -> None:
    clock = ManualClock()
    with pytest.raises(kind, match="x"):
        tries(clock).failed(kind("x"))


def tries(clock: ManualClock, **retry_policy: float) -> Tries:
    return Tries(CallRetryPolicy(clock=clock, jitter=lambda: 1.0, **retry_policy), "to ask")


def test_waits_double_up_to_the_cap_until_one_would_end_after_the_deadline() -> None:
    clock = ManualClock()
    asked = tries(clock, deadline_seconds=10.0, first_backoff_seconds=1.0, backoff_cap_seconds=3.0)
    for wait in (1, 2, 3, 3):
        assert asked.failed(Throttled("no")) == wait
        assert asked.until == clock.monotonic() + wait
        clock.advance(wait)
    with pytest.raises(
        Throttled, match="to ask to succeed within 10 s, got 5 failures in a row; the last: no"
    ):
        asked.failed(Throttled("no"))


def test_a_success_makes_the_next_failure_the_first_again() -> None:
    asked = tries(ManualClock())
    first = asked.failed(Unavailable("no"))
    asked.failed(Unavailable("no"))
    asked.succeeded()
    assert (asked.failures, asked.until) == (0, 0)
    assert asked.failed(Unavailable("no")) == first


def test_waits_grow_with_failures_of_one_kind_in_a_row() -> None:
    asked = Tries(CallRetryPolicy(clock=ManualClock(), jitter=lambda: 1.0), "to ask", Work.CONSUME)
    errors = (
        Throttled("x"),
        Throttled("x"),
        AccessDenied("x"),
        Unavailable("x"),
        AccessDenied("x"),
        AccessDenied("x"),
    )

    waits = [asked.failed(error) for error in errors]

    assert waits == [0.2, 0.4, STRAY_SECONDS, 0.2, STRAY_SECONDS, SLOW_SECONDS]
    assert asked.failures == 6


def test_an_outage_is_told_once_and_then_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    asked = Tries(CallRetryPolicy.without_end(clock, first=1.0, cap=1.0), "to ask")

    def answer() -> str:
        if clock.monotonic() < 200:
            raise Unavailable("gone")
        return "here"

    assert asked.call(answer) == "here"
    assert len(caplog.messages) == 3, "at once, after 1 minute, and after 2 more"


def test_a_call_is_made_again_and_said_but_for_throttles(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    answers: list[Exception | str] = [Throttled("slower"), StoreUnavailable("gone"), "here"]

    def answer() -> str:
        said = answers.pop(0)
        if isinstance(said, Exception):
            raise said
        return said

    assert tries(clock).call(answer) == "here"
    assert caplog.messages == ["to ask is tried again in 0.2 s: gone"]
    assert clock.monotonic() == pytest.approx(0.2 + 0.2)


def between(first: float, last: float) -> str:
    return f"{first:g}-{last:g} s"


def test_the_times_in_the_table_of_the_documentation_are_those_of_the_code() -> None:
    read, full = retry_policy.FIRST_READ_BACKOFF_SECONDS, retry_policy.THROTTLE_AFTER_FULL_REPLY_SECONDS
    throttled, most = retry_policy.THROTTLE_SECONDS, retry_policy.MAX_THROTTLE_SECONDS
    call, first = CallRetryPolicy(), CallRetryPolicy().first_backoff_seconds
    table = " ".join((retry_policy.__doc__ or "").split())

    for work, times in {
        "to read a shard": f"{between(read / 2, read)}, doubled up to {retry_policy.MAX_READ_BACKOFF_SECONDS:g} s",
        "- throttled": f"{between(throttled, 2 * throttled)} ({between(full, 2 * full)} after a full reply), "
        f"doubled up to {between(most, 2 * most)}",
        "- slowly": f"{between(STRAY_SECONDS, STRAY_SECONDS * 1.1)} after the first in a row, "
        f"which may be a stray answer; then {between(SLOW_SECONDS, SLOW_SECONDS * 1.1)}",
        "- subscribed to just now": between(retry_policy.IN_USE_SECONDS, retry_policy.IN_USE_SECONDS * 1.1),
        "to list, to put": f"{between(first / 2, first)}, doubled up to {call.backoff_cap_seconds:g} s",
    }.items():
        assert f"| {work} | {times} |" in table
    assert f"without end; after {retry_policy.OUTAGE_SECONDS:g} s, other shards do not wait" in table
    assert f"| {call.deadline_seconds:g} s unless it is said otherwise;" in table
    assert f"without end; the last commit {LAST_COMMIT_SECONDS:g} s |" in table
