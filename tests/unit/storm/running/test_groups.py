"""Careful runs: roots that are kept or taken back, groups of those that wait for each other, ticks, results."""

from collections.abc import Callable
from typing import Any
from unittest.mock import ANY

import pytest

from kinesis_spout.storm import BasicBolt, Bolt, KeyValueState, StatefulBolt, TopologyBuilder, Tuple
from kinesis_spout.storm.local import LocalResult, LocalTopology
from kinesis_spout.testing import ManualClock
from tests.support.storm.scripted_topology import Scripted, acks, begin, given, passes_on, see, values_of


class Sums(StatefulBolt):
    """Adds up numbers by key in a list, in place; passes the sum on."""

    def declare_output_fields(self) -> list[str]:
        return ["key", "sum"]

    def init_state(self, state: KeyValueState) -> None:
        self.state = state

    def execute(self, tup: Tuple) -> None:
        if tup.is_tick:
            self.tick()
            return
        numbers = self.state.get(tup["key"], [])
        numbers.append(tup["number"])
        self.state.put(tup["key"], numbers)
        self.collector.emit((tup["key"], sum(numbers)), tup)
        self.collector.ack(tup)

    def tick(self) -> None:
        """Nothing."""


def fails_above(most: int) -> Callable[[Scripted, Tuple], None]:
    def script(bolt: Scripted, tup: Tuple) -> None:
        if tup["sum"] > most:
            bolt.collector.fail(tup, "too much")
        else:
            bolt.collector.ack(tup)

    return script


def items(bolt: Scripted, tup: Tuple) -> None:
    """Emit each item of a record."""
    for key, number in tup[0]:
        bolt.collector.emit((key, number), tup)
    bolt.collector.ack(tup)


def sums(bolt: StatefulBolt, after: Bolt) -> TopologyBuilder:
    builder = begin(["items"])
    builder.set_bolt("items", Scripted(items, ["key", "number"])).shuffle_grouping("numbers")
    builder.set_bolt("sums", bolt, 3).fields_grouping("items", ["key"])
    builder.set_bolt("after", after).global_grouping("sums")
    return builder


def run_carefully(local: LocalTopology, *records: Any) -> LocalResult:
    return run_tuples_carefully(local, *[(record,) for record in records])


def run_tuples_carefully(local: LocalTopology, *tuples: Any) -> LocalResult:
    local._choices["numbers"].run(lambda: None, str, bool)  # in vain at once
    return local.run(tuples)


def test_each_root_is_kept_or_taken_back_with_all_its_keys_and_later_ones_see_nothing_of_it() -> None:
    local = sums(Sums(), Scripted(fails_above(5))).build().local()

    result = run_carefully(
        local, [("a", 3), ("b", 1)], [("b", 2), ("a", 3)], [("a", 2), ("b", 4)], [("b", 9)]
    )

    assert values_of(result.failed) == [[("b", 2), ("a", 3)], [("b", 9)]]
    assert local.state["sums"] == {"a": [3, 2], "b": [1, 4]}
    assert result.emitted["sums"]["default"] == [("a", 3), ("b", 1), ("a", 5), ("b", 5)]


def test_a_micro_batch_goes_on_one_by_one_while_trees_fail_and_at_once_again_when_none_does() -> None:
    local = sums(Sums(), Scripted(fails_above(5))).build().local()
    ran = []
    for number in (9, 1, 1):
        ran.append(local._choices["numbers"]._left > 0)
        local.run([([("a", 1), ("b", number)],)])

    assert ran == [False, True, False]
    assert local.state["sums"] == {"a": [1, 1], "b": [1, 1]}


def test_a_tuple_that_fails_where_it_has_changed_a_plain_value_is_undone_there_and_nothing_is_run_again() -> (
    None
):
    class Plain(Sums):
        def execute(self, tup: Tuple) -> None:
            total = self.state.get(tup["key"], 0) + tup["number"]
            self.state.put(tup["key"], total)
            self.collector.emit((tup["key"], total), tup)
            self.collector.ack(tup)

    builder = begin(["key", "number"])
    builder.set_bolt("sums", Plain(), 3).fields_grouping("numbers", ["key"])
    builder.set_bolt("after", Scripted(fails_above(5))).shuffle_grouping("sums")
    local = builder.build().local()

    result = local.run([("a", 3), ("a", 3), ("a", 2), ("b", 7), ("b", 1)])

    assert result.failed[0][0] == ("a", 3)
    assert local.state["sums"] == {"a": 5, "b": 1}
    assert result.counts["sums"].executed == 5
    assert not local._choices["numbers"]._left


