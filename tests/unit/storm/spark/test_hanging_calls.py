"""What becomes of a call of a component that does not return."""

import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import pytest

from kinesis_spout.storm import (
    BasicBolt,
    BatchBolt,
    Bolt,
    Count,
    KeyValueState,
    StatefulBolt,
    TopologyBuilder,
    Tuple,
    Window,
    WindowedBolt,
)
from kinesis_spout.storm.local import LocalResult
from kinesis_spout.storm.spark import kept_runs as hanging_calls
from kinesis_spout.storm.spark.kept_runs import hanging_calls_end
from tests.support.storm.components import Sentences
from tests.support.waiting import wait_until

TIMEOUT_SECONDS = 0.1
HANGS: dict[str, Callable[[], None]] = {}
"""What is called at a word. Here, as each task of a bolt is a copy."""
RESET_AT = [0.0]
"""When the time-out of a tree was begun anew."""


@pytest.fixture(autouse=True)
def hangs() -> Iterator[None]:
    yield
    HANGS.clear()
    RESET_AT[0] = 0.0


class Upper(BasicBolt):
    def declare_output_fields(self) -> list[str]:
        return ["word"]

    def process(self, tup: Tuple) -> None:
        HANGS.get(tup[0], _nothing)()
        self.emit([tup[0].upper()])


class InBatches(BatchBolt):
    def process_batch(self, batch: Sequence[Tuple]) -> None:
        for tup in batch:
            HANGS.get(tup[0], _nothing)()


def run(last: Bolt, *words: str) -> LocalResult:
    builder = TopologyBuilder()
    builder.set_spout("words", Sentences())
    builder.set_bolt("first", Upper()).shuffle_grouping("words")
    subscriber = builder.set_bolt("last", last)
    if isinstance(last, StatefulBolt):
        subscriber.fields_grouping("first", ["word"])
    else:
        subscriber.shuffle_grouping("first")
    with hanging_calls_end(TIMEOUT_SECONDS, lambda: RESET_AT[0]):
        return builder.build().run_local([[word] for word in words])


def sleeps() -> None:
    time.sleep(60)


def loops() -> None:
    while True:
        try:
            sum(range(1_000))
        except Exception:  # noqa: BLE001 - as many a retry does
            time.sleep(0)


def reads() -> None:
    here, there = socket.socketpair()
    with here, there:
        here.recv(1)


def waits() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


@pytest.mark.parametrize("hang", [sleeps, loops, reads, waits])
def test_its_tuple_times_out_and_the_component_is_named_and_its_neighbours_go_on(
    hang: Callable[[], None],
) -> None:
    HANGS["poison"] = HANGS["POISON TOO"] = hang
    result = run(Upper(), "a", "poison", "b", "poison too", "c")
    assert result.acked == [["a"], ["b"], ["c"]]
    assert [end.timed_out for _, end in result.failed] == [True, True]
    said = "timed out: the call had not returned after 0.125 s"
    assert result.reasons == [f"first: {said}", f"last: {said}"]
    (_, first), _ = result.failed
    assert first.failure.raised is not None
    assert f"in {hang.__name__}" in first.failure.raised.kind
    assert "pytest" not in first.failure.raised.traceback
    assert (result.counts["first"].timed_out, result.counts["last"].timed_out) == (1, 1)


def test_a_batch_that_hangs_in_flush_fails_as_a_whole() -> None:
    HANGS["B"] = sleeps
    result = run(InBatches(), "a", "b")
    assert [values for values, _ in result.failed] == [["a"], ["b"]]
    assert result.reasons[0].startswith("last: timed out: ")


class Windows(WindowedBolt):
    length = Count(1)

    def execute_window(self, key: str, window: Window) -> None:
        HANGS.get(key, _nothing)()
        del window


class OnTicks(StatefulBolt):
    tick_seconds = 0

    def init_state(self, state: KeyValueState) -> None:
        self.state = state

    def execute(self, tup: Tuple) -> None:
        if tup.is_tick:
            self.state.put("A", "half-way")
            HANGS.get("tick", _nothing)()
        else:
            self.state.put(tup[0], "here")
            self.collector.ack(tup)


def test_a_window_and_a_tick_that_hang_are_interrupted_and_undone() -> None:
    HANGS["B"] = HANGS["tick"] = sleeps
    result = run(Windows(), "a", "b")
    assert [values for values, _ in result.failed] == [["b"]]
    assert result.reasons[0].startswith("last: timed out: ")

    result = run(OnTicks(), "a", "b")

    assert result.failed == []
    assert "timed out" in result.counts["last"].last_error


class LookedAt:
    """A time that stands still unless it is told to pass. Mutable."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self._looks = 0

    def __call__(self) -> float:
        self._looks += 1
        return self.now

    def passes(self, seconds: float) -> None:
        """Have this call be looked at before and after."""
        self._is_looked_at()
        self.now += seconds
        self._is_looked_at()

    def _is_looked_at(self) -> None:
        looks = self._looks + 2
        wait_until(lambda: self._looks >= looks, "this call was looked at")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> LookedAt:
    made = LookedAt()
    monkeypatch.setattr(hanging_calls, "monotonic", made)
    return made


def test_calls_that_return_may_take_the_whole_time_together(clock: LookedAt) -> None:
    HANGS.update(dict.fromkeys(["a", "b", "c", "d"], lambda: clock.passes(TIMEOUT_SECONDS / 2)))
    assert len(run(Upper(), "a", "b", "c", "d").acked) == 4


def test_a_call_that_begins_the_time_out_of_its_tuple_anew_may_go_on(clock: LookedAt) -> None:
    def goes_on() -> None:
        for _ in range(5):
            clock.passes(TIMEOUT_SECONDS)
            RESET_AT[0] = clock.now

    HANGS["a"] = goes_on
    assert run(Upper(), "a").acked == [["a"]]


def test_a_signal_that_comes_too_late_does_no_harm_and_a_handler_of_the_users_stays() -> None:
    run(Upper(), "a")
    signal.raise_signal(signal.SIGUSR2)
    seen: list[int] = []
    before = signal.signal(signal.SIGUSR2, lambda number, _: seen.append(number))
    try:
        run(Upper(), "a")
        signal.raise_signal(signal.SIGUSR2)
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert seen == [signal.SIGUSR2]


def test_a_call_that_takes_the_signal_for_itself_gets_none_of_ours() -> None:
    seen: list[int] = []
    before = signal.getsignal(signal.SIGUSR2)

    def takes_it() -> None:
        signal.signal(signal.SIGUSR2, lambda number, _: seen.append(number))
        time.sleep(TIMEOUT_SECONDS * 2)

    HANGS["a"] = takes_it
    try:
        assert run(Upper(), "a").acked == [["a"]]
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert seen == []


def test_on_another_thread_nothing_is_looked_at() -> None:
    watches: list[object] = [None]

    def look() -> None:
        with hanging_calls_end(TIMEOUT_SECONDS, lambda: 0.0):
            watches[:] = hanging_calls._watches

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert watches == []


def _nothing() -> None:
    """Returns at once."""
