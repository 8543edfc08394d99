"""Bolts of every kind, in local runs."""

import logging
import time
from collections.abc import Sequence

import pytest

from kinesis_spout.model.handler import Reject, RetryLater
from kinesis_spout.storm import BasicBolt, BatchBolt, Bolt, FailedException, Tuple
from kinesis_spout.storm.local import LocalResult
from kinesis_spout.storm.running.stage_run import StageRun
from kinesis_spout.testing import ManualClock
from tests.support.storm.scripted_topology import (
    Scripted,
    acks,
    begin,
    given,
    passes_on,
    see,
    singles,
    values_of,
)


class Picky(BasicBolt):
    """Passes numbers on; raises for some."""

    def declare_output_fields(self) -> list[str]:
        return ["value"]

    def process(self, tup: Tuple) -> None:
        self.emit(tup.values)
        match tup["value"]:
            case 1:
                raise FailedException("one is\nnot wanted")
            case 2:
                raise Reject("never two")
            case 3:
                raise RetryLater(7.0)
            case 4:
                raise ZeroDivisionError("four")
            case 5:
                raise SystemExit


def picky(count: int) -> LocalResult:
    builder = begin()
    builder.set_bolt("picky", Picky()).shuffle_grouping("numbers")
    builder.set_bolt("sink", Scripted(acks)).shuffle_grouping("picky")
    return builder.build().run_local(singles(count))


class TestABasicBolt:
    def test_acks_what_it_returns_from_and_fails_what_it_raises_for(self) -> None:
        result = picky(7)
        assert result.acked == [(0,), (6,)]
        assert result.reasons == [
            "picky: one is not wanted",
            "picky: never two",
            "picky: RetryLater: asked for a retry after 7 s",
            "picky: ZeroDivisionError: four",
            "picky: SystemExit",
        ]
        assert not any(end.timed_out for _, end in result.failed)

    def test_leaves_a_tuple_as_it_is_that_process_has_failed_itself(self) -> None:
        class Fails(BasicBolt):
            def process(self, tup: Tuple) -> None:
                self.collector.fail(tup, "by itself")

        builder = begin()
        builder.set_bolt("fails", Fails()).shuffle_grouping("numbers")
        result = builder.build().run_local(singles(1))
        assert result.reasons == ["fails: by itself"]
        assert (result.counts["fails"].failed, result.counts["fails"].acked_twice) == (1, 0)

    def test_passes_verdicts_on_to_the_record(self) -> None:
        failures = {values[0]: end.failure for values, end in picky(5).failed}
        assert [failures[number].rejected for number in (1, 2, 3, 4)] == [False, True, False, False]
        assert failures[3].delay_seconds == 7.0
        assert failures[1].raised is None
        assert failures[4].raised is not None
        assert failures[4].raised.kind.startswith("ZeroDivisionError at ")

    def test_verdicts_are_no_errors(self) -> None:
        counts = picky(6).counts["picky"]
        assert (counts.executed, counts.acked, counts.failed, counts.errors) == (6, 1, 5, 2)
        assert counts.last_error == "SystemExit"

    def test_what_it_emits_outside_of_process_belongs_to_no_tree(self) -> None:
        class Late(Picky):
            def flush(self) -> None:
                self.emit((99,))

        def forgets_99(bolt: Scripted, tup: Tuple) -> None:
            if tup[0] != 99:
                bolt.collector.ack(tup)

        builder = begin()
        builder.set_bolt("late", Late()).shuffle_grouping("numbers")
        builder.set_bolt("sink", Scripted(forgets_99)).shuffle_grouping("late")
        result = builder.build().run_local(singles(1))
        assert result.acked == [(0,)]
        assert given("sink") == [(0,), (99,)]


def is_interrupted(bolt: Scripted, tup: Tuple) -> None:
    if tup[0] == 1:
        raise KeyboardInterrupt
    bolt.collector.ack(tup)


class InterruptedBatch(BatchBolt):
    def process_batch(self, batch: Sequence[Tuple]) -> None:
        is_interrupted(Scripted(), batch[1])


@pytest.mark.parametrize("bolt", [Scripted(is_interrupted), InterruptedBatch()])
def test_an_interrupt_ends_a_local_run_as_it_may_be_the_developers_ctrl_c(bolt: Bolt) -> None:
    builder = begin()
    builder.set_bolt("first", Scripted(passes_on, ["value"])).shuffle_grouping("numbers")
    builder.set_bolt("second", bolt).shuffle_grouping("first")
    with pytest.raises(KeyboardInterrupt):
        builder.build().run_local(singles(10))
    assert len(given("second")) <= 2
    assert len(given("first")) in (2, 10)