def test_what_a_root_that_failed_had_sent_to_state_never_comes_there() -> None:
    def half(bolt: Scripted, tup: Tuple) -> None:
        for key, number in tup[0]:
            bolt.collector.emit((key, number), tup)
            if number > 5:
                raise ValueError("half emitted")
        bolt.collector.ack(tup)

    builder = begin(["items"])
    builder.set_bolt("items", Scripted(half, ["key", "number"])).shuffle_grouping("numbers")
    builder.set_bolt("sums", Sums(), 3).fields_grouping("items", ["key"])
    builder.set_bolt("beside", Scripted(acks)).fields_grouping("items", ["key"])
    result = builder.build().run_local([([("a", 1), ("b", 2)],), ([("a", 1), ("b", 9), ("c", 1)],)])

    assert result.counts["sums"].executed == 2
    assert result.counts["beside"].executed == 4, "without state tuples are executed, as ever"


class PassesOn(BasicBolt):
    def declare_output_fields(self) -> list[str]:
        return ["key", "number"]

    def process(self, tup: Tuple) -> None:
        self.emit(tup.values)


class Pairs(Bolt):
    """Emits two tuples as one, anchored to both, as soon as the second is there."""

    def declare_output_fields(self) -> list[str]:
        return ["key", "number"]

    def prepare(self, *given: Any) -> None:
        super().prepare(*given)
        self.waiting: Tuple | None = None

    def execute(self, tup: Tuple) -> None:
        if self.waiting is None:
            self.waiting = tup
            return
        first, self.waiting = self.waiting, None
        for key in "ab":
            self.collector.emit((key, first["number"] + tup["number"]), [first, tup])
        self.collector.ack(first)
        self.collector.ack(tup)


def test_roots_that_a_bolt_joins_are_kept_or_taken_back_together() -> None:
    def passes(bolt: Scripted, tup: Tuple) -> None:
        passes_on(bolt, tup)

    builder = begin(["number"])
    builder.set_bolt("pass", Scripted(passes, ["number"])).shuffle_grouping("numbers")
    builder.set_bolt("pairs", Pairs()).global_grouping("pass")
    builder.set_bolt("sums", Sums(), 3).fields_grouping("pairs", ["key"])
    builder.set_bolt("after", Scripted(fails_above(10))).global_grouping("sums")
    local = builder.build().local()

    # Of the first pair both fail; the next two stand; the fourth pair waits in vain for its second.
    result = run_carefully(local, 9, 2, 1, 2, 3, 4, 5)

    assert values_of(result.failed) == [9, 2, 5]
    assert result.failed[2][1].failure.timed_out
    assert local.state["sums"] == {"a": [3, 7], "b": [3, 7]}


def test_roots_that_are_held_until_a_tick_are_run_again_with_the_tick_without_those_that_failed() -> None:
    class Held(Sums):
        tick_seconds = 0

        def prepare(self, *given: Any) -> None:
            super().prepare(*given)
            self.held: list[Tuple] = []

        def execute(self, tup: Tuple) -> None:
            if not tup.is_tick:
                self.held.append(tup)
                return
            held, self.held = self.held, []
            for each in held:
                if not each.state:
                    super().execute(each)

    local = sums(Held(), Scripted(fails_above(5))).build().local()

    result = run_carefully(local, [("a", 3), ("b", 1)], [("a", 3), ("b", 1)], [("c", 2)])

    assert values_of(result.failed) == [[("a", 3), ("b", 1)]]
    assert local.state["sums"] == {"a": [3], "b": [1], "c": [2]}


def test_bolts_in_a_row_that_are_never_fused_may_be_more_than_python_nests_calls() -> None:
    builder = begin(["key", "number"])
    before = "numbers"
    for at in range(200):
        builder.set_bolt(f"pass {at}", PassesOn()).fields_grouping(before, ["key"])
        before = f"pass {at}"
    builder.set_bolt("sums", Sums(), 3).fields_grouping(before, ["key"])
    local = builder.build().local()
    local._choices["numbers"].run(lambda: None, str, bool)  # in vain at once

    assert local.run([("a", 1), ("a", 2)]).failed == []
    assert local.state["sums"] == {"a": [1, 2]}


class Closes(Sums):
    """On a tick passes on what it has of each key, and forgets it."""

    tick_seconds = 10

    def execute(self, tup: Tuple) -> None:
        if tup.is_tick:
            for key, numbers in list(self.state.items()):
                self.state.delete(key)
                self.collector.emit((key, sum(numbers)))
            return
        self.state.put(tup["key"], [*self.state.get(tup["key"], []), tup["number"]])
        self.collector.ack(tup)


def test_what_a_tick_has_emitted_is_emitted_again_alone_until_it_is_done_and_its_change_stands() -> None:
    clock = ManualClock()
    local = sums(Closes(), Scripted(fails_above(5))).build().local(clock.time)
    local.run([([("a", 4), ("b", 6)],)])

    for moment in range(3):
        clock.advance(10)
        result = local.run([([("c", 1)],)] if moment == 0 else [])
        assert result.failed == []
        assert local.state["sums"] == {}
        assert local.failed_results == {"sums": [("b", 6)]}


