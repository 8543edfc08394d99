"""Tuples that are combined before an exchange, against a recount of the sentences that were acked."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesis_spout.storm import (
    BasicBolt,
    Bolt,
    CombinerBolt,
    FailedException,
    KeyValueState,
    OutputCollector,
    StatefulBolt,
    TaskContext,
    Tuple,
)
from kinesis_spout.storm.running.blocks import GroupBlock
from tests.support.storm.scripted_topology import begin

pytestmark = pytest.mark.no_second_run

REFUSED, UNCOUNTABLE = "refused", "uncountable"
WORDS = ("a", "b", "c", "d", UNCOUNTABLE)
ROOTS = st.integers(1, (1 << 64) - 1)


class Split(BasicBolt):
    """Fails a sentence at its refused word, when it has emitted the words before it."""

    def declare_output_fields(self) -> list[str]:
        return ["word"]

    def process(self, tup: Tuple) -> None:
        for word in tup["sentence"].split():
            if word == REFUSED:
                raise FailedException(REFUSED)
            self.emit([word])


class Count(StatefulBolt):
    def init_state(self, state: KeyValueState) -> None:
        self._state = state

    def execute(self, tup: Tuple) -> None:
        self._state.put(tup["word"], self._state.get(tup["word"], 0) + tup["count"])
        if tup["word"] == UNCOUNTABLE:
            raise FailedException(UNCOUNTABLE)
        self.collector.ack(tup)


sentences = st.lists(st.sampled_from((*WORDS, REFUSED)), max_size=6).map(" ".join)


@given(
    batches=st.lists(st.lists(sentences, max_size=6), max_size=4),
    ackers=st.sampled_from((None, 2)),
    combiners=st.integers(0, 3),
)
def test_what_is_combined_counts_once_for_each_acked_sentence_and_not_at_all_for_a_failed_one(
    batches: Sequence[Sequence[str]], ackers: int | None, combiners: int
) -> None:
    """Several combiners in a row: what is combined is combined again, also behind another exchange."""
    builder = begin(["sentence"])
    builder.set_bolt("split", Split()).shuffle_grouping("numbers")
    before = "split"
    for number in range(combiners):
        tally = builder.set_bolt(
            f"tally{number}", CombinerBolt(["word"], value="count" if number else None), 2
        )
        if number == 1:
            tally.fields_grouping(before, ["word"])
        else:
            tally.shuffle_grouping(before)
        before = f"tally{number}"
    if not combiners:
        builder.set_bolt("one", CombinerBolt(["word"])).fields_grouping("split", ["word"])
        before = "one"
    builder.set_bolt("count", Count(), 2).fields_grouping(before, ["word"])
    local = builder.build(ackers=ackers, partitions=2).local()

    acked: Counter[str] = Counter()
    for batch in batches:
        result = local.run([[sentence] for sentence in batch])
        for (sentence,) in result.acked:
            acked.update(sentence.split())
        bad = [s for s in batch if {REFUSED, UNCOUNTABLE} & set(s.split())]
        assert sorted(values[0] for values, _ in result.failed) == sorted(bad)
        assert set(result.reasons) <= {f"split: {REFUSED}", f"count: {UNCOUNTABLE}"}

    assert local.state.get("count", {}) == acked


@given(st.dictionaries(ROOTS, st.lists(ROOTS, min_size=2, max_size=9), min_size=1, max_size=9))
def test_groups_travel_with_all_their_trees(groups: dict[int, list[int]]) -> None:
    travelled = GroupBlock.of(groups).groups()
    assert {root: members.tolist() for root, members in travelled.items()} == groups


def test_what_cannot_be_combined_fails_alone() -> None:
    builder = begin(["word", "weight"])
    tally = CombinerBolt(["word"], "weight", value="weight")
    builder.set_bolt("tally", tally).shuffle_grouping("numbers")
    builder.set_bolt("end", CombinerBolt(["word"], "n")).fields_grouping("tally", ["word"])

    result = builder.build().run_local([["a", 1], ["a", "heavy"], ["a", 2], [[], 3]])

    assert result.emitted["tally"]["default"] == [("a", 3)]
    assert [values for values, _ in result.failed] == [["a", "heavy"], [[], 3]]
    assert "unsupported operand" in result.reasons[0]
    assert "unhashable" in result.reasons[1]
    assert (result.counts["tally"].executed, result.counts["tally"].acked) == (4, 2)


def test_what_cannot_be_sent_on_fails_all_that_is_in_it_and_nothing_else() -> None:
    builder = begin(["day"])
    builder.set_bolt("tally", CombinerBolt(["day"])).shuffle_grouping("numbers")
    builder.set_bolt("end", CombinerBolt(["day"], "n", value="count")).fields_grouping("tally", ["day"])
    day = date(2026, 1, 1)  # It has not the same hash in every process.

    result = builder.build().run_local([["a"], [day], ["b"], [day]])

    assert result.emitted["end"]["default"] == [("a", 1), ("b", 1)]
    assert [values for values, _ in result.failed] == [[day], [day]]
    assert "got date" in result.reasons[0]


class Pair(Bolt):
    """Emits for two tuples together, and fails the first of them."""

    def declare_output_fields(self) -> list[str]:
        return ["word"]

    def prepare(self, conf: Mapping[str, Any], context: TaskContext, collector: OutputCollector) -> None:
        super().prepare(conf, context, collector)
        self._held: list[Tuple] = []

    def execute(self, tup: Tuple) -> None:
        self._held.append(tup)
        if len(self._held) == 2:
            self.collector.emit(["pair"], self._held)
            self.collector.fail(self._held[0], REFUSED)
            self.collector.ack(self._held[1])


def test_a_tuple_of_two_trees_is_combined_when_one_of_them_has_failed() -> None:
    builder = begin(["word"])
    builder.set_bolt("pair", Pair()).shuffle_grouping("numbers")
    builder.set_bolt("tally", CombinerBolt(["word"])).shuffle_grouping("pair")
    builder.set_bolt("end", CombinerBolt(["word"], "n")).fields_grouping("tally", ["word"])

    result = builder.build().run_local([["a"], ["b"]])

    assert [values for values, _ in result.failed] == [["a"]]
    assert result.emitted["tally"]["default"] == [("pair", 1)]
