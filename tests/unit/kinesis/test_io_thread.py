import asyncio
import sys
import threading
from typing import Any

import pytest

from kinesis_spout.kinesis.io_thread import IoThread
from tests.support.waiting import wait_until


@pytest.fixture
def io() -> IoThread:
    return IoThread()


async def here() -> threading.Thread:
    return threading.current_thread()


def test_it_runs_while_something_holds_it(io: IoThread) -> None:
    loop = io.hold()
    first, second = io.run(here()), io.run(here())
    assert first is second
    assert io.runs(loop)
    io.release(loop)

    assert not first.is_alive()
    assert not io.runs(loop)
    assert io.run(here()) is not first


def test_what_a_coroutine_raises_comes_to_the_caller(io: IoThread) -> None:
    async def fail() -> None:
        raise LookupError("none")

    with pytest.raises(LookupError, match="none"):
        io.run(fail())


def test_tasks_that_nobody_waits_for_end_with_the_thread(io: IoThread) -> None:
    ended: list[str] = []

    async def hang() -> None:
        try:
            await asyncio.sleep(1_000)
        finally:
            ended.append("hang")

    tasks: list[Any] = []

    async def begin() -> None:
        tasks.append(asyncio.get_running_loop().create_task(hang()))
        await asyncio.sleep(0)

    io.run(begin())
    wait_until(lambda: ended == ["hang"], "the task to end")


def test_a_function_that_would_end_its_thread_ends_no_other(io: IoThread) -> None:
    raised: list[BaseException] = []

    def wait() -> None:
        try:
            io.run(io.in_thread(sys.exit))
        except BaseException as error:  # noqa: BLE001 - looked at below
            raised.append(error)

    threading.Thread(target=wait, daemon=True).start()
    wait_until(lambda: bool(raised), "the outcome")
    assert isinstance(raised[0], RuntimeError)
    assert isinstance(raised[0].__cause__, SystemExit)


def test_a_function_on_a_thread_of_its_own_holds_up_no_other(io: IoThread) -> None:
    both = threading.Barrier(2, timeout=30)

    async def meet() -> tuple[int, int]:
        return await asyncio.gather(io.in_thread(both.wait), io.in_thread(both.wait))

    assert sorted(io.run(meet())) == [0, 1]


def test_a_result_that_came_too_late_is_given_to_the_function_that_clears_it_away(io: IoThread) -> None:
    goes_on, unwanted = threading.Event(), list[bool]()

    async def give_up() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(io.in_thread(lambda: goes_on.wait(30), unwanted=unwanted.append), 0.01)

    io.run(give_up())
    assert not unwanted
    goes_on.set()
    wait_until(lambda: unwanted == [True], "the late result")
