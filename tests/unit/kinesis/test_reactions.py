"""What an error means is decided in one place."""

import pytest

from kinesis_spout import errors
from kinesis_spout.errors import (
    AccessDenied,
    DataLoss,
    ExpiredIterator,
    InvalidIterator,
    KeyUnavailable,
    KinesisError,
    ShardNotFound,
    StreamNotFound,
    Throttled,
    Unavailable,
)
from kinesis_spout.kinesis.reactions import SLOW_SECONDS, Action, reaction_to


@pytest.mark.parametrize("error", [Unavailable("x"), ExpiredIterator("x"), InvalidIterator("x")])
def test_what_may_pass_is_retried_soon_also_at_the_start(error: KinesisError) -> None:
    for at_start in (True, False):
        reaction = reaction_to(error, at_start=at_start)
        assert (reaction.action, reaction.wait_seconds, reaction.is_throttle) == (Action.RETRY, 0, False)


def test_a_throttle_is_retried_and_counted_as_one() -> None:
    reaction = reaction_to(Throttled("x"))
    assert (reaction.action, reaction.is_throttle) == (Action.RETRY, True)


@pytest.mark.parametrize("at_start", [True, False])
def test_a_key_that_is_refused_is_asked_for_again_slowly_and_nothing_is_skipped(*, at_start: bool) -> None:
    reaction = reaction_to(KeyUnavailable("x"), at_start=at_start)
    assert (reaction.action, reaction.wait_seconds) == (Action.RETRY, SLOW_SECONDS)


def test_denied_access_is_a_mistake_at_the_start_and_may_pass_later() -> None:
    assert reaction_to(AccessDenied("x"), at_start=True).action is Action.FAIL
    later = reaction_to(AccessDenied("x"))
    assert (later.action, later.wait_seconds) == (Action.RETRY, SLOW_SECONDS)


def test_a_shard_that_was_trimmed_is_ended() -> None:
    assert reaction_to(ShardNotFound("x")).action is Action.END_SHARD


@pytest.mark.parametrize(
    "error", [DataLoss("x"), StreamNotFound("x"), KinesisError("x"), ZeroDivisionError()]
)
def test_what_time_does_not_change_fails(error: Exception) -> None:
    assert reaction_to(error).action is Action.FAIL


def test_every_error_of_kinesis_that_calls_itself_retriable_is_retried() -> None:
    kinds = [
        kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, KinesisError)
    ]
    assert kinds
    for kind in kinds:
        assert not kind.retriable or reaction_to(kind("x"), at_start=True).action is Action.RETRY, kind
