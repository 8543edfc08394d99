"""Handlers that are called for several records at a time: by threads, and in an event loop."""

import asyncio
import contextvars
import gc
import pickle
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kinesis_spout.model.handler import Reject, RetryLater
from kinesis_spout.model.record import Record
from kinesis_spout.spark.concurrency.concurrent_calls import ConcurrentCalls
from kinesis_spout.spark.concurrency.record_schedule import RecordSchedule, RunRules
from kinesis_spout.spark.tasks.handlers import record_handler
from kinesis_spout.spark.tasks.journal import SliceNotes
from tests.support import threads
from tests.support.waiting import DEADLINE_SECONDS, wait_until

pytestmark = pytest.mark.no_second_run

NAMES = ("kinesis-spout-handler", "kinesis-spout-handler-loop")


def records(count: int) -> list[Record]:
    return [Record(data=str(at).encode(), sequence_number=str(at + 1)) for at in range(count)]


def calls_of(
    handler: Callable[[int], Any], concurrency: int = 4, timeout_seconds: float | None = None
) -> ConcurrentCalls:
    return ConcurrentCalls(
        handler,
        lambda record: int(record.data),
        concurrency=concurrency,
        timeout_seconds=timeout_seconds,
    )


def carry_out(
    calls: ConcurrentCalls, count: int, look_up: Callable[[], bool] = lambda: False, **rules: Any
) -> RecordSchedule:
    rules = {"concurrency": calls.concurrency} | rules
    run = RecordSchedule(count, RunRules(**rules), SliceNotes(None, 0), bytearray(count))
    calls(run, records(count), look_up)
    assert run.is_over
    return run


def errors(run: RecordSchedule) -> dict[int, str]:
    return {at: failure.error_text for at, failure in sorted(run.failures.items())}


class Meeting:
    """Lets those who come wait for each other, until so many are there. Thread-safe. Mutable."""

    def __init__(self, expected: int) -> None:
        self._barrier = threading.Barrier(expected, timeout=DEADLINE_SECONDS)
        self._lock = threading.Lock()
        self.here = self.most = 0

    def come(self) -> None:
        with self._lock:
            self.here += 1
            self.most = max(self.most, self.here)
        self._barrier.wait()
        with self._lock:
            self.here -= 1


class AsyncMeeting:
    """As ``Meeting``, for coroutines of one loop. Mutable."""

    def __init__(self, expected: int) -> None:
        self._expected = expected
        self._came = 0
        self._all: asyncio.Future[None] | None = None
        self.here = self.most = 0

    async def come(self) -> None:
        self._all = self._all or asyncio.get_running_loop().create_future()
        self.here += 1
        self.most = max(self.most, self.here)
        self._came += 1
        if self._came % self._expected == 0:
            self._all.set_result(None)
            self._all = None
        else:
            await asyncio.wait_for(asyncio.shield(self._all), DEADLINE_SECONDS)
        self.here -= 1


# What is common to both


def test_so_many_records_are_under_way_at_a_time_and_no_more() -> None:
    meeting = Meeting(4)
    run = carry_out(calls_of(lambda _: meeting.come()), 40)

    assert (run.begun, run.failures, meeting.most) == (40, {}, 4)

    together = AsyncMeeting(4)

    async def handle(_: int) -> None:
        await together.come()

    run = carry_out(calls_of(handle), 40)
    assert (run.begun, run.failures, together.most) == (40, {}, 4)


def raise_by(number: int) -> None:
    """Raise what a handler may raise, by the record's number."""
    raised = (
        None, ValueError("no"), Reject("never"), RetryLater(3.0), SystemExit(3), KeyboardInterrupt(),
        asyncio.CancelledError(), GeneratorExit(), None,
    )  # fmt: skip
    error = raised[number]
    if error is not None:
        raise error


async def raise_later_by(number: int) -> None:
    await asyncio.sleep(0)
    raise_by(number)


