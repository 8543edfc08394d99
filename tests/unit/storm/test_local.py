"""Local runs: their results, their errors, and state that holds no trace of what failed."""

import dataclasses
import runpy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.storm import BatchBolt, FailedException, KeyValueState, StatefulBolt, Topology, Tuple
from tests.support.storm.scripted_topology import (
    Declared,
    Scripted,
    acks,
    begin,
    given,
    see,
    singles,
    values_of,
)

WORDS = ["a b a", "b poison", "c c", "a c"]


class Counts(StatefulBolt):
    """Counts words; fails some, after it has counted them."""

    def declare_output_fields(self) -> list[str]:
        return ["word", "count"]

    def init_state(self, state: KeyValueState) -> None:
        self.state = state

    def execute(self, tup: Tuple) -> None:
        word = tup["word"]
        see("count", tup.task, (word,))
        count = self.state.get(word, 0) + 1
        self.state.put(word, count)
        self.collector.emit((word, count), tup)
        if word == "poison":
            self.collector.fail(tup, "poisoned")
        elif word != "forgotten":
            self.collector.ack(tup)


def splits(bolt: Scripted, tup: Tuple) -> None:
    for word in tup[0].split():
        bolt.collector.emit((word,), tup)
    bolt.collector.ack(tup)


def word_count(**options: Any) -> Topology:
    builder = begin(["sentence"])
    builder.set_bolt("split", Scripted(splits, ["word"])).shuffle_grouping("numbers")
    builder.set_bolt("count", Counts(), 3).fields_grouping("split", ["word"])
    return builder.build(**options)


def sentences(*texts: str) -> list[tuple[str]]:
    return [(text,) for text in texts]


class TestState:
    def test_a_failed_tree_leaves_no_trace_and_the_others_count_once(self) -> None:
        local = word_count().local()
        result = local.run(sentences("a b a", "b poison", "c c", "a c"))
        assert values_of(result.failed) == ["b poison"]
        assert local.state == {"count": {"a": 3, "b": 1, "c": 3}}
        assert ("c", 3) in result.emitted["count"]["default"]
        assert ("poison", 1) not in result.emitted["count"]["default"]

    def test_a_tree_that_times_out_leaves_no_trace_either(self) -> None:
        local = word_count().local()
        assert values_of(local.run(sentences("a b", "a forgotten")).failed) == ["a forgotten"]
        assert local.state == {"count": {"a": 1, "b": 1}}

    def test_a_tree_that_fails_in_a_stage_after_the_state_leaves_no_trace(self) -> None:
        def fails_second(bolt: Scripted, tup: Tuple) -> None:
            if tup["count"] == 2:
                bolt.collector.fail(tup, "no second")
            else:
                bolt.collector.ack(tup)

        builder = begin(["sentence"])
        builder.set_bolt("split", Scripted(splits, ["word"])).shuffle_grouping("numbers")
        builder.set_bolt("count", Counts(), 3).fields_grouping("split", ["word"])
        builder.set_bolt("sink", Scripted(fails_second), 2).global_grouping("count")
        local = builder.build().local()
        # In each run another one is the second: the first run fails "y x", the next "z x".
        result = local.run(sentences("x", "y x", "z x"))
        assert values_of(result.failed) == ["y x", "z x"]
        assert local.state == {"count": {"x": 1}}

    def test_a_batch_without_failures_runs_once(self) -> None:
        local = word_count().local()
        result = local.run(sentences("a b", "c"))
        assert len(given("count")) == result.counts["count"].executed == 3

    def test_a_tree_that_fails_before_it_comes_to_state_does_not_run_the_batch_again(self) -> None:
        def splits_some(bolt: Scripted, tup: Tuple) -> None:
            if tup[0] == "bad":
                bolt.collector.fail(tup, "bad")
            else:
                splits(bolt, tup)

        builder = begin(["sentence"])
        builder.set_bolt("split", Scripted(splits_some, ["word"])).shuffle_grouping("numbers")
        builder.set_bolt("count", Counts(), 3).fields_grouping("split", ["word"])
        local = builder.build().local()
        assert values_of(local.run(sentences("a", "bad")).failed) == ["bad"]
        assert given("count") == [("a",)]

    def test_goes_on_from_batch_to_batch(self) -> None:
        local = word_count().local()
        for _ in range(3):
            local.run(sentences("a b poison", "a"))
        assert local.state == {"count": {"a": 3}}

    def test_of_another_task_is_refused_as_on_spark(self) -> None:
        class Total(Counts):
            def execute(self, tup: Tuple) -> None:
                self.state.put("total", self.state.get("total", 0) + 1)
                self.collector.ack(tup)

        builder = begin(["word"])
        builder.set_bolt("count", Total(), 50).fields_grouping("numbers", ["word"])
        (reason,) = builder.build().run_local(sentences("a")).reasons
        assert "got 'total', which is of task" in reason

    def test_other_tuples_that_fail_each_time_keep_no_others_from_standing(self) -> None:
        def fails_first(bolt: Scripted, tup: Tuple) -> None:
            if tup["count"] == 1:
                bolt.collector.fail(tup, "always the first")
            else:
                bolt.collector.ack(tup)

        builder = begin(["sentence"])
        builder.set_bolt("split", Scripted(splits, ["word"])).shuffle_grouping("numbers")
        builder.set_bolt("count", Counts(), 3).fields_grouping("split", ["word"])
        builder.set_bolt("sink", Scripted(fails_first)).global_grouping("count")
        local = builder.build().local()
        # Without the one before it, each is the first.
        assert local.run(sentences(*["a b"] * 20)).acked == []
        assert local.state == {"count": {}}

    def test_keeps_what_failed_at_least_once_and_runs_nothing_again(self) -> None:
        local = word_count(state_guarantee="at_least_once").local()
        result = local.run(sentences("a b a", "b poison"))
        assert values_of(result.failed) == ["b poison"]
        assert local.state == {"count": {"a": 2, "b": 2, "poison": 1}}
        assert result.counts["count"].executed == 5

    def test_keeps_what_failed_without_ackers_as_nobody_knows(self) -> None:
        local = word_count(ackers=0).local()
        assert local.run(sentences("poison")).failed == []
        assert local.state == {"count": {"poison": 1}}


