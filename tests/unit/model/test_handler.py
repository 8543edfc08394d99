"""What a handler raises decides what becomes of its record."""

import json
import math
import pickle
import traceback
from collections.abc import Callable

import pytest

from kinesis_spout.model.handler import (
    MAX_ERROR_CHARS,
    MAX_TRACEBACK_CHARS,
    Failure,
    Reject,
    RetryLater,
    failure_of,
)


def test_an_ordinary_error_is_named_with_its_type() -> None:
    assert failure_of(ValueError("bad amount")) == Failure(error_text="ValueError: bad amount")


def test_an_error_without_text_is_its_type() -> None:
    assert failure_of(ZeroDivisionError()).error_text == "ZeroDivisionError"


def test_a_rejection_gives_the_record_up_for_its_reason() -> None:
    assert failure_of(Reject("negative amount")) == Failure(error_text="negative amount", rejected=True)
    assert failure_of(Reject("")).error_text == "rejected without a reason"


def test_retry_later_chooses_the_delay() -> None:
    assert failure_of(RetryLater(5, "rate limited")) == Failure(
        error_text="RetryLater: rate limited", delay_seconds=5.0
    )
    assert failure_of(RetryLater(0)).error_text == "RetryLater: asked for a retry after 0 s"


@pytest.mark.parametrize("seconds", [-1, math.nan, math.inf])
def test_retry_later_takes_no_impossible_delay(seconds: float) -> None:
    with pytest.raises(ValueError, match="finite seconds >= 0"):
        RetryLater(seconds)


def test_a_subclass_of_a_verdict_is_that_verdict() -> None:
    class Expired(Reject):
        pass

    assert failure_of(Expired("too old")).rejected


@pytest.mark.parametrize("error", [Reject("no"), RetryLater(2.5, "later"), RetryLater(1)])
def test_verdicts_survive_the_way_from_executor_to_driver(error: Exception) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert vars(copy) == vars(error)
    assert pickle.loads(pickle.dumps(failure_of(error))) == failure_of(error)


def test_a_long_text_is_cut_and_says_so() -> None:
    text = failure_of(ValueError("x" * 10_000)).error_text
    assert len(text) == MAX_ERROR_CHARS
    assert text.endswith("…")


def test_lines_are_joined_and_tracebacks_left_out() -> None:
    inner = "".join(traceback.format_exception(ValueError("deep")))
    assert failure_of(RuntimeError("first\nsecond")).error_text == "RuntimeError: first second"
    assert failure_of(
        RuntimeError(f"job failed:\nTraceback (most recent call last):\n{inner}")
    ).error_text == ("RuntimeError: job failed:")


def test_a_text_that_is_only_a_traceback_gives_its_last_line() -> None:
    text = 'Traceback (most recent call last):\n  File "x.py", line 1\nValueError: bad\n'
    assert failure_of(RuntimeError(text)).error_text == "RuntimeError: ValueError: bad"


def test_text_that_is_no_utf_8_is_made_storable() -> None:
    failure_of(ValueError("bad \ud800 amount")).error_text.encode()


def test_an_error_that_cannot_say_what_it_is_still_fails_its_record() -> None:
    class Mute(Exception):  # noqa: N818
        def __str__(self) -> str:
            raise TypeError("no words")

    assert failure_of(Mute()).error_text == "Mute: (no text: its __str__ raised TypeError)"


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise SystemExit


def test_an_error_whose_text_ends_the_process_still_fails_its_record() -> None:
    assert failure_of(UnspeakableError()).error_text == (
        "UnspeakableError: (no text: its __str__ raised SystemExit)"
    )


class Forgetful(RetryLater):
    def __init__(self) -> None:
        """Without what every RetryLater has."""


def test_a_retry_later_without_its_delay_leaves_it_to_the_back_off() -> None:
    assert failure_of(Forgetful()).delay_seconds is None


def broken(payload: str) -> None:
    json.loads(payload)


def wrapping(payload: str) -> None:
    try:
        broken(payload)
    except ValueError as error:
        raise RuntimeError(f"cannot book {payload}") from error


def failure_from(call: Callable[[str], None], payload: str) -> Failure:
    try:
        call(payload)
    except Exception as error:  # noqa: BLE001 - what a test calls to fail
        return failure_of(error)
    raise AssertionError(call)


def test_where_an_exception_was_raised_is_told_with_what_led_to_it_and_without_data() -> None:
    raised = failure_from(wrapping, "{secret").raised
    assert raised is not None
    assert raised.kind.startswith("RuntimeError at ")
    assert raised.kind.endswith(", in wrapping")
    assert "in broken" in raised.traceback
    assert "json.decoder.JSONDecodeError\nwhich led to\n" in raised.traceback
    assert raised.traceback.endswith("RuntimeError")
    assert "secret" not in raised.traceback
    assert pickle.loads(pickle.dumps(raised)) == raised


def test_failures_of_one_kind_share_what_is_told_of_them() -> None:
    one, other = failure_from(wrapping, "{a").raised, failure_from(wrapping, "{b").raised
    assert one is other
    assert failure_from(broken, "{").raised is not one


def test_code_that_comes_and_goes_is_told_apart() -> None:
    """Its address may be that of code which is gone; the places of all are the same bytes of it."""
    for number in range(100):
        names: dict[str, Callable[[], None]] = {}
        exec(f"def made_{number}(): raise ValueError", names)
        with pytest.raises(ValueError) as caught:  # noqa: PT011 - it says nothing
            names[f"made_{number}"]()
        raised = failure_of(caught.value).raised
        del caught, names
        assert raised is not None
        assert raised.kind.endswith(f"in made_{number}")


def test_verdicts_and_what_was_never_raised_have_no_place() -> None:
    def reject(_: str) -> None:
        raise Reject("no")

    assert failure_from(reject, "").raised is None
    assert failure_of(ValueError("made, and not raised")).raised is None


def test_a_deep_traceback_is_cut_in_front() -> None:
    def deeper(depth: str) -> None:
        if depth:
            deeper(depth[1:])
        raise ValueError("deep")

    raised = failure_from(deeper, "x" * 200).raised
    assert raised is not None
    assert len(raised.traceback) <= MAX_TRACEBACK_CHARS
    assert raised.traceback.endswith("ValueError")
