"""Errors by which a record handler decides, and how an error is read.

Returning acks the record; anything it raises fails the record, which is retried until the retry limit. Three
exceptions say more: `Reject` gives the record up at once, `RetryLater` chooses when it is tried again, and so
does `NotNow`, for a record that was not tried.

"Anything" is any ``BaseException``: `asyncio.CancelledError`, `SystemExit`, `GeneratorExit`,
`KeyboardInterrupt` fail the record that the handler was given, like any other. If they passed through, each
would end the worker at the same record again and again. No task needs them to end: Spark ends one by killing
its worker process or closing its socket, never by raising in it; and Ctrl-C reaches only the main thread of
the driver, where no handler runs. The exceptions are user code on the caller's thread. In the plain-Python
door (its scheme) a `KeyboardInterrupt` fails its record *and* reaches the caller; it ends
`Topology.run_local`.

This module travels to the executors with every handler, so it imports nothing of ours.
"""

import math
import traceback
from collections import deque
from collections.abc import Iterator
from itertools import dropwhile, takewhile
from types import CodeType, FrameType
from typing import Final

from msgspec import Struct

from shard_state import Fate

MAX_ERROR_CHARS: Final = 2_000
"""The length of an error's text that is kept: it comes back with every failed record, and goes into dead
letters."""

MAX_TRACEBACK_CHARS: Final = 4_000
"""The length of a traceback that is kept, of its end."""
_MAX_FRAMES: Final = 20
_MAX_CAUSES: Final = 3
_OURS: Final = "kinesis_spout."
_MAX_KNOWN: Final = 256

_Frame = tuple[FrameType, int]
"""A frame, and the line it was at."""

_TRACEBACK: Final = "Traceback (most recent call last)"


class Reject(Exception):  # noqa: N818 - a verdict of the handler, not an error of ours
    """Raised by a handler: no retry will help. The record goes straight to the dead letters."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class RetryLater(Exception):  # noqa: N818
    """Raised by a handler: try this record again after ``seconds``. Counts as an attempt.

    Raises:
        ValueError: for a delay that is negative or not finite; it fails the record with the usual delay.
    """

    def __init__(self, seconds: float, reason: str = "") -> None:
        if not (isinstance(seconds, (int, float)) and math.isfinite(seconds) and seconds >= 0):
            raise ValueError(f"expected RetryLater(seconds) with finite seconds >= 0, got {seconds!r}")
        super().__init__(seconds, reason)
        self.seconds = float(seconds)
        self.reason = reason

    def __str__(self) -> str:
        return self.reason or f"asked for a retry after {self.seconds:g} s"


class NotNow(RetryLater):
    """Raised by a handler: the record was not tried, because its time has not come; again after ``seconds``.

    For a target's rate (see ``KeyedRate``), not for errors: it counts neither as an attempt nor for the
    handler. A record can be put off a thousand times (the count restarts with the consumer); from
    then on it counts like `RetryLater`. It always does in ``each_record``, and with another guarantee than
    at_least_once.

    Raises:
        ValueError: as `RetryLater`.
    """


class RaisedAt(Struct, frozen=True, gc=False):
    """The origin of an exception. Contains nothing of the record: the exceptions' texts are left out."""

    kind: str
    """Its type and the line that raised it: "KeyError at /app/billing.py:12, in bill"."""
    traceback: str
    """At most `MAX_TRACEBACK_CHARS`, with the exceptions that led to it."""

    @property
    def exception(self) -> str:
        """The name of its type."""
        return self.kind.partition(" at ")[0]


class Failure(Struct, frozen=True, kw_only=True, gc=False):
    """The meaning of a delivery's end for its record."""

    error_text: str
    """One line of at most `MAX_ERROR_CHARS`: "ValueError: bad amount", or a `Reject`'s reason."""
    rejected: bool = False
    """True if the record is given up at once."""
    delay_seconds: float | None = None
    """When to try again, if the handler chose; None leaves it to the back-off."""
    put_off: bool = False
    """True if the handler did not try the record, so that this is no attempt."""
    killed_worker: bool = False
    """True if the worker died, or hung, while the record was handled. It is retried in a separate job."""
    timed_out: bool = False
    """True if the handler had not returned in time."""
    raised: RaisedAt | None = None
    """The place where it was raised, or where the handler was when it timed out; None if that is unknown, or if a
    verdict of the handler was raised."""

    @property
    def fate(self) -> Fate:
        """The outcome for its record."""
        if self.rejected:
            return Fate.REJECTED
        if self.killed_worker:
            return Fate.KILLED_WORKER
        return Fate.PUT_OFF if self.put_off else Fate.FAILED


def failure_of(error: BaseException) -> Failure:
    """Read what a handler (or a scheme) raised. Never raises, whatever the exception is like."""
    if isinstance(error, Reject):
        return Failure(error_text=_one_line(_text(error)) or "rejected without a reason", rejected=True)
    if isinstance(error, RetryLater):
        put_off = isinstance(error, NotNow)
        verdict = "NotNow" if put_off else "RetryLater"
        return Failure(
            error_text=_one_line(f"{verdict}: {_text(error)}"), delay_seconds=_delay(error), put_off=put_off
        )
    text = _text(error)
    return Failure(
        error_text=_one_line(f"{type(error).__name__}: {text}" if text else type(error).__name__),
        raised=raised_at(error),
    )


