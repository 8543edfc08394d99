"""Components that the tests of topologies wire up. In a module, so that executors can import them."""

import os
import threading
import time
from collections.abc import Mapping
from typing import Any
from zlib import crc32

from kinesis_spout.storm import (
    BasicBolt,
    Bolt,
    Count,
    FailedException,
    KeyValueState,
    OutputCollector,
    Seconds,
    Spout,
    StatefulBolt,
    TaskContext,
    Tuple,
    Window,
    WindowedBolt,
)
from tests.support.spark.micro_batch_world import DeliveryLog


class Sentences(Spout):
    """A spout that only declares: local runs put their own tuples in its place."""

    def declare_output_fields(self) -> list[str]:
        return ["sentence"]

    def next_tuple(self) -> None:
        raise AssertionError("a local run asks no spout")


class Split(BasicBolt):
    """Splits sentences into words; fails those that cannot be split."""

    def declare_output_fields(self) -> list[str]:
        return ["word"]

    def process(self, tup: Tuple) -> None:
        if "unsplittable" in tup["sentence"]:
            raise FailedException("cannot be split")
        for word in tup["sentence"].split():
            self.emit([word])


class LogWords(Bolt):
    """Writes every word it is given to a file, with its task; fails and forgets words on request."""

    def __init__(self, log: DeliveryLog) -> None:
        self._log = log

    def prepare(self, conf: Mapping[str, Any], context: TaskContext, collector: OutputCollector) -> None:
        super().prepare(conf, context, collector)
        self._context = context

    def execute(self, tup: Tuple) -> None:
        self._log.add(tup["word"], self._context.task, self._context.component)
        if tup["word"] == "poison":
            self.collector.fail(tup, "poisoned")
        elif tup["word"] != "forgotten":
            self.collector.ack(tup)


class LogProcesses(LogWords):
    """Writes in which process, and which task, it is given each word."""

    def execute(self, tup: Tuple) -> None:
        self._log.add(tup["word"], self._context.task, str(os.getpid()))
        self.collector.ack(tup)


class CountWords(StatefulBolt):
    """Counts words in its state; what a word has come to is written to a file as ``word=count``.

    After the word was counted, "poison" fails always, and "fickle" in the first micro-batch that brings it here.
    Of "lock" it keeps what cannot be pickled.
    """

    def __init__(self, log: DeliveryLog) -> None:
        self._log = log

    def declare_output_fields(self) -> list[str]:
        return ["word", "count"]

    def init_state(self, state: KeyValueState) -> None:
        self._state = state

    def execute(self, tup: Tuple) -> None:
        word = tup["word"]
        count = self._state.get(word, 0) + 1
        self._state.put(word, count)
        self._log.add(f"{word}={count}", os.getpid(), "count")
        if word == "poison":
            raise FailedException("poisoned")
        if word == "lock":
            self._state.put(word, threading.Lock())
        self.collector.emit([word, count], tup)
        self.collector.ack(tup)


class SlowNumbers(Spout):
    """Emits a number each 0.1 s and blocks meanwhile, as storm-starter's ``randomsentence.js`` does."""

    def __init__(self) -> None:
        self._rest = threading.Event()
        self.emitted = 0
        self.acked: list[int] = []

    def declare_output_fields(self) -> list[str]:
        return ["sentence"]

    def next_tuple(self) -> None:
        self._rest.wait(0.1)
        self.emitted += 1
        self.collector.emit([f"n{self.emitted}"], self.emitted)

    def ack(self, message_id: Any) -> None:
        self.acked.append(message_id)


class Numbers(Spout):
    """Emits the numbers below a limit; one that fails comes once more. Remembers what it was told."""

    def __init__(self, limit: int) -> None:
        self._waiting = [(number, 1) for number in range(limit)]
        self.acked: list[tuple[int, int]] = []
        self.failed: list[tuple[tuple[int, int], str]] = []
        self.late: list[tuple[tuple[int, int], str]] = []
        self.calls: list[str] = []
        self.most_pending = 0

    def declare_output_fields(self) -> list[str]:
        return ["sentence"]

    def activate(self) -> None:
        self.calls.append("activate")

    def deactivate(self) -> None:
        self.calls.append("deactivate")

    def close(self) -> None:
        self.calls.append("close")

    def next_tuple(self) -> None:
        if self._waiting:
            number, attempt = self._waiting.pop(0)
            words = {7: "poison", 8: "forgotten", 9: "unsplittable"}.get(number, "fine")
            words = words if attempt == 1 else "fine"
            self.collector.emit([f"n{number} {words}"], (number, attempt))

    def ack(self, message_id: Any) -> None:
        self.acked.append(message_id)

    def fail(self, message_id: Any, reason: str) -> None:
        self.failed.append((message_id, reason))
        self._waiting.append((message_id[0], 2))

    def timed_out(self, message_id: Any, reason: str) -> None:
        self.late.append((message_id, reason))
        self._waiting.append((message_id[0], 2))


