"""What becomes of the records of a slice: those whose trees are done, are open after a stage, or failed."""

from collections.abc import Sequence
from typing import Any

import pytest

from kinesis_spout.consumer.limits.record_age import RecordAge
from kinesis_spout.kinesis.read.polled_getter import Cursor
from kinesis_spout.model.errors import ShardNotFound
from kinesis_spout.model.handler import Failure, NotNow, Reject, RetryLater, failure_of
from kinesis_spout.model.record import Record
from kinesis_spout.ports import Page
from kinesis_spout.spark.tasks.delivery import DeliverySettings
from kinesis_spout.spark.tasks.work import Unfinished as UnfinishedRecord
from kinesis_spout.spark.tasks.work import WorkResult
from kinesis_spout.storm import Topology, TopologyBuilder
from kinesis_spout.storm.running.acking import TreeEnd
from kinesis_spout.storm.running.blocks import AckBlock, RecordBlock
from kinesis_spout.storm.running.stage_run import StageRun
from kinesis_spout.storm.running.trees import place_of
from kinesis_spout.storm.spark.tree_delivery import (
    FailedTree,
    TreeDelivery,
    failed_trees,
    with_failed,
)
from shard_state import Fate, Order, Position, Redelivery, SequenceNumber, SliceKind, SliceOutcome, SlicePlan
from tests.support.storm.components import Sentences, Split

ACKERS = 2
NEVER = 1e9
ENDED = TreeEnd(component="count", failure=Failure(error_text="no more"))


def records(*sentences: str) -> list[Record]:
    return [
        Record(data=text.encode(), sequence_number=str(number), partition_key="key", shard_id="shard")
        for number, text in enumerate(sentences, 1)
    ]


def plan(**changes: Any) -> SlicePlan:
    fields: dict[str, Any] = {
        "kind": SliceKind.READ,
        "shard_id": "shard",
        "epoch": 1,
        "limit": 1_000,
        "position": Position.trim_horizon(),
        "max_failures": 1_000,
        **changes,
    }
    return SlicePlan(**fields)


def sentence(record: Record) -> Sequence[str]:
    if record.data == b"no sentence":
        raise Reject("it is none")
    return (record.data.decode(),)


def topology(*, exchanges: bool, ackers: int | None) -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("sentences", Sentences())
    split = builder.set_bolt("split", Split(), 2)
    if exchanges:
        split.fields_grouping("sentences", ["sentence"])
    else:
        split.shuffle_grouping("sentences")
    return builder.build("words", partitions=2, ackers=ackers)


class FirstStage:
    """The first stage of a topology in this process. Mutable."""

    def __init__(
        self,
        *,
        exchanges: bool = False,
        ackers: int | None = ACKERS,
        batch: int = 7,
        age: RecordAge | None = None,
        **changes: Any,
    ) -> None:
        program = topology(exchanges=exchanges, ackers=ackers)._programs(2)["sentences"]
        self.run = StageRun(program, 0, 0, lambda: 0.0)
        self.run.begin()
        self.plan = plan(**changes)
        self.delivery = TreeDelivery(
            self.plan,
            DeliverySettings(order=Order.UNORDERED, clock=lambda: 0.0, age=age),
            run=self.run,
            to_values=sentence,
            batch=batch,
        )

    def deliver(self, given: Sequence[Record]) -> int:
        return self.delivery.deliver(given, NEVER)

    def finish(self) -> None:
        self.run.finish()

    def failed(self) -> list[FailedTree]:
        """End the stage; give the trees that failed in it."""
        self.run.finish()
        found = self.delivery.failed_here()
        return [] if found is None else list(found.failed)

    def left(self) -> RecordBlock:
        left = self.delivery.records_left()
        assert left is not None
        return left


def test_a_record_whose_tree_ends_where_it_began_leaves_nothing() -> None:
    stage = FirstStage()
    assert stage.deliver(records("a b", "c")) == 2

    assert stage.failed() == []
    assert stage.delivery.failures == []
    assert stage.delivery.records_left() is None


