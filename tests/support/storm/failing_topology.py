"""A word count that fails at random, at rates, before and after its state. In a module, for executors."""

import random
from collections.abc import Mapping
from typing import Any

from kinesis_spout import KinesisSpout
from kinesis_spout.storm import BasicBolt, KeyValueState, StatefulBolt, Topology, TopologyBuilder, Tuple

VOCABULARY = [f"word{number}" for number in range(500)]


class RandomError(RuntimeError):
    """What a rate says."""


class HalfSplit(BasicBolt):
    """Splits a sentence; of so many it emits half of the words, and raises."""

    def __init__(self, rate: float) -> None:
        self._rate = rate

    def declare_output_fields(self) -> list[str]:
        return ["word"]

    def process(self, tup: Tuple) -> None:
        words = tup["sentence"].split()[1:]  # after its number
        fails = random.random() < self._rate
        for word in words[: len(words) // 2] if fails else words:
            self.emit([word])
        if fails:
            raise RandomError("half emitted")


class Count(StatefulBolt):
    """Counts words, and says what each has come to."""

    def declare_output_fields(self) -> list[str]:
        return ["word", "count"]

    def init_state(self, state: KeyValueState) -> None:
        self._state = state

    def execute(self, tup: Tuple) -> None:
        word = tup["word"]
        count = self._state.get(word, 0) + 1
        self._state.put(word, count)
        self.collector.emit((word, count), tup)
        self.collector.ack(tup)


class Sink(BasicBolt):
    """Raises for so many of the counts that it is given."""

    def __init__(self, rate: float) -> None:
        self._rate = rate

    def process(self, tup: Tuple) -> None:
        del tup
        if random.random() < self._rate:
            raise RandomError("the sink is down")


def failing_word_count(
    settings: Mapping[str, Any], *, half_rate: float = 0.0, sink_rate: float = 0.0, **options: Any
) -> Topology:
    """Wire it; the sink is fused with the bolt that counts."""
    builder = TopologyBuilder()
    builder.set_spout("sentences", KinesisSpout(scheme="text", **settings), fields=["sentence"])
    builder.set_bolt("split", HalfSplit(half_rate), 2).shuffle_grouping("sentences")
    builder.set_bolt("count", Count(), 2).fields_grouping("split", ["word"])
    builder.set_bolt("sink", Sink(sink_rate), 2).shuffle_grouping("count")
    return builder.build("failing word count", **options)


def sentences(count: int, words: int = 8) -> list[str]:
    """Make sentences, each beginning with its number."""
    drawn = random.Random(22)
    return [f"{number} {' '.join(drawn.choices(VOCABULARY, k=words))}" for number in range(count)]


def counted(put: list[str]) -> dict[str, int]:
    """Count what a topology must have counted."""
    totals: dict[str, int] = {}
    for sentence in put:
        for word in sentence.split()[1:]:
            totals[word] = totals.get(word, 0) + 1
    return totals
