import asyncio
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest

from kinesis_spout.kinesis import Prefetcher
from kinesis_spout.kinesis.io_thread import IO
from kinesis_spout.kinesis.read.prefetcher import Blocking
from kinesis_spout.model.clock import SystemClock
from tests.support import threads
from tests.support.waiting import wait_until

pytestmark = pytest.mark.no_second_run

_START = threading.Thread.start


def test_a_fetch_runs_when_it_is_due_and_not_before() -> None:
    clock = SystemClock()
    ran_at: list[float] = []
    due_at = clock.monotonic() + 0.2
    with Prefetcher() as prefetcher:
        prefetcher.submit(Blocking(lambda: ran_at.append(clock.monotonic())), due_at)
        wait_until(lambda: bool(ran_at), "the fetch")

    assert ran_at[0] >= due_at


def test_a_fetch_that_names_a_time_runs_again_until_it_names_none() -> None:
    runs: list[int] = []

    def fetch() -> float | None:
        runs.append(1)
        return 0.0 if len(runs) < 5 else None

    with Prefetcher() as prefetcher:
        prefetcher.submit(Blocking(fetch), 0.0)
        wait_until(lambda: len(runs) == 5, "five runs")

    assert len(runs) == 5


def test_one_that_is_due_earlier_overtakes_a_waiting_one() -> None:
    order: list[str] = []
    later = SystemClock().monotonic() + 2
    with Prefetcher(most=1) as prefetcher:
        prefetcher.submit(Blocking(lambda: order.append("later")), later)
        prefetcher.submit(Blocking(lambda: order.append("now")), 0.0)
        wait_until(lambda: len(order) == 2, "both")

    assert order == ["now", "later"]


def test_as_many_run_at_once_as_there_are_threads_allowed() -> None:
    together = threading.Barrier(3, timeout=30)
    met: list[int] = []

    def fetch() -> None:
        met.append(together.wait())

    with Prefetcher(most=3) as prefetcher:
        for _ in range(3):
            prefetcher.submit(Blocking(partial(fetch)), 0.0)
        wait_until(lambda: len(met) == 3, "three to meet")


def test_a_new_first_one_is_watched_for_although_a_thread_watches_for_a_later_one() -> None:
    clock = SystemClock()
    ran: list[int] = []
    with Prefetcher() as prefetcher:
        prefetcher.submit(Blocking(partial(ran.append, 0)), 0.0)
        wait_until(lambda: ran == [0], "its thread is there")
        for number in range(5, 1, -1):
            prefetcher.submit(Blocking(partial(ran.append, number)), clock.monotonic() + 1_000 * number)
        prefetcher.submit(Blocking(partial(ran.append, 1)), clock.monotonic() + 0.1)
        wait_until(lambda: ran == [0, 1], "the first of them")


def test_one_that_is_submitted_while_it_runs_runs_once_more_and_not_beside_itself() -> None:
    began, goes_on = threading.Event(), threading.Event()
    running: list[int] = []
    most: list[int] = []

    def fetch() -> float | None:
        running.append(1)
        most.append(len(running))
        began.set()
        assert goes_on.wait(30)
        running.pop()
        return None

    with Prefetcher(most=2) as prefetcher:
        prefetcher.submit(Blocking(fetch), 0.0)
        assert began.wait(30)
        prefetcher.submit(Blocking(fetch), 0.0)
        prefetcher.submit(Blocking(fetch), 0.0)
        goes_on.set()
        wait_until(lambda: len(most) == 2, "it runs again")

    assert most == [1, 1]


def test_it_is_behind_until_each_due_fetch_has_taken_its_first_step() -> None:
    """A door that gathers what polls bring would otherwise go on without one that is about to begin."""
    behind: list[bool] = []
    second_began, over = threading.Event(), threading.Event()

    async def second() -> None:
        second_began.set()

    async def first() -> None:
        prefetcher.submit(second, 0.0)
        while not second_began.is_set():
            behind.append(prefetcher.is_behind)
            await asyncio.sleep(0)
        over.set()

    with Prefetcher(most=2) as prefetcher:
        prefetcher.submit(first, 0.0)
        assert over.wait(30)

    assert set(behind) == {True}