def test_a_record_whose_tree_failed_in_the_only_stage_is_found_with_its_place_and_its_bolt() -> None:
    stage = FirstStage()
    given = records("a b", "unsplittable", "c")
    stage.deliver(given)

    [failed] = stage.failed()
    assert (failed.index, failed.record, failed.previous) == (1, given[1], SequenceNumber(1))
    assert failed.end.reason == "split: cannot be split"


def test_what_the_scheme_raises_fails_its_record_at_once_and_no_other() -> None:
    stage = FirstStage()
    stage.deliver(records("a", "no sentence", "b"))

    [failure] = stage.delivery.failures
    assert (failure.index, failure.sequence, failure.fate) == (1, SequenceNumber(2), Fate.REJECTED)
    assert (stage.delivery.count, stage.delivery.last) == (3, SequenceNumber(3))


def test_without_ackers_a_record_is_done_when_it_is_emitted() -> None:
    stage = FirstStage(ackers=0)
    stage.deliver(records("unsplittable"))

    assert stage.failed() == []
    assert stage.delivery.failures == []


# Trees that leave the stage


def roots_told(stage: FirstStage) -> list[tuple[int, int]]:
    """End a stage; give the roots that ackers are told of, each with its acker."""
    stage.finish()
    return [
        (acker, root)
        for acker, block in stage.run.outbox.take()
        if isinstance(block, AckBlock)
        for root in memoryview(block.roots).cast("Q").tolist()
    ]


def test_the_trees_of_a_slice_have_one_acker_and_their_roots_say_which_records_they_are() -> None:
    stage = FirstStage(exchanges=True)
    stage.deliver(records(*[f"sentence {number}" for number in range(40)]))

    told = roots_told(stage)
    assert len({acker for acker, _ in told}) == 1
    assert sorted(place_of(root) or (0, 0) for _, root in told) == [(7, number) for number in range(40)]


def test_the_roots_of_slices_that_are_delivered_at_the_same_time_are_others() -> None:
    roots: list[int] = []
    for batch in range(50):
        stage = FirstStage(exchanges=True, batch=batch)
        stage.deliver(records("a", "b", "c"))
        roots += [root for _, root in roots_told(stage)]
    assert len(set(roots)) == 150
    assert min(roots) > 0


@pytest.mark.parametrize("ackers", [ACKERS, None])
def test_the_records_of_open_trees_are_left_and_found_again_if_these_fail(ackers: int | None) -> None:
    stage = FirstStage(exchanges=True, ackers=ackers)
    given = records("a", "b", "c", "no sentence", "d", "e")
    stage.deliver(given[:2])
    stage.deliver(given[2:])
    stage.finish()

    found = failed_trees(stage.left(), dict.fromkeys(range(6), ENDED))
    by_index = {tree.index: tree for tree in found.failed}
    assert found.batch == 7
    assert {index: tree.record for index, tree in by_index.items()} == {
        index: given[index] for index in (0, 1, 2, 4, 5)
    }
    previous = {index: tree.previous for index, tree in by_index.items()}
    assert previous == {0: None, **{index: SequenceNumber(index) for index in (1, 2, 4, 5)}}


def test_of_the_records_that_are_left_only_those_are_found_whose_trees_failed() -> None:
    stage = FirstStage(exchanges=True)
    stage.deliver(records(*"abc"))

    assert [tree.index for tree in failed_trees(stage.left(), {1: ENDED}).failed] == [1]


def test_the_record_before_the_first_of_a_page_is_the_last_one_of_the_page_before() -> None:
    stage = FirstStage()
    pages = records("a", "b", "unsplittable")
    stage.deliver(pages[:2])
    stage.deliver(pages[2:])

    [failed] = stage.failed()
    assert (failed.index, failed.previous) == (2, SequenceNumber(2))


