"""Anchors, acks and fails: what a bolt says, and what that means for the spout's tuples."""

from collections import deque
from collections.abc import Callable

import pytest

from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.storm import Stream, Topology, TopologyBuilder, Tuple
from kinesis_spout.storm.running.bolt_task import _LOOK_THROUGH
from kinesis_spout.storm.running.counts import ComponentCounts
from kinesis_spout.storm.running.stage_run import StageRun
from kinesis_spout.testing import ManualClock
from tests.support.storm.scripted_topology import (
    Declared,
    Script,
    Scripted,
    acks,
    begin,
    given,
    holds,
    passes_on,
    see,
    singles,
    values_of,
)


def one_bolt(script: Script, *, at_flush: Script | None = None) -> TopologyBuilder:
    builder = begin()
    builder.set_bolt("bolt", Scripted(script, ["value"], at_flush=at_flush), 2).shuffle_grouping("numbers")
    return builder


def first_stage(topology: Topology, clock: Callable[[], float] = lambda: 0.0) -> StageRun:
    return StageRun(topology._programs(4)["numbers"], 0, 0, clock)


def fails_odd(bolt: Scripted, tup: Tuple) -> None:
    if tup[0] % 2:
        bolt.collector.fail(tup, "odd")
    else:
        bolt.collector.ack(tup)