def test_one_that_is_withdrawn_does_not_run_and_nothing_is_due() -> None:
    runs: list[int] = []
    with Prefetcher(most=1) as prefetcher:
        later = SystemClock().monotonic() + 60

        def fetch() -> float | None:
            runs.append(1)
            return None

        prefetcher.submit(Blocking(fetch), later)
        assert not prefetcher.is_behind
        prefetcher.withdraw(Blocking(fetch))
        prefetcher.hasten(Blocking(fetch))
        prefetcher.submit(Blocking(lambda: runs.append(2)), 0.0)
        wait_until(lambda: runs == [2], "the other one")


def test_closing_ends_the_thread_and_later_fetches_do_nothing() -> None:
    before = threads.named("kinesis-io")
    runs: list[int] = []
    prefetcher = Prefetcher(most=2)
    prefetcher.submit(Blocking(lambda: runs.append(1)), 0.0)
    wait_until(lambda: bool(runs), "the fetch")

    prefetcher.close()
    prefetcher.close()
    prefetcher.submit(Blocking(lambda: runs.append(2)), 0.0)

    wait_until(lambda: threads.named("kinesis-io") <= before, "its threads end")
    assert runs == [1]


def test_closing_abandons_what_runs() -> None:
    began, ended = threading.Event(), threading.Event()

    async def fetch() -> float | None:
        began.set()
        try:
            await asyncio.sleep(1_000)
        finally:
            ended.set()
        return 0.0

    prefetcher = Prefetcher()
    prefetcher.submit(fetch, 0.0)
    assert began.wait(30)
    prefetcher.close()

    assert ended.is_set()


@pytest.mark.parametrize("there_are", [1, 2])
def test_a_machine_that_starts_no_more_threads_ends_no_polling(
    monkeypatch: pytest.MonkeyPatch, there_are: int
) -> None:
    ran: list[int] = []
    started: list[threading.Thread] = []

    def start_few(thread: threading.Thread) -> None:
        if thread.name == "kinesis-io-worker":
            if len(started) == there_are:
                raise RuntimeError("can't start new thread")
            started.append(thread)
        _START(thread)

    def fetching(number: int) -> Callable[[], Coroutine[Any, Any, None]]:
        async def fetch() -> None:
            await IO.in_thread(partial(threading.Event().wait, 0.05))  # so that all are under way together
            ran.append(number)

        return fetch

    wait_until(lambda: not threads.named("kinesis-io"), "the I/O thread of other tests to end")
    monkeypatch.setattr(threading.Thread, "start", start_few)
    with Prefetcher(most=8) as prefetcher:
        for done in (8, 16):
            for number in range(8):
                prefetcher.submit(fetching(number), 0.0)
            wait_until(partial(lambda done: len(ran) == done, done), "all")

    assert len(started) == there_are


def test_it_polls_as_soon_as_the_io_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_until(lambda: not threads.named("kinesis-io"), "the I/O thread of other tests to end")
    prefetcher = Prefetcher()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", no_start)
        with pytest.raises(RuntimeError, match="new thread"):
            prefetcher.submit(Blocking(lambda: None), 0.0)
    ran: list[int] = []
    prefetcher.submit(Blocking(lambda: ran.append(1)), 1.0)
    wait_until(lambda: bool(ran), "a later one")
    prefetcher.close()


def test_one_whose_thread_could_not_be_started_can_be_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_until(lambda: not threads.named("kinesis-io"), "the I/O thread of other tests to end")
    prefetcher = Prefetcher()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", no_start)
        with pytest.raises(RuntimeError, match="new thread"):
            prefetcher.submit(Blocking(lambda: None), 0.0)

    prefetcher.close()


def no_start(thread: threading.Thread) -> None:
    if thread.name.startswith("kinesis-io"):
        raise RuntimeError("can't start new thread")
    _START(thread)
