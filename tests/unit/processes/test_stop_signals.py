"""Signals that ask for a stop, in processes of their own."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from math import inf
from typing import IO, TYPE_CHECKING, Any, cast

import pytest

from kinesis_spout.consumer.consumer import Consumer
from kinesis_spout.processes.stop_signals import Stop, stop_signals
from kinesis_spout.spark.driver.running_query import RunningQuery, await_termination

if TYPE_CHECKING:
    from pyspark.sql.streaming import query as streaming

SPOUT = """
import os, signal, time
from tests.support.consumer.world import World

world = World()
world.put(*map(str, range(1_000)))
handled = []
BEFORE
with world.spout() as tuples:
    for message_id, record in tuples:
        print("took", flush=True)
        BODY
        handled.append(record)
        tuples.ack(message_id)
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
again = world.spout()
rest = world.take(again, 1_000 - len(handled))
print(len(set(handled) | {each.values for each in rest}), "of 1,000,", len(handled) < 1_000, flush=True)
world.close()
"""


def started(program: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def read_until(output: IO[str] | None, line: str) -> None:
    assert output is not None
    for each in output:
        if each.startswith(line):
            return
    pytest.fail(f"the program ended without {line!r}")


def rest_of(process: "subprocess.Popen[str]") -> tuple[str, str]:
    """Give what else it writes until it ends; ``communicate`` would leave out what was read already."""
    assert process.stdout is not None
    assert process.stderr is not None
    out, err = process.stdout.read(), process.stderr.read()
    process.wait(30)
    return out, err


def spout_program(before: str = "", body: str = "pass") -> str:
    return SPOUT.replace("BEFORE", before).replace("BODY", body)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_program_that_iterates_stops_in_order(number: signal.Signals) -> None:
    with started(spout_program(body="time.sleep(0.001)")) as process:
        read_until(process.stdout, "took")
        process.send_signal(number)
        out, err = rest_of(process)
    assert out.endswith("1000 of 1,000, True\n"), "nothing is repeated, and nothing left out"
    assert err == "stopping: what was begun ends first; a second Ctrl-C does not wait\n"
    assert process.returncode == 0


def test_a_second_ctrl_c_does_not_wait_for_the_loops_body() -> None:
    with started(spout_program(body="time.sleep(600)")) as process:
        read_until(process.stdout, "took")
        process.send_signal(signal.SIGINT)
        read_until(process.stderr, "stopping")
        process.send_signal(signal.SIGINT)
        _, err = rest_of(process)
    assert err.rstrip().endswith("KeyboardInterrupt")
    assert process.returncode != 0


def test_a_handler_of_the_programs_own_is_left_alone() -> None:
    before = "signal.signal(signal.SIGTERM, lambda *_: (print('mine', flush=True), os._exit(7)))"
    with started(spout_program(before)) as process:
        read_until(process.stdout, "took")
        process.send_signal(signal.SIGTERM)
        out, _ = rest_of(process)
    assert "mine\n" in out
    assert process.returncode == 7


class Query(RunningQuery):
    """Runs until it is stopped. Mutable."""

    id, recentProgress, is_done = "1", [], False  # noqa: N815 - Spark's names, here and below

    def __init__(self) -> None:
        super().__init__("sums")
        self.is_awaited, self.stopped = threading.Event(), threading.Event()

    def _consumers(self) -> Mapping[str, Consumer]:
        return {}

    def _status_while_active(self) -> dict[str, Any]:
        return {}

    @property
    def isActive(self) -> bool:  # noqa: N802
        return not self.stopped.is_set()

    def exception(self) -> None:
        return None

    def _await_end(self, timeout: float | None) -> bool:
        self.is_awaited.set()
        return self.stopped.wait(timeout)

    def processAllAvailable(self) -> None:  # noqa: N802
        """Nothing is."""

    def stop(self) -> None:
        self.stopped.set()


def as_pyspark_does(_signal: int, _frame: object) -> None:
    raise AssertionError("every job would be cancelled")


as_pyspark_does.__module__ = "pyspark.core.context"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(("timeout", "answer"), [(None, None), (60.0, True)])
def test_a_program_that_awaits_a_query_stops_it(
    number: signal.Signals, timeout: float | None, answer: object
) -> None:
    query = Query()
    before = signal.signal(signal.SIGINT, as_pyspark_does)

    def tell() -> None:
        assert query.is_awaited.wait(30)
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=tell)
    thread.start()
    try:
        assert query.awaitTermination(timeout) is answer
        assert signal.getsignal(signal.SIGINT) is as_pyspark_does
    finally:
        signal.signal(signal.SIGINT, before)
        thread.join(30)
    assert not query.isActive


class StreamingQuery:
    """One of Spark's, in a micro-batch that ends after some looks at the newest progress. Mutable."""

    isActive = True  # noqa: N815 - Spark's names, here and below

    def __init__(self, looks: float, number: signal.Signals | None = signal.SIGTERM) -> None:
        self.looks = looks
        self.number = number
        self.stopped_after: object = None

    def awaitTermination(self, timeout: float) -> bool:  # noqa: N802
        assert timeout > 0
        if self.number is None:
            return True
        if self.stopped_after is None:
            signal.raise_signal(self.number)
        return False

    @property
    def status(self) -> dict[str, Any]:
        return {"isTriggerActive": self.looks != 0}

    @property
    def lastProgress(self) -> dict[str, int] | None:  # noqa: N802
        self.looks -= 1
        return {"batchId": 7} if self.looks <= 0 else None

    def stop(self) -> None:
        self.stopped_after = self.lastProgress