def failure_saying(reason: object) -> Failure:
    """Make a failure of a reason that was not raised: one line of its text. Never raises."""
    return Failure(error_text=_one_line(_text(reason)) or "failed without a reason")


def raised_at(error: BaseException) -> RaisedAt | None:
    """Return where an exception came from; None if it was never raised. Cheap for a repeated place."""
    try:
        return _raised_at(error)
    except BaseException:  # noqa: BLE001 - a user's class may be anything; its failure counts without this
        return None


def found_at(frame: FrameType, kind: str, call: FrameType | None = None) -> RaisedAt:
    """Return where a thread is now: "timed out at /app/billing.py:12, in bill".

    Args:
        frame: its innermost one.
        kind: what to call it.
        call: our frame that has called the user's code, if known: those outside of it are left out.
    """
    inside = takewhile(lambda at: at[0] is not call, traceback.walk_stack(frame))
    frames = list(dropwhile(_is_ours, reversed(list(inside)[:_MAX_FRAMES])))
    inner = frames[-1] if frames else (frame, frame.f_lineno)
    text = _shortened(_stack_text(kind, frames or [inner]))
    return RaisedAt(_encodable(f"{kind} at {_place(inner)}"), _encodable(text))


def _raised_at(error: BaseException) -> RaisedAt | None:
    way, named = _way(error)
    known = _known.get(way)
    if known is None:
        chain = [(_type_name(each), _frames(each)) for each in _with_causes(error)]
        name, frames = chain[0]
        if not frames:
            return None
        if len(_known) >= _MAX_KNOWN:
            _known.clear()
        text = _shortened("\nwhich led to\n".join(_stack_text(*each) for each in reversed(chain)))
        raised = RaisedAt(_encodable(f"{name} at {_place(frames[-1])}"), _encodable(text))
        known = _known[way] = raised, named
    return known[0]


def _way(error: BaseException) -> tuple[tuple[int, ...], list[object]]:
    """Name the types of the exceptions and the places they came through, for the price of a dictionary's key.

    Types and code are named by their ids, because hashing code takes longer than all else here. The objects are
    returned with the way: while it is kept, they must be, too.
    """
    way: list[int] = []
    named: list[object] = []
    for each in _with_causes(error):
        passed: list[CodeType] = []
        places: list[int] = []
        at = each.__traceback__
        while at is not None:
            code = at.tb_frame.f_code
            passed.append(code)
            places += id(code), at.tb_lasti
            at = at.tb_next
        way.append(id(type(each)))
        way += places[-2 * _MAX_FRAMES :]
        named.append(type(each))
        named += passed[-_MAX_FRAMES:]
    return tuple(way), named


def _place(at: _Frame) -> str:
    frame, line = at
    return f"{frame.f_code.co_filename}:{line}, in {frame.f_code.co_name}"


def _shortened(text: str) -> str:
    return text if len(text) <= MAX_TRACEBACK_CHARS else "…" + text[1 - MAX_TRACEBACK_CHARS :]


def _with_causes(error: BaseException) -> Iterator[BaseException]:
    following: BaseException | None = error
    for _ in range(_MAX_CAUSES):
        if following is None:
            return
        yield following
        context = None if following.__suppress_context__ else following.__context__
        following = following.__cause__ or context


def _frames(error: BaseException) -> list[_Frame]:
    """Return the innermost frames it came through, without those of ours that called the user's code."""
    walked = list(deque(traceback.walk_tb(error.__traceback__), maxlen=_MAX_FRAMES))
    return list(dropwhile(_is_ours, walked)) or walked[-1:]


def _is_ours(frame: _Frame) -> bool:
    return str(frame[0].f_globals.get("__name__")).startswith(_OURS)


def _stack_text(name: str, frames: list[_Frame]) -> str:
    stack = traceback.StackSummary.extract(iter(frames))
    return "".join(["Traceback (most recent call last):\n", *stack.format(), name])


def _type_name(error: BaseException) -> str:
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _delay(error: RetryLater) -> float | None:
    """Return the delay that was requested; None if a subclass replaced it with something else."""
    seconds = getattr(error, "seconds", None)
    if isinstance(seconds, (int, float)) and math.isfinite(seconds) and seconds >= 0:
        return float(seconds)
    return None


def _text(said: object) -> str:
    try:
        return _without_traceback(str(said).strip())
    except BaseException as broken:  # noqa: BLE001 - a user's __str__ may raise anything; the failure still counts
        return f"(no text: its __str__ raised {type(broken).__name__})"


def _without_traceback(text: str) -> str:
    """Drop tracebacks inside a message, as in PySpark's; the last line of a bare one is its error."""
    before, found, traceback = text.partition(_TRACEBACK)
    if not found or before.strip():
        return before
    return traceback.rstrip().rpartition("\n")[2]


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    if len(line) > MAX_ERROR_CHARS:
        line = line[: MAX_ERROR_CHARS - 1] + "…"
    return _encodable(line)


def _encodable(text: str) -> str:
    """Replace lone surrogates: they cannot be stored as UTF-8, and the dead letter must be."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


_known: Final[dict[tuple[int, ...], tuple[RaisedAt, list[object]]]] = {}
"""By ``_way``, with the types and the code that it names."""