def test_an_interrupt_in_a_worker_fails_its_tuple_alone() -> None:
    builder = begin()
    builder.set_bolt("bolt", Scripted(is_interrupted)).shuffle_grouping("numbers")
    run = StageRun(builder.build()._programs(1)["numbers"], 0, 0, time.monotonic)
    run.begin()
    for number in range(3):
        run.spout.emit_root((number,), number + 1)
    assert given("bolt") == [(0,), (1,), (2,)]
    assert {root: end.reason for root, end in run.trees.ends.items()} == {2: "bolt: KeyboardInterrupt"}


class Sums(BatchBolt):
    max_batch = 4

    def declare_output_fields(self) -> list[str]:
        return ["sum"]

    def process_batch(self, batch: Sequence[Tuple]) -> None:
        self.collector.emit((sum(tup[0] for tup in batch),), batch)
        for tup in batch:
            if tup[0] == 6:
                self.collector.ack(tup)
            if tup[0] in (7, 16):
                raise ValueError("no")


@pytest.mark.parametrize("grouping", ["shuffle_grouping", "global_grouping"])
class TestABatchBolt:
    """In the process of its tuples' source, and behind an exchange, where it takes whole blocks."""

    def test_is_given_batches_and_its_tuples_are_acked_for_it(self, grouping: str) -> None:
        builder = begin()
        getattr(builder.set_bolt("sums", Sums()), grouping)("numbers")
        builder.set_bolt("sink", Scripted(acks)).shuffle_grouping("sums")
        result = builder.build().run_local([*singles(4), (10,)])
        assert result.emitted["sums"] == {"default": [(6,), (10,)]}
        assert len(result.acked) == 5

    def test_fails_the_tuples_of_a_batch_it_raises_for_and_keeps_what_it_acked(self, grouping: str) -> None:
        builder = begin()
        getattr(builder.set_bolt("sums", Sums()), grouping)("numbers")
        result = builder.build().run_local([(number,) for number in (5, 6, 7, 8, 10, 15, 16)])
        assert result.acked == [(6,)]
        assert set(result.reasons) == {"sums: ValueError: no"}
        assert (result.counts["sums"].errors, result.counts["sums"].failed) == (2, 6)

    def test_fails_the_trees_of_all_its_anchors_when_what_it_emitted_fails(self, grouping: str) -> None:
        def fails(bolt: Scripted, tup: Tuple) -> None:
            bolt.collector.fail(tup, "wrong sum")

        builder = begin()
        getattr(builder.set_bolt("sums", Sums()), grouping)("numbers")
        builder.set_bolt("sink", Scripted(fails)).global_grouping("sums")
        result = builder.build().run_local(singles(4))
        assert result.reasons == ["sink: wrong sum"] * 4


class Ticking(Bolt):
    tick_seconds = 60.0

    def execute(self, tup: Tuple) -> None:
        see("tick" if tup.is_tick else "tuple", tup.task, tup.values)
        if tup.is_tick:
            raise ValueError("at a tick")
        self.collector.ack(tup)


def test_a_tick_comes_at_the_end_of_the_first_batch_after_its_time() -> None:
    clock = ManualClock()
    builder = begin()
    builder.set_bolt("ticking", Ticking()).shuffle_grouping("numbers")
    local = builder.build().local(clock.monotonic)

    ticks = []
    for seconds in (0, 59, 1, 30, 30, 200, 59.5):
        clock.advance(seconds)
        result = local.run(singles(1))
        assert result.acked == [(0,)]
        ticks.append(len(given("tick")))
    assert ticks == [0, 0, 1, 1, 2, 3, 3]
    assert result.counts["ticking"].executed == 1


def test_a_tick_comes_before_the_flush_so_it_can_finish_what_is_held() -> None:
    class Window(Scripted):
        tick_seconds = 0

    def acks_at_a_tick(bolt: Scripted, tup: Tuple) -> None:
        if not tup.is_tick:
            bolt.held.append(tup)
        else:
            for held in bolt.held:
                bolt.collector.ack(held)
            bolt.held = []

    builder = begin()
    builder.set_bolt("window", Window(acks_at_a_tick)).shuffle_grouping("numbers")
    assert len(builder.build().run_local(singles(3)).acked) == 3


def test_ticks_that_a_bolt_acks_or_fails_as_bolts_of_storm_do_are_not_counted_as_tuples() -> None:
    class Ticked(Scripted):
        tick_seconds = 0

    builder = begin()
    builder.set_bolt("acks", Ticked(acks)).shuffle_grouping("numbers")
    builder.set_bolt("fails", Ticked(lambda bolt, tup: bolt.collector.fail(tup))).shuffle_grouping("numbers")
    counts = builder.build().run_local(singles(3)).counts
    assert (counts["acks"].executed, counts["acks"].acked) == (3, 3)
    assert (counts["fails"].executed, counts["fails"].failed) == (3, 3)