@pytest.mark.parametrize("far", [False, True])
def test_a_tuple_anchored_to_several_fails_all_of_them(*, far: bool) -> None:
    def pairs(bolt: Scripted, tup: Tuple) -> None:
        bolt.held.append(tup)
        if len(bolt.held) == 2:
            first, second = bolt.held
            bolt.held = []
            bolt.collector.emit((first[0] // 2,), [first, second])
            bolt.collector.ack(first)
            bolt.collector.ack(second)

    builder = one_bolt(pairs)
    sink = builder.set_bolt("sink", Scripted(fails_odd), 3)
    if far:
        sink.fields_grouping("bolt", ["value"])
    else:
        sink.shuffle_grouping("bolt")
    result = builder.build().run_local(singles(8))
    assert values_of(result.failed) == [2, 3, 6, 7]
    assert result.reasons == ["sink: odd"] * 4


@pytest.mark.parametrize("times", [2, 3])
def test_an_anchor_named_more_than_once_is_one_tree_still(times: int) -> None:
    def repeats(bolt: Scripted, tup: Tuple) -> None:
        bolt.collector.emit(tup.values, [tup] * times)
        bolt.collector.ack(tup)

    builder = one_bolt(repeats)
    builder.set_bolt("sink", Scripted(fails_odd), 3).fields_grouping("bolt", ["value"])
    assert values_of(builder.build().run_local(singles(4)).failed) == [1, 3]


def test_a_diamond_is_done_when_both_of_its_sides_are() -> None:
    builder = begin()
    builder.set_bolt("left", Scripted(passes_on, ["value"])).shuffle_grouping("numbers")
    builder.set_bolt("right", Scripted(passes_on, ["value"]), 3).fields_grouping("numbers", ["value"])
    builder.set_bolt("join", Scripted(fails_odd), 2).fields_grouping("left", ["value"]).shuffle_grouping(
        "right"
    )
    result = builder.build().run_local(singles(6))
    assert values_of(result.failed) == [1, 3, 5]
    assert len(given("join")) == 12


def test_several_streams_go_to_those_that_subscribe_to_them() -> None:
    def sorts(bolt: Scripted, tup: Tuple) -> None:
        bolt.collector.emit(tup.values, tup, "odd" if tup[0] % 2 else "even")
        bolt.collector.emit((tup[0], "note"), tup, "notes")
        bolt.collector.ack(tup)

    builder = begin()
    streams = {"odd": ["value"], "even": ["value"], "notes": ["value", "text"]}
    builder.set_bolt("sort", Scripted(sorts, streams)).shuffle_grouping("numbers")
    builder.set_bolt("odds", Scripted(acks)).shuffle_grouping("sort", "odd")
    builder.set_bolt("evens", Scripted(acks)).global_grouping("sort", "even")
    result = builder.build().run_local(singles(5))
    assert (given("odds"), given("evens")) == ([(1,), (3,)], [(0,), (2,), (4,)])
    assert len(result.acked) == 5
    assert result.emitted["sort"]["notes"] == [(number, "note") for number in range(5)]


def test_each_of_several_spouts_runs_its_own_tuples_through_the_graph() -> None:
    builder = begin()
    builder.set_spout("letters", Declared({"default": ["letter"], "loud": ["letter"]}))
    builder.set_bolt("bolt", Scripted(acks)).shuffle_grouping("numbers").shuffle_grouping("letters", "loud")
    local = builder.build().local()
    assert local.run([("a",)], spout="letters").acked == [("a",)]
    assert given("bolt") == []
    assert local.run([("A",)], spout="letters", stream="loud").acked == [("A",)]
    assert local.run(singles(1), spout="numbers").acked == [(0,)]
    assert given("bolt") == [("A",), (0,)]


def test_what_is_emitted_without_anchors_fails_nobody() -> None:
    def unanchored(bolt: Scripted, tup: Tuple) -> None:
        bolt.collector.emit(tup.values)
        bolt.collector.ack(tup)

    builder = one_bolt(unanchored)
    builder.set_bolt("sink", Scripted(fails_odd)).global_grouping("bolt")
    result = builder.build().run_local(singles(4))
    assert len(result.acked) == 4
    assert result.counts["sink"].failed == 2


@pytest.mark.parametrize(
    ("way", "far"),
    [
        ("emit", False),
        ("emit", True),
        ("emit_all", False),
        ("emit_all", True),
        ("emit_telling_tasks", False),
        ("emit_telling_tasks", True),
        ("emit_direct", True),
    ],
)
def test_a_list_may_be_used_again_once_it_is_emitted(*, way: str, far: bool) -> None:
    def reuses(bolt: Scripted, tup: Tuple) -> None:
        row = [0]
        for number in range(3):
            row[0] = number
            if way == "emit_direct":
                bolt.collector.emit_direct(bolt.context.tasks["sink"][0], row, tup)
            elif way == "emit_all":
                bolt.collector.emit_all([row], tup)
            else:
                getattr(bolt.collector, way)(row, tup)
        bolt.collector.ack(tup)

    def acks_all(bolt: Scripted, tup: Tuple) -> None:
        see("flushed", 0, tup.values)
        bolt.collector.ack(tup)

    builder = begin()
    direct = way == "emit_direct"
    builder.set_bolt(
        "bolt", Scripted(reuses, {"default": Stream(("value",), direct=direct)})
    ).shuffle_grouping("numbers")
    sink = builder.set_bolt("sink", Scripted(holds, at_flush=acks_all))
    if direct:
        sink.direct_grouping("bolt")
    elif far:
        sink.global_grouping("bolt")
    else:
        sink.shuffle_grouping("bolt")
    result = builder.build().run_local(singles(1))
    assert result.emitted["bolt"]["default"] == [[0], [1], [2]]
    assert given("flushed") == [(0,), (1,), (2,)]


@pytest.mark.parametrize("script", [fails_odd, holds])
def test_without_ackers_every_tuple_is_acked_when_it_is_emitted(script: Script) -> None:
    builder = one_bolt(passes_on)
    builder.set_bolt("sink", Scripted(script)).global_grouping("bolt")
    result = builder.build(ackers=0).run_local(singles(4))
    assert len(result.acked) == 4
    assert len(given("sink")) == 4
    assert result.counts["sink"].timed_out == 0


def test_a_second_ack_or_fail_changes_nothing_and_is_counted() -> None:
    def twice(bolt: Scripted, tup: Tuple) -> None:
        collector = bolt.collector
        match tup[0]:
            case 0:
                collector.ack(tup)
                collector.ack(tup)
            case 1:
                collector.ack(tup)
                collector.fail(tup, "too late")
            case 2:
                collector.fail(tup, "first")
                collector.ack(tup)
            case 3:
                collector.fail(tup, "first")
                collector.fail(tup, "second")
            case 4:
                collector.ack(tup)
                raise ValueError("after the ack")

    result = one_bolt(twice).build().run_local(singles(5))
    assert result.acked == [(0,), (1,), (4,)]
    assert result.reasons == ["bolt: first"] * 2
    counts = result.counts["bolt"]
    assert (counts.acked, counts.failed, counts.acked_twice, counts.errors) == (3, 2, 4, 1)


@pytest.mark.parametrize("exchanged", [False, True])
def test_a_tuple_that_a_bolt_forgets_times_out_there_and_not_as_a_fail(*, exchanged: bool) -> None:
    def forgets(bolt: Scripted, tup: Tuple) -> None:
        if tup[0] == 1:
            bolt.collector.fail(tup, "bad")
        elif tup[0] != 2:
            bolt.collector.ack(tup)

    builder = begin()
    builder.set_bolt("pass", Scripted(passes_on, ["value"])).shuffle_grouping("numbers")
    bolt = builder.set_bolt("forgetful", Scripted(forgets), 2)
    if exchanged:
        bolt.fields_grouping("pass", ["value"])
    else:
        bolt.shuffle_grouping("pass")
    result = builder.build().run_local(singles(4))
    ends = {values[0]: end for values, end in result.failed}
    assert {number: (end.timed_out, end.component) for number, end in ends.items()} == {
        1: (False, "forgetful"),
        2: (True, "forgetful"),
    }
    assert ends[2].reason == "forgetful: neither acked nor failed by the end of the micro-batch"
    counts = result.counts["forgetful"]
    assert (counts.failed, counts.timed_out) == (1, 1)
    spout = result.counts["numbers"]
    assert (spout.emitted, spout.acked, spout.failed, spout.timed_out) == (4, 2, 1, 1)


def test_a_fail_counts_before_a_time_out_in_another_task() -> None:
    def only_last_fails(bolt: Scripted, tup: Tuple) -> None:
        if bolt.context.index == 2:
            bolt.collector.fail(tup, "here")

    builder = begin()
    builder.set_bolt("bolt", Scripted(only_last_fails), 3).all_grouping("numbers")
    (end,) = [end for _, end in builder.build().run_local(singles(1)).failed]
    assert not end.timed_out


def test_an_anchor_that_was_acked_is_refused_and_so_is_nothing_that_is_iterable() -> None:
    def acks_first(bolt: Scripted, tup: Tuple) -> None:
        bolt.collector.emit(("x",), deque([tup]))
        bolt.collector.ack(tup)
        with pytest.raises(InvalidConfig, match="got one that was acked before: emit first, then ack"):
            bolt.collector.emit(("x",), tup)

    result = one_bolt(acks_first).build().run_local(singles(1))
    assert (len(result.acked), result.counts["bolt"].errors) == (1, 0)


def test_what_a_bolt_says_of_a_tuple_after_its_time_out_comes_too_late() -> None:
    def keeps(bolt: Scripted, tup: Tuple) -> None:
        for old in bolt.held:
            with pytest.raises(InvalidConfig, match="got one that timed out before"):
                bolt.collector.emit(("late",), old)
            bolt.collector.ack(old)
            bolt.collector.fail(old)
        bolt.held = [tup]
        bolt.flush = lambda: None  # type: ignore[method-assign]

    builder = one_bolt(keeps)
    builder.set_bolt("sink", Scripted(acks)).fields_grouping("bolt", ["value"])
    local = builder.build().local()
    assert values_of(local.run([("first",)]).failed) == ["first"]
    second = local.run([("second",)])
    assert values_of(second.failed) == ["second"]
    assert second.counts["bolt"].acked_twice == 2
    assert second.counts["bolt"].acked == second.counts["bolt"].emitted == 0
    assert given("sink") == []


@pytest.mark.parametrize(("say", "said"), [(acks, "acked"), (fails_odd, "failed")])
def test_nothing_can_be_anchored_to_a_tuple_that_was_acked_or_failed(say: Script, said: str) -> None:
    def too_late(bolt: Scripted, tup: Tuple) -> None:
        say(bolt, tup)
        for anchors in (tup, [tup]):
            with pytest.raises(
                InvalidConfig, match=f"got one that (was )?{said} before: emit first, then ack"
            ):
                bolt.collector.emit(tup.values, anchors)
        see("refused", 0, tup.values)

    builder = one_bolt(too_late)
    result = builder.build().run_local([(1,)])
    assert given("refused") == [(1,)]
    assert result.counts["bolt"].emitted == 0


@pytest.mark.parametrize(
    ("emit", "message"),
    [
        (lambda to, tup: to.emit((1, 2), tup), "'default': expected 1 values, as many as fields.* got 2"),
        (lambda to, tup: to.emit((), [tup]), "'default': expected 1 values, as many as fields.* got 0"),
        (lambda to, tup: to.emit("x", tup), "'default': expected a list or tuple of values, got str"),
        (lambda to, tup: to.emit({"value": 1}, tup), "expected a list or tuple of values, got dict"),
        (
            lambda to, tup: to.emit(tup, ("x",)),
            "expected the values first, then anchors, .*; got Tuple first",
        ),
        (
            lambda to, tup: to.emit("default", tup, ["x"]),
            "expected the values first, then anchors, then the stream; got str first",
        ),
        (lambda to, tup: to.emit(5, tup), "expected a list or tuple of values, got int"),
        (
            lambda to, tup: to.emit((1,), tup, "other"),
            r"expected a stream that it declares \(default\), got 'other'",
        ),
        (
            lambda to, tup: to.emit_direct(1, (1,), tup),
            "'default': expected emit, because the stream is not declared",
        ),
        (lambda to, _: to.emit((1,), ["id"]), "expected tuples that execute was given as anchors, got str"),
        (lambda to, _: to.emit((1,), "id"), "expected tuples that execute was given as anchors, got str"),
        (
            lambda to, _: to.emit((1,), None),
            "expected tuples that execute was given as anchors, got NoneType",
        ),
        (
            lambda to, tup: to.emit((1,), [tup, 5]),
            "expected tuples that execute was given as anchors, got int",
        ),
        (lambda to, tup: to.emit_telling_tasks((1, 2), tup), "expected 1 values"),
        (lambda to, tup: to.emit_all([(1,), (1, 2)], tup), "expected 1 values"),
        (lambda to, tup: to.emit_all([(1,), 5], tup), "expected a list or tuple of values, got int"),
        (lambda to, _: to.emit_all([(1,)], ["id"]), "expected tuples that execute was given as anchors"),
    ],
)
def test_what_cannot_be_emitted_is_refused_by_name_and_fails_the_tuple_at_hand(
    emit: Script, message: str
) -> None:
    builder = one_bolt(lambda bolt, tup: emit(bolt.collector, tup))  # type: ignore[arg-type]
    builder.set_bolt("sink", Scripted(acks)).shuffle_grouping("bolt")
    result = builder.build().run_local(singles(1))
    with pytest.raises(AssertionError, match=message):
        raise AssertionError(result.reasons[0])
    assert result.reasons[0].startswith("bolt: InvalidConfig: component 'bolt'")
    assert given("sink") == []
    assert result.counts["bolt"].emitted == 0


def test_other_sequences_of_values_than_lists_and_tuples_are_sent_as_they_are() -> None:
    def emits_a_range(bolt: Scripted, tup: Tuple) -> None:
        bolt.collector.emit(range(tup[0], tup[0] + 1), tup)
        bolt.collector.ack(tup)

    builder = one_bolt(emits_a_range)
    builder.set_bolt("sink", Scripted(acks), 2).fields_grouping("bolt", ["value"])
    assert len(builder.build().run_local(singles(3)).acked) == 3
    assert sorted(given("sink")) == [(0,), (1,), (2,)]


def test_a_tree_is_overdue_when_the_message_time_out_is_over_and_not_when_it_was_reset() -> None:
    clock = ManualClock()
    run = first_stage(one_bolt(holds, at_flush=acks).build(message_timeout_seconds=30), clock.monotonic)
    task = run._task("bolt", 0)
    run.begin()
    for number in (1, 2):
        run.spout.emit_root((number,), number)
    first, second = task._held
    collector = task.collector

    clock.advance(29.9)
    assert not collector.is_overdue(first)
    collector.reset_timeout(first)
    clock.advance(0.1)
    assert not collector.is_overdue(first)
    assert collector.is_overdue(second)
    clock.advance(29.9)
    assert collector.is_overdue(first)

    run.begin()
    assert not collector.is_overdue(first)


NOW = [0.0]
"""The time, in seconds. Here, as bolts are copies."""


def takes_29_seconds(bolt: Scripted, tup: Tuple) -> None:
    NOW[0] += 29
    see("overdue", 0, [bolt.collector.is_overdue(tup)])
    if bolt.context.component == "bolt":
        bolt.collector.emit([tup[0]], tup)
    bolt.held.append(tup)


def acks_100_seconds_later(bolt: Scripted, tup: Tuple) -> None:
    NOW[0] += 100
    see("overdue", 0, [bolt.collector.is_overdue(tup)])
    bolt.collector.ack(tup)


def test_after_an_exchange_a_tree_has_the_whole_time_out_again_and_one_that_completes_late_is_done() -> None:
    builder = one_bolt(takes_29_seconds, at_flush=acks)
    last = Scripted(takes_29_seconds, at_flush=acks_100_seconds_later)
    builder.set_bolt("sink", last).fields_grouping("bolt", ["value"])
    result = builder.build(message_timeout_seconds=30).local(lambda: NOW[0]).run(singles(1))

    assert given("overdue") == [(False,), (False,), (True,)]
    assert len(result.acked) == 1


def test_a_reason_is_one_line_whatever_it_was_given_as() -> None:
    reasons = ["two\nlines", "", 5, None, "x" * 5_000]

    def fails(bolt: Scripted, tup: Tuple) -> None:
        bolt.collector.fail(tup, reasons[tup[0]])

    result = one_bolt(fails).build().run_local(singles(5))
    texts = [end.failure.error_text for _, end in result.failed]
    assert texts[:3] == ["two lines", "failed without a reason", "5"]
    assert len(texts[4]) == 2_000


def test_a_bolt_that_holds_many_tuples_for_a_while_lets_go_of_those_it_acked() -> None:
    def acks_the_one_before(bolt: Scripted, tup: Tuple) -> None:
        for old in bolt.held:
            bolt.collector.ack(old)
        bolt.held = [tup]

    run = first_stage(one_bolt(acks_the_one_before, at_flush=acks).build())
    run.begin()
    for number in range(1, 5 * _LOOK_THROUGH):
        run.spout.emit_root((number,), number)
        assert len(run._task("bolt", 0)._held) <= _LOOK_THROUGH
    run.finish()
    assert run.trees.opened == {}


def test_trees_that_begin_and_end_in_one_process_leave_nothing_to_tell() -> None:
    builder = one_bolt(passes_on)
    builder.set_bolt("sink", Scripted(acks)).shuffle_grouping("bolt")
    run = first_stage(builder.build())
    run.begin()
    for number in range(1, 100):
        run.spout.emit_root((number,), number)
        assert run.trees.opened == {}


def test_what_was_told_of_a_tree_whose_emit_was_ended_stays_with_that_tree() -> None:
    def passes_one_on(bolt: Scripted, tup: Tuple) -> None:
        if tup[0] == 1:
            bolt.collector.emit(tup.values, tup)
            raise KeyboardInterrupt
        bolt.collector.ack(tup)

    builder = one_bolt(passes_one_on)
    builder.set_bolt("sink", Scripted(acks)).global_grouping("bolt")
    program = builder.build()._programs(4)["numbers"]
    run = StageRun(program, 0, 0, lambda: 0.0, ends_run=(KeyboardInterrupt,))
    run.begin()
    with pytest.raises(KeyboardInterrupt):
        run.spout.emit_root((1,), 1)
    assert run.spout.emit_root((2,), 2) is False


def test_what_a_bolt_reports_of_itself_is_counted_and_summed_and_its_newest_value_kept() -> None:
    def reports(bolt: Scripted, tup: Tuple) -> None:
        bolt.collector.report_metric("seen", tup[0])
        bolt.collector.report_metric("state", {"of": tup[0]})
        bolt.collector.ack(tup)

    result = one_bolt(reports).build().run_local(singles(3))
    told = result.counts["bolt"].told()["metrics"]
    assert told["seen"] == {"count": 3, "total": 3, "last": 2}
    assert told["state"] == {"count": 3, "total": 0, "last": {"of": 2}}


def test_reports_of_several_tasks_add_up_and_a_value_that_json_does_not_know_is_told_as_text() -> None:
    counts, other = ComponentCounts(), ComponentCounts()
    counts.report("size", 2)
    other.report("size", 3.5)
    other.report("size", ComponentCounts)
    counts.add(other.take())
    assert other.metrics == {}
    told = counts.told()["metrics"]["size"]
    assert (told["count"], told["total"], told["last"]) == (3, 5.5, repr(ComponentCounts))


def test_tuples_that_are_emitted_together_are_those_that_are_emitted_one_by_one() -> None:
    def all_at_once(bolt: Scripted, tup: Tuple) -> None:
        (number,) = tup.values
        bolt.collector.emit_all(((each,) for each in range(number)), tup)
        bolt.collector.ack(tup)

    builder = one_bolt(all_at_once)
    builder.set_bolt("near", Scripted(fails_odd)).shuffle_grouping("bolt")
    builder.set_bolt("far", Scripted(acks), 2).fields_grouping("bolt", ["value"])
    result = builder.build().run_local([(0,), (1,), (4,)])
    assert result.counts["bolt"].emitted == 5
    assert [values for values, _ in result.failed] == [(4,)]
    assert result.counts["near"].executed == result.counts["far"].executed == 5