class Batches(Bolt):
    """Passes on what it was given when it is flushed, one by one, as a batching bolt of pystorm does."""

    def declare_output_fields(self) -> list[str]:
        return ["key", "number"]

    def prepare(self, *given: Any) -> None:
        super().prepare(*given)
        self.held: list[Tuple] = []

    def execute(self, tup: Tuple) -> None:
        self.held.append(tup)

    def flush(self) -> None:
        held, self.held = self.held, []
        if held:
            see("batches", 0, (len(held),))
        for tup in held:
            self.collector.emit(tup.values, tup)
            self.collector.ack(tup)


class Totals(Sums):
    """Adds up numbers by key, in a plain value."""

    def execute(self, tup: Tuple) -> None:
        total = self.state.get(tup["key"], 0) + tup["number"]
        self.state.put(tup["key"], total)
        self.collector.emit((tup["key"], total), tup)
        self.collector.ack(tup)


def test_behind_a_bolt_that_batches_a_failure_costs_a_flush_and_no_flush_for_each_record() -> None:
    def fails_once(bolt: Scripted, tup: Tuple) -> None:
        if tup["sum"] == 30 and given("failed") == []:
            see("failed", 0, ())
            bolt.collector.fail(tup, "away")
        else:
            bolt.collector.ack(tup)

    builder = begin(["key", "number"])
    builder.set_bolt("batches", Batches()).shuffle_grouping("numbers")
    builder.set_bolt("totals", Totals(), 2).fields_grouping("batches", ["key"])
    builder.set_bolt("after", Scripted(fails_once)).global_grouping("totals")
    local = builder.build().local()

    result = local.run([("a", 1)] * 60)

    assert result.failed == []
    assert local.state["totals"] == {"a": 60}
    assert given("batches") == [(60,), (60,)], "at once in vain, then carefully"


def test_what_fails_at_a_flush_is_undone_by_its_key_and_only_what_came_after_it_there_runs_again() -> None:
    builder = begin(["key", "number"])
    builder.set_bolt("batches", Batches()).shuffle_grouping("numbers")
    builder.set_bolt("totals", Totals(), 2).fields_grouping("batches", ["key"])
    builder.set_bolt("after", Scripted(fails_above(5))).global_grouping("totals")
    local = builder.build().local()

    result = run_tuples_carefully(local, *[(key, number) for number in (3, 9, 2) for key in "ab"], ("c", 1))

    assert result.failed == [(("a", 9), ANY), (("b", 9), ANY)]
    assert local.state["totals"] == {"a": 5, "b": 5, "c": 1}
    assert given("batches") == [(7,), (2,)]


def test_where_values_are_objects_groups_halve_until_one_root_is_to_blame_and_grow_again() -> None:
    builder = begin(["key", "number"])
    builder.set_bolt("batches", Batches()).shuffle_grouping("numbers")
    builder.set_bolt("sums", Sums(), 2).fields_grouping("batches", ["key"])
    builder.set_bolt("after", Scripted(fails_above(5))).global_grouping("sums")
    local = builder.build().local()

    result = run_tuples_carefully(local, *[("a", number) for number in (0, 0, 0, 0, 0, 0, 9, 0)])

    assert result.failed == [(("a", 9), ANY)]
    assert local.state["sums"] == {"a": [0] * 7}
    assert [size for (size,) in given("batches")] == [8, 4, 4, 2, 2, 1, 1]


class FailsHalfWay(Totals):
    """Holds tuples until a tick, in which it acks them; then it deletes keys, and raises half-way."""

    tick_seconds = 5

    def prepare(self, *given: Any) -> None:
        super().prepare(*given)
        self.held: list[Tuple] = []

    def execute(self, tup: Tuple) -> None:
        if not tup.is_tick:
            if tup["number"]:
                super().execute(tup)
            else:
                self.held.append(tup)
            return
        held, self.held = self.held, []
        for each in held:
            super().execute(each)
        for key, total in self.state.items():
            self.collector.emit((key, total))
            self.state.delete(key)
            if total > 10:
                raise ValueError("half-way")


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
@pytest.mark.parametrize("is_careful", [False, True])
def test_a_tick_that_raises_is_undone_with_all_that_it_has_acked(guarantee: str, *, is_careful: bool) -> None:
    clock = ManualClock()
    builder = begin(["key", "number"])
    builder.set_bolt("totals", FailsHalfWay()).fields_grouping("numbers", ["key"])
    builder.set_bolt("after", Scripted(acks)).global_grouping("totals")
    local = builder.build(state_guarantee=guarantee).local(clock.time)
    local.run([("a", 1), ("b", 11)])
    clock.advance(5)

    result = run_tuples_carefully(local, ("a", 0)) if is_careful else local.run([("a", 0)])

    assert values_of(result.failed) == ["a"]
    assert "undone, because the tick in which it was acked has raised" in result.reasons[0]
    assert local.state["totals"] == {"a": 1, "b": 11}
    assert given("after").count(("b", 11)) == 1, "nothing that it has emitted by itself came out"
    assert result.counts["totals"].last_error == "ValueError: half-way"
