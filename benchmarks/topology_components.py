"""The bolts of ``bench_topology``: they do next to nothing, so that what is measured is the way between them."""

from collections.abc import Mapping
from typing import Any

from kinesis_spout.storm import (
    BasicBolt,
    Bolt,
    KeyValueState,
    OutputCollector,
    StatefulBolt,
    TaskContext,
    Tuple,
)


class PassOn(Bolt):
    """Emits what it is given, and acks it."""

    def declare_output_fields(self) -> list[str]:
        return ["order"]

    def execute(self, tup: Tuple) -> None:
        self.collector.emit(tup.values, tup)
        self.collector.ack(tup)


class Ack(Bolt):
    """Acks what it is given."""

    def execute(self, tup: Tuple) -> None:
        self.collector.ack(tup)


class Repeat(Bolt):
    """Emits what it is given so many times."""

    def __init__(self, times: int) -> None:
        self._times = times

    def declare_output_fields(self) -> list[str]:
        return ["order"]

    def execute(self, tup: Tuple) -> None:
        for _ in range(self._times):
            self.collector.emit(tup.values, tup)
        self.collector.ack(tup)


class Key(Bolt):
    """Emits one of 1,000 keys for each tuple."""

    def declare_output_fields(self) -> list[str]:
        return ["key", "order"]

    def prepare(self, conf: Mapping[str, Any], context: TaskContext, collector: OutputCollector) -> None:
        super().prepare(conf, context, collector)
        self._number = 0

    def execute(self, tup: Tuple) -> None:
        self._number += 1
        self.collector.emit((self._number % 1000, tup.values[0]), tup)
        self.collector.ack(tup)


class Count(StatefulBolt):
    """Counts keys."""

    def init_state(self, state: KeyValueState) -> None:
        self._state = state

    def execute(self, tup: Tuple) -> None:
        key = tup.values[0]
        self._state.put(key, self._state.get(key, 0) + 1)
        self.collector.ack(tup)


class Split(BasicBolt):
    """Emits the words of a sentence."""

    def declare_output_fields(self) -> list[str]:
        return ["word"]

    def process(self, tup: Tuple) -> None:
        self.emit_all([(word,) for word in tup.values[0].split()])


class CountWords(StatefulBolt):
    """Adds to the counts of words."""

    def init_state(self, state: KeyValueState) -> None:
        self._state = state

    def execute(self, tup: Tuple) -> None:
        word, count = tup.values
        self._state.put(word, self._state.get(word, 0) + count)
        self.collector.ack(tup)


class CountWord(CountWords):
    """Counts words."""

    def execute(self, tup: Tuple) -> None:
        (word,) = tup.values
        self._state.put(word, self._state.get(word, 0) + 1)
        self.collector.ack(tup)