def test_results_come_in_the_order_of_the_tuples() -> None:
    def fails_odd(bolt: Scripted, tup: Tuple) -> None:
        if tup[0] % 2:
            bolt.collector.fail(tup, f"{tup[0]} is odd")
        else:
            bolt.collector.ack(tup)

    builder = begin()
    builder.set_bolt("bolt", Scripted(fails_odd), 4).fields_grouping("numbers", ["value"])
    result = builder.build(partitions=3, ackers=2).run_local(singles(20))
    assert result.acked == [(number,) for number in range(0, 20, 2)]
    assert result.reasons == [f"bolt: {number} is odd" for number in range(1, 20, 2)]


def test_counts_say_what_each_component_did_and_are_of_one_batch() -> None:
    builder = begin()
    builder.set_bolt("bolt", Scripted(acks), 4).fields_grouping("numbers", ["value"])
    local = builder.build().local()
    for batch in (10, 3):
        counts = local.run(singles(batch)).counts
        assert counts["numbers"].emitted == batch
        assert (counts["bolt"].executed, counts["bolt"].acked) == (batch, batch)
        assert counts["bolt"].sampled >= 1
        assert counts["bolt"].latency_ms > 0


@pytest.mark.parametrize(
    ("tuples", "options", "message"),
    [
        ([(1, 2)], {}, "component 'numbers', stream 'default': expected 1 values, .* got 2"),
        (["x"], {}, "component 'numbers', stream 'default': expected a list or tuple of values, got str"),
        (
            [],
            {"stream": "odd"},
            r"component 'numbers': expected a stream that it declares \(default\), got 'odd'",
        ),
        (
            [],
            {"spout": "number"},
            r"expected one of the topology's spouts \(numbers\), as in .* got 'number'",
        ),
    ],
)
def test_tuples_that_no_spout_could_emit_are_refused(
    tuples: list[Any], options: dict[str, Any], message: str
) -> None:
    builder = begin()
    builder.set_bolt("bolt", Scripted(acks)).shuffle_grouping("numbers")
    with pytest.raises(InvalidConfig, match=message):
        builder.build().run_local(tuples, **options)