@pytest.mark.parametrize("ackers", [ACKERS, None, 0])
def test_trees_that_leave_the_stage_take_no_room_whoever_decides_them(ackers: int | None) -> None:
    stage = FirstStage(exchanges=True, ackers=ackers, max_failures=3)
    assert stage.deliver(records(*"abcde")) == 5
    assert stage.delivery.room
    assert stage.delivery.wants_more_than(page_of(994))
    assert not stage.delivery.wants_more_than(page_of(995))


def test_on_its_way_to_the_one_record_of_a_probe_it_fetches_all_that_was_finished_before() -> None:
    delivery = FirstStage(
        exchanges=True, holes=((SequenceNumber(0), SequenceNumber(900)),), deliveries=1, room=1
    ).delivery
    assert delivery.wants_more_than(page_of(1))


def test_without_ackers_nothing_is_open_though_all_tuples_leave() -> None:
    stage = FirstStage(exchanges=True, ackers=0, max_failures=3)
    assert stage.deliver(records(*"abcde")) == 5
    stage.finish()
    assert stage.delivery.records_left() is None


def test_a_record_whose_tree_is_done_at_once_takes_no_room() -> None:
    stage = FirstStage(max_failures=3)
    assert stage.deliver(records("a", "unsplittable", "b", "no sentence", "c", "d")) == 6
    assert stage.delivery.room
    assert stage.deliver(records("unsplittable", "e")) == 1
    assert not stage.delivery.room


@pytest.mark.parametrize("tracks", [True, False])
def test_no_more_is_emitted_than_may_be_delivered_though_each_tree_is_done_at_once(*, tracks: bool) -> None:
    stage = FirstStage(
        ackers=ACKERS if tracks else 0, holes=((SequenceNumber(0), SequenceNumber(1)),), deliveries=1, room=1
    )

    assert stage.deliver(records("a", "b", "c", "d")) == 2
    assert stage.delivery.delivered == 1
    assert not stage.delivery.room


def test_the_attempt_of_a_record_is_that_of_its_retry() -> None:
    stage = FirstStage(
        kind=SliceKind.RETRY,
        position=None,
        retries=(Redelivery(sequence=SequenceNumber(1), attempt=3),),
    )
    stage.deliver(records("unsplittable"))

    [failed] = stage.failed()
    assert failed.record.attempt == 3


def page_of(count: int) -> Page:
    return Page(records=records(*["a"] * count), size_bytes=0, millis_behind_latest=1, at_end=False)


# The outcome of the slice


def test_failed_trees_are_cut_out_of_the_outcome_in_the_order_of_the_slice() -> None:
    stage = FirstStage()
    given = records("unsplittable", "no sentence", "unsplittable", "d")
    stage.deliver(given)
    stage.finish()
    delivery = stage.delivery
    outcome = SliceOutcome(
        first=delivery.first,
        last=delivery.last,
        count=delivery.count,
        failures=tuple(delivery.failures),
    )
    result = WorkResult(plan=stage.plan, outcome=outcome, unfinished=tuple(delivery.unfinished))

    merged = with_failed(result, stage.failed())

    assert [failure.index for failure in merged.outcome.failures] == [0, 1, 2]
    errors = {each.record.sequence_number: each.error for each in merged.unfinished}
    assert errors["1"] == errors["3"] == "split: cannot be split"
    assert merged.outcome.count == 4


@pytest.mark.parametrize(
    ("raised", "fate", "delay_seconds"),
    [
        (Reject("broken"), Fate.REJECTED, None),
        (RetryLater(3), Fate.FAILED, 3.0),
        (NotNow(3), Fate.PUT_OFF, 3.0),
        (ValueError("bad"), Fate.FAILED, None),
    ],
)
def test_what_a_bolt_says_by_raising_means_what_it_means_for_a_handler(
    raised: Exception, fate: Fate, delay_seconds: float | None
) -> None:
    (record,) = records("a")
    outcome = SliceOutcome(first=record.sequence, last=record.sequence, count=1)
    end = TreeEnd(component="split", failure=failure_of(raised))
    failed = FailedTree(index=0, record=record, previous=None, end=end)

    (failure,) = with_failed(WorkResult(plan=plan(), outcome=outcome), [failed]).outcome.failures

    assert (failure.fate, failure.delay_seconds) == (fate, delay_seconds)