class Hangs(BasicBolt):
    """Passes words on, in whose file it writes them; at "hang" it never returns."""

    def __init__(self, log: DeliveryLog) -> None:
        self._log = log

    def process(self, tup: Tuple) -> None:
        self._log.add(tup["word"], os.getpid(), "hangs")
        while tup["word"] == "hang":
            time.sleep(60)


class TimedKeys(BasicBolt):
    """Reads ``key time``."""

    def declare_output_fields(self) -> list[str]:
        return ["key", "time"]

    def process(self, tup: Tuple) -> None:
        key, time = tup["sentence"].split()
        self.emit([key, float(time)])


class LogWindows(WindowedBolt):
    """Writes every window to a file, as ``key: times``; a time that is none fails its tuple in windows by time."""

    def __init__(
        self, log: DeliveryLog, length: Count | Seconds, *, tick_seconds: float | None = None
    ) -> None:
        self._log = log
        self.length = length
        self.tick_seconds = tick_seconds

    def time_of(self, tup: Tuple) -> float:
        return super().time_of(tup) if isinstance(self.length, Count) else float(tup["time"])

    def execute_window(self, key: Any, window: Window) -> None:
        times = " ".join(f"{values['time']:g}" for values in window.tuples)
        self._log.add(f"{key}: {times}", os.getpid(), type(self.length).__name__)


class EmitsWindows(LogWindows):
    """Emits the times of every window instead."""

    def declare_output_fields(self) -> list[str]:
        return ["key", "times"]

    def execute_window(self, key: Any, window: Window) -> None:
        self.emit([key, " ".join(f"{values['time']:g}" for values in window.tuples)])


class EmitsOnTicks(StatefulBolt):
    """Gathers the times of each key, and emits them on a tick."""

    tick_seconds = 0.5

    def declare_output_fields(self) -> list[str]:
        return ["key", "times"]

    def init_state(self, state: KeyValueState) -> None:
        self._state = state

    def execute(self, tup: Tuple) -> None:
        if not tup.is_tick:
            self._state.put(tup["key"], f"{self._state.get(tup['key'], '')} {tup['time']:g}".strip())
            self.collector.ack(tup)
            return
        for key, times in self._state.items():
            self._state.delete(key)
            self.collector.emit([key, times])


class Ledger(StatefulBolt):
    """Counts how often each of the times of a key came, and passes them on."""

    def declare_output_fields(self) -> list[str]:
        return ["key", "times"]

    def init_state(self, state: KeyValueState) -> None:
        self._state = state

    def execute(self, tup: Tuple) -> None:
        for moment in tup["times"].split():
            counts = self._state.get(tup["key"], {})
            self._state.put(tup["key"], counts | {moment: counts.get(moment, 0) + 1})
        self.collector.emit(tup.values, tup)
        self.collector.ack(tup)


class LogsSomeTimes(BasicBolt):
    """Writes what it takes to a file; fails some tuples once or twice before: two calls of five.

    How often a tuple fails depends on its values alone, so no bad luck makes a test wait for a long rest.
    """

    def __init__(self, log: DeliveryLog) -> None:
        self._log = log

    def process(self, tup: Tuple) -> None:
        text = f"{tup['key']}: {tup['times']}"
        failing = f"{tup.component} failed"
        failures = sum(each.shard_id == failing and each.payload == text for each in self._log.deliveries())
        if failures < (2, 1, 1, 0, 0, 0)[crc32(text.encode()) % 6]:
            self._log.add(text, os.getpid(), failing)
            raise FailedException("away for a moment")
        self._log.add(text, os.getpid(), tup.component)