def test_a_result_is_shown_with_the_reasons_and_without_tracebacks() -> None:
    builder = begin()
    builder.set_bolt("bolt", Scripted(lambda _, tup: 1 / tup[0])).shuffle_grouping("numbers")
    result = builder.build().run_local([(0,), (1,)])
    assert repr(result.failed) == (
        "[((0,), TreeEnd(failed, 'bolt: ZeroDivisionError: division by zero')), "
        "((1,), TreeEnd(timed out, 'bolt: neither acked nor failed by the end of the micro-batch'))]"
    )


def test_one_of_several_spouts_must_be_named() -> None:
    builder = begin()
    builder.set_spout("more", Declared())
    builder.set_bolt("bolt", Scripted(acks)).shuffle_grouping("numbers").shuffle_grouping("more")
    with pytest.raises(
        InvalidConfig,
        match=r"expected one of the topology's spouts \(numbers, more\), as in spout=\"numbers\"; got None",
    ):
        builder.build().run_local(singles(1))


def test_after_an_error_state_is_as_before_and_the_bolts_are_new() -> None:
    local = word_count().local()
    local.run(sentences("a"))
    with pytest.raises(InvalidConfig):
        local.run([("a b",), ("one", "too many")])
    assert local.state == {"count": {"a": 1}}
    assert local.run(sentences("a")).acked == [("a",)]
    assert local.state == {"count": {"a": 2}}


def test_every_task_is_cleaned_up_once_and_one_that_raises_keeps_nobody_from_it() -> None:
    class Closes(Scripted):
        def cleanup(self) -> None:
            see("closed", self.context.task, ())
            raise OSError("closed already")

    builder = begin()
    builder.set_bolt("bolt", Closes(acks), 3).all_grouping("numbers")
    local = builder.build().local()
    local.run(singles(1))
    local.close()
    local.close()
    assert len(given("closed")) == 3


class CountsTogether(BatchBolt, StatefulBolt):
    def init_state(self, state: KeyValueState) -> None:
        self.state = state

    def process_batch(self, batch: Sequence[Tuple]) -> None:
        for tup in batch:
            self.state.put(tup["word"], self.state.get(tup["word"], 0) + 1)
        if any(tup["word"] == "poison" for tup in batch):
            raise FailedException("poisoned")


def test_what_a_bolt_with_state_does_with_a_batch_that_fails_is_undone() -> None:
    builder = begin(["word"])
    builder.set_bolt("count", CountsTogether(), 2).fields_grouping("numbers", ["word"])
    local = builder.build(partitions=2).local()

    result = local.run([["a"], ["poison"], ["a"]])

    assert ["poison"] in [values for values, _ in result.failed]
    assert local.state.get("count", {}) == ({"a": 2} if result.acked else {})


SCRIPT = """
from kinesis_spout import KinesisSpout
from kinesis_spout.storm import BasicBolt, TopologyBuilder

seen = []

class Sink(BasicBolt):
    def __init__(self, into):
        self.mine, self.tell = [], lambda word: into.append(word)

    def process(self, tup):
        self.mine.append(tup["word"])
        seen.append(self.mine[-1])
        self.tell(self.mine[-1])

told = []
sink = Sink(told)
builder = TopologyBuilder()
builder.set_spout("words", KinesisSpout(stream="words", app="test"), fields=["word"])
builder.set_bolt("sink", sink).shuffle_grouping("words")
builder.build().run_local([["a"], ["b"]])
"""


def test_what_the_code_of_a_bolt_in_a_script_names_is_shared_and_the_bolt_itself_is_copied(
    tmp_path: Path,
) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    left = runpy.run_path(str(script), run_name="__main__")
    assert left["seen"] == left["told"] == ["a", "b"]
    assert left["sink"].mine == []


def test_a_value_whose_class_is_of_the_script_alone_cannot_travel_and_the_reason_says_the_cure() -> None:
    order = dataclasses.make_dataclass("Order", ["word"])
    order.__module__ = "__main__"

    def emits(bolt: Scripted, tup: Tuple) -> None:
        bolt.collector.emit((order(tup[0]),), tup)
        bolt.collector.ack(tup)

    builder = begin(["sentence"])
    builder.set_bolt("parse", Scripted(emits, ["order"])).shuffle_grouping("numbers")
    builder.set_bolt("count", Scripted(acks, [])).rebalance_grouping("parse")
    (reason,) = builder.build().run_local(sentences("a")).reasons
    assert "field 'order': expected a value that can be pickled and unpickled" in reason
    assert "put it into a module that the executors can import" in reason