@pytest.mark.parametrize("handler", [raise_by, raise_later_by])
def test_whatever_a_handler_raises_fails_its_record_and_no_other(handler: Callable[[int], Any]) -> None:
    run = carry_out(calls_of(handler), 9)

    assert errors(run) == {
        1: "ValueError: no",
        2: "never",
        3: "RetryLater: asked for a retry after 3 s",
        4: "SystemExit: 3",
        5: "KeyboardInterrupt",
        6: "CancelledError",
        7: "GeneratorExit",
    }
    assert run.failures[2].rejected
    assert run.failures[3].delay_seconds == 3.0
    raised = run.failures[1].raised
    assert raised is not None
    assert "in raise_by" in raised.kind


@pytest.mark.parametrize("handler", [raise_by, raise_later_by])
def test_a_scheme_that_raises_fails_its_record(handler: Callable[[int], Any]) -> None:
    calls = ConcurrentCalls(handler, lambda record: record.nothing, concurrency=2)  # type: ignore[attr-defined]

    assert sorted(carry_out(calls, 2).failures) == [0, 1]


def test_a_handler_that_forgot_to_await_fails_its_records() -> None:
    async def work(_: int) -> None: ...

    def handle(number: int) -> object:
        return work(number)

    run = carry_out(calls_of(handle), 1)

    assert "make the handler itself an async def" in errors(run)[0]


@pytest.mark.parametrize("timeout_seconds", [None, 60.0])
def test_no_record_begins_when_nobody_waits_for_it_any_more(timeout_seconds: float | None) -> None:
    gone = threading.Event()

    def handle(number: int) -> None:
        if number == 3:
            gone.set()
        if number >= 3:
            asked.wait(DEADLINE_SECONDS)

    asked = threading.Event()

    def look_up() -> bool:
        if gone.is_set():
            asked.set()
            return True
        return False

    run = carry_out(calls_of(handle, 2, timeout_seconds), 10_000, look_up)
    assert run.begun < 10_000
    assert run.ended_count == run.begun


def test_an_async_def_needs_an_event_loop_and_more_than_one_record_or_a_time_out_threads() -> None:
    async def handle(_: int) -> None: ...

    def needs_concurrency(
        handler: Callable[..., object], concurrency: int, timeout_seconds: float | None
    ) -> bool:
        made = record_handler(handler, repr, concurrency=concurrency, timeout_seconds=timeout_seconds)
        return isinstance(made, ConcurrentCalls)

    assert needs_concurrency(handle, 1, None)
    assert not needs_concurrency(print, 1, None)
    assert needs_concurrency(print, 1, 5.0)
    assert needs_concurrency(print, 2, None)


def test_it_can_be_pickled_after_it_was_used() -> None:
    calls = ConcurrentCalls(print, repr, concurrency=2)
    carry_out(calls, 2)
    loaded = pickle.loads(pickle.dumps(calls))

    assert carry_out(loaded, 3).begun == 3


# Threads


@pytest.fixture(autouse=True)
def _threads_end_with_their_handler() -> Iterator[None]:
    before = threads.named(NAMES[0])
    yield
    gc.collect()
    wait_until(lambda: threads.named(NAMES[0]) <= before, "the threads of the handlers have ended")


def test_threads_stay_for_the_next_run() -> None:
    seen: set[int] = set()
    meeting = Meeting(4)

    def handle(_: int) -> None:
        meeting.come()
        seen.add(threading.get_ident())

    calls = calls_of(handle)
    for _ in range(5):
        carry_out(calls, 4)

    assert len(seen) == 4


def test_a_thread_that_times_out_fails_its_record_and_another_takes_its_place() -> None:
    released = threading.Event()
    late: list[int] = []

    def handle(number: int) -> None:
        if number == 0:
            assert released.wait(DEADLINE_SECONDS)
            late.append(number)

    calls = calls_of(handle, 1, 1.0)
    run = carry_out(calls, 3)

    assert errors(run) == {0: "timed out after 1 s (record_timeout_seconds)"}
    assert run.failures[0].timed_out
    raised = run.failures[0].raised
    assert raised is not None
    assert raised.kind.startswith("timed out at ")
    assert "in handle" in raised.traceback
    assert run.begun == 3
    released.set()
    wait_until(lambda: late == [0] and abandoned(calls) == 0, "the abandoned thread has ended")
    assert list(run.failures) == [0]
    assert carry_out(calls, 3).failures == {}