def await_spark(query: StreamingQuery, **more: float) -> None:
    await_termination(cast("streaming.StreamingQuery", query), **more)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_query_of_sparks_stops_at_the_end_of_its_micro_batch(number: signal.Signals) -> None:
    query = StreamingQuery(3, number)
    await_spark(query)
    assert query.stopped_after == {"batchId": 7}


def test_a_query_of_sparks_between_two_micro_batches_stops_at_once() -> None:
    query = StreamingQuery(1)
    await_spark(query)
    assert query.stopped_after == {"batchId": 7}
    assert query.looks == -1


def test_a_micro_batch_that_does_not_end_is_waited_for_for_a_while() -> None:
    query = StreamingQuery(inf)
    await_spark(query, stop_timeout_seconds=0.02)
    assert query.looks == inf
    assert query.isActive


def test_a_query_of_sparks_that_ended_is_not_stopped() -> None:
    query = StreamingQuery(3, None)
    await_spark(query)
    assert query.looks == 3


class FailingQuery(StreamingQuery):
    """Its micro-batch fails while the end is waited for."""

    def awaitTermination(self, timeout: float) -> bool:  # noqa: N802
        if not self.isActive:
            raise ValueError("the sink is full")
        return super().awaitTermination(timeout)

    @property
    def lastProgress(self) -> dict[str, int] | None:  # noqa: N802
        self.isActive = self.looks > 1
        return super().lastProgress


@pytest.mark.usefixtures("given_back")
def test_a_micro_batch_that_fails_after_the_signal_is_no_stop_in_order() -> None:
    query = FailingQuery(3)
    with pytest.raises(ValueError, match="the sink is full"):
        await_spark(query)
    assert query.stopped_after is None


def told(stop: Stop) -> bool:
    return stop.signal is not None


def test_a_loop_within_a_loop_stops_both() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with stop_signals() as outer, stop_signals() as inner:
        os.kill(os.getpid(), signal.SIGTERM)
        assert told(outer)
        assert told(inner)
    assert signal.getsignal(signal.SIGTERM) is before


def test_outside_of_the_main_thread_no_signal_is_taken() -> None:
    found: list[bool] = []

    def look() -> None:
        with stop_signals() as stop:
            found.append(stop.listens)

    thread = threading.Thread(target=look)
    thread.start()
    thread.join(30)
    assert found == [False]


@pytest.fixture
def given_back() -> Iterator[None]:
    """Give the signals back, also where a test fails."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("ends_first", ["outer", "inner"])
@pytest.mark.usefixtures("given_back")
def test_loops_that_end_in_another_order_give_the_signals_back_and_leave_the_other_one_to_stop(
    ends_first: str,
) -> None:
    before = signal.getsignal(signal.SIGINT)
    outer, inner = Stop(b""), Stop(b"")
    outer.listen()
    inner.listen()
    ended, other = (outer, inner) if ends_first == "outer" else (inner, outer)
    ended.end()
    signal.raise_signal(signal.SIGINT)
    assert told(other)
    assert not told(ended)
    other.end()
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.usefixtures("given_back")
def test_a_loop_that_ends_in_another_thread_leaves_signals_as_they_were() -> None:
    stop = Stop(b"")
    stop.listen()
    with ThreadPoolExecutor(1) as thread:
        thread.submit(stop.end).result(30)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    assert not told(stop)
    with stop_signals(b"") as following:
        signal.raise_signal(signal.SIGTERM)
        assert told(following)


AT_EACH_LINE = """
import faulthandler, signal, sys
from kinesis_spout.processes.stop_signals import stop_signals

faulthandler.dump_traceback_later(20, exit=True)
lines = -1  # before the signal

def trace(frame, event, arg):
    global left
    if event == "line":
        left -= 1
        if left == -1:
            signal.raise_signal(signal.SIGTERM)
    return trace

left = -1
while left < 0:
    lines += 1
    left = lines
    with stop_signals(b"") as stop:
        sys.settrace(trace)
        stop.wait(0.01)
        sys.settrace(None)
        assert (stop.signal is not None) == (left < 0)
print(lines > 3)
"""


def test_a_signal_at_any_moment_of_a_wait_is_taken() -> None:
    with started(AT_EACH_LINE) as process:
        out, err = rest_of(process)
    assert (out, err) == ("True\n", "")