def test_without_failed_trees_the_outcome_is_as_it_was() -> None:
    result = WorkResult(
        plan=plan(),
        outcome=SliceOutcome(first=SequenceNumber(1), last=SequenceNumber(1), count=1),
        unfinished=(UnfinishedRecord(record=records("a")[0], error="no"),),
    )
    assert with_failed(result, []) == result


def test_a_slice_ends_where_no_more_failures_can_be_kept_and_what_follows_comes_again() -> None:
    given = records(*"abcdef")
    result = WorkResult(
        plan=plan(max_failures=2),
        outcome=SliceOutcome(
            first=given[0].sequence, last=given[5].sequence, count=6, at_end=True, at_tip=True
        ),
        delivered=6,
        cursor=Cursor(iterator="behind the last"),
        left=(given[5],),
        error=ShardNotFound("gone behind the last"),
    )
    failed = [
        FailedTree(index=at, record=given[at], previous=given[at - 1].sequence, end=ENDED) for at in (1, 3, 4)
    ]

    cut = with_failed(result, failed)

    assert [failure.index for failure in cut.outcome.failures] == [1, 3]
    assert [each.record for each in cut.unfinished] == [given[1], given[3]]
    assert (cut.outcome.first, cut.outcome.last, cut.outcome.count) == (
        given[0].sequence,
        given[3].sequence,
        4,
    )
    assert (cut.outcome.at_end, cut.outcome.at_tip, cut.left, cut.cursor.iterator) == (False, False, (), None)
    assert cut.error is None, "the records behind the cut come first"
    assert (cut.delivered, cut.failed) == (4, 2)


@pytest.mark.parametrize("skips", [True, False])
def test_what_a_cut_leaves_out_is_counted_when_it_comes_again(*, skips: bool) -> None:
    stage = FirstStage(age=RecordAge(arrived_from=100.0, maximum_seconds=60.0, skips=skips), max_failures=4)
    given = records(*"abcdefgh")
    for at, record in enumerate(given):
        record.arrival_timestamp = 50.0 if at in {0, 4, 6} else 150.0
    stage.deliver(given[:5])
    stage.deliver(given[5:])
    late = TreeEnd(component="count", failure=Failure(error_text="late", timed_out=True))
    failed = [
        FailedTree(index=at, record=given[at], previous=given[at - 1].sequence, end=late)
        for at in (1, 2, 3, 5, 7)
    ]
    whole = stage.delivery.result()

    cut = with_failed(whole, failed, stage.delivery.expired_at)

    assert (whole.delivered, whole.expired) == (5, 3)
    if skips:
        assert (cut.outcome.count, cut.delivered, cut.expired, cut.timed_out) == (6, 4, 2, 4)
    else:
        assert (cut.outcome.count, cut.delivered, cut.expired, cut.timed_out) == (4, 3, 1, 3)


def user_records(*sentences: str) -> list[Record]:
    """Give the user records of one aggregate."""
    return [
        Record(
            data=text.encode(),
            sequence_number="7",
            partition_key="key",
            shard_id="shard",
            sub_sequence_number=at,
            explicit_hash_key="5" if at else None,
        )
        for at, text in enumerate(sentences)
    ]


def test_a_user_record_whose_tree_fails_later_comes_back_with_all_that_tells_it_apart() -> None:
    stage = FirstStage(exchanges=True)
    given = user_records("a", "b", "c")
    stage.deliver(given)

    [failed] = failed_trees(stage.left(), {2: ENDED}).failed

    assert (failed.record, failed.previous) == (given[2], SequenceNumber(7, 1))