def abandoned(calls: ConcurrentCalls) -> int:
    runner = calls._runner
    assert runner is not None
    return calls.concurrency - runner._bounds.abandoned._value


def test_no_more_threads_are_abandoned_than_may_be_under_way() -> None:
    released = threading.Event()
    calls = calls_of(lambda _: released.wait(DEADLINE_SECONDS), 2, 0.02)
    run = RecordSchedule(5, RunRules(concurrency=2), SliceNotes(None, 0), bytearray(5))
    task = threading.Thread(target=lambda: calls(run, records(5), lambda: False))
    task.start()
    wait_until(lambda: len(run.failures) == 2 and len(run.under_way) == 2, "two are abandoned")
    stuck = dict(run.under_way)
    overdue = 20
    looked = threading.Event()
    for _ in range(overdue):
        looked.wait(0.01)
    assert run.under_way == stuck
    assert len(threads.named(NAMES[0])) == 4
    released.set()
    task.join(DEADLINE_SECONDS)

    assert run.is_over
    assert run.begun == run.ended_count == 5
    assert {0, 1} <= set(run.failures)


# An event loop


def test_the_loop_stays_for_the_next_run() -> None:
    loops: set[int] = set()

    async def handle(_: int) -> None:
        loops.add(id(asyncio.get_running_loop()))

    calls = calls_of(handle)
    for _ in range(3):
        carry_out(calls, 4)

    assert len(loops) == 1


def test_each_record_has_a_context_of_its_own() -> None:
    seen = []
    variable = contextvars.ContextVar("variable", default=-1)

    async def handle(number: int) -> None:
        seen.append(variable.get())
        variable.set(number)

    carry_out(calls_of(handle, 2), 6)

    assert seen == [-1] * 6


def test_a_coroutine_that_times_out_is_cancelled_and_fails_its_record() -> None:
    ended: list[str] = []

    async def handle(number: int) -> None:
        if number == 1:
            try:
                await asyncio.sleep(DEADLINE_SECONDS)
            except asyncio.CancelledError:
                ended.append("cancelled")
                raise

    calls = calls_of(handle, 2, 1.0)
    run = carry_out(calls, 4)

    assert errors(run) == {1: "timed out after 1 s (record_timeout_seconds)"}
    assert run.failures[1].timed_out
    raised = run.failures[1].raised
    assert raised is not None
    assert "in handle" in raised.traceback
    assert (ended, abandoned(calls)) == (["cancelled"], 0)


def test_a_coroutine_that_takes_no_notice_of_its_cancellation_fails_all_the_same() -> None:
    async def handle(_: int) -> None:
        with pytest.raises(asyncio.CancelledError):
            await asyncio.sleep(DEADLINE_SECONDS)

    assert errors(carry_out(calls_of(handle, 2, 0.05), 1)) == {
        0: "timed out after 0.05 s (record_timeout_seconds)"
    }


def test_a_coroutine_that_goes_on_after_its_cancellation_is_abandoned() -> None:
    released = asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def handle(number: int) -> None:
        loops.append(asyncio.get_running_loop())
        while number == 0 and not released.is_set():
            try:
                await released.wait()
            except asyncio.CancelledError:
                continue

    calls = calls_of(handle, 1, 1.0)
    run = carry_out(calls, 3)

    assert (list(run.failures), run.begun, abandoned(calls)) == ([0], 3, 1)
    loops[0].call_soon_threadsafe(released.set)
    wait_until(lambda: abandoned(calls) == 0, "the abandoned coroutine has ended")


def test_what_a_handler_does_to_its_loop_costs_no_record(caplog: pytest.LogCaptureFixture) -> None:
    def leave() -> None:
        raise SystemExit(3)

    async def handle(number: int) -> None:
        loop = asyncio.get_running_loop()
        if number == 1:
            loop.stop()
        if number == 2:
            loop.call_soon(leave)
        if number == 3:
            for task in asyncio.all_tasks():
                task.cancel()
        await asyncio.sleep(0)

    run = carry_out(calls_of(handle, 8), 20)

    assert (run.begun, run.ended_count) == (20, 20)
    assert set(errors(run).values()) == {"CancelledError"}
    assert "the event loop of a handler was ended" in caplog.text