def test_what_a_bolt_raises_at_a_tick_is_an_error_that_fails_no_tuple(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock()
    builder = begin()
    builder.set_bolt("ticking", Ticking()).shuffle_grouping("numbers")
    local = builder.build().local(clock.monotonic)
    local.run(singles(1))
    clock.advance(60)
    with caplog.at_level(logging.WARNING):
        result = local.run(singles(1))
    assert result.acked == [(0,)]
    assert result.counts["ticking"].last_error == "ValueError: at a tick"
    assert "component ticking: ValueError: at a tick" in caplog.text


def test_bolts_are_flushed_in_the_order_of_the_flow_so_what_a_flush_emits_is_still_finished() -> None:
    def holds(bolt: Scripted, tup: Tuple) -> None:
        bolt.held.append(tup)

    def emits(bolt: Scripted, tup: Tuple) -> None:
        see("flushed", 0, (bolt.context.component,))
        bolt.collector.emit(tup.values, tup)
        bolt.collector.ack(tup)

    builder = begin()
    builder.set_bolt("third", Scripted(holds, ["x"], at_flush=emits)).fields_grouping("second", ["x"])
    builder.set_bolt("second", Scripted(holds, ["x"], at_flush=emits)).shuffle_grouping("first")
    builder.set_bolt("first", Scripted(holds, ["x"], at_flush=emits)).shuffle_grouping("numbers")
    result = builder.build().run_local(singles(2))
    assert len(result.acked) == 2
    assert [component for (component,) in given("flushed")] == ["first"] * 2 + ["second"] * 2 + ["third"] * 2


def test_what_flush_raises_fails_what_the_bolt_still_holds() -> None:
    def holds_all_but_0(bolt: Scripted, tup: Tuple) -> None:
        if tup[0] == 0:
            bolt.collector.ack(tup)
        else:
            bolt.held.append(tup)

    def refuses(bolt: Scripted, tup: Tuple) -> None:
        bolt.collector.ack(tup)
        raise Reject("not at the end")

    builder = begin()
    builder.set_bolt("bolt", Scripted(holds_all_but_0, at_flush=refuses)).shuffle_grouping("numbers")
    result = builder.build().run_local(singles(4))
    assert result.acked == [(0,), (1,)]
    assert values_of(result.failed) == [2, 3]
    assert {(end.reason, end.failure.rejected) for _, end in result.failed} == {
        ("bolt: not at the end", True)
    }
    assert result.counts["bolt"].errors == 0


def test_what_prepare_raises_names_the_component() -> None:
    class Broken(Picky):
        def prepare(self, *_: object) -> None:
            raise OSError("no connection")

    builder = begin()
    builder.set_bolt("broken", Broken()).shuffle_grouping("numbers")
    with pytest.raises(OSError, match="no connection") as raised:
        builder.build().run_local(singles(1))
    assert raised.value.__notes__ == ["raised by prepare of component 'broken', task 2"]


def test_prepare_gets_the_conf_of_the_topology_with_that_of_the_component_over_it() -> None:
    def tells(bolt: Scripted, tup: Tuple) -> None:
        see("conf", 0, (dict(bolt.conf),))
        bolt.collector.ack(tup)

    builder = begin()
    builder.set_bolt("a", Scripted(tells), conf={"size": 2}).shuffle_grouping("numbers")
    builder.build("named", conf={"size": 1, "other": 3}, message_timeout_seconds=5).run_local(singles(1))
    assert given("conf") == [
        ({"topology.name": "named", "topology.message.timeout.secs": 5.0, "size": 2, "other": 3},)
    ]


def test_a_value_is_found_by_its_fields_name_or_place_and_a_wrong_name_lists_the_fields() -> None:
    def reads(_: Scripted, tup: Tuple) -> None:
        assert tup["b"] == tup[1] == 2
        assert (tup.component, tup.stream, tup.task, tup.fields, len(tup)) == (
            "numbers",
            "default",
            1,
            ("a", "b"),
            2,
        )
        assert repr(tup) == "Tuple(numbers/default: a=1, b=2)"
        tup["c"]

    builder = begin(["a", "b"])
    builder.set_bolt("bolt", Scripted(reads)).shuffle_grouping("numbers")
    (reason,) = builder.build().run_local([(1, 2)]).reasons
    assert "'numbers' has no field 'c' in its stream 'default', only a, b" in reason
