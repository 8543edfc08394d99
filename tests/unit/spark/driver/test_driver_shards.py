"""Who reads a shard, what waits of it, and when it is looked at again."""

from collections.abc import Callable
from math import inf
from typing import Any

import pytest

from kinesis_spout.kinesis.pace import aligned_idle_period
from kinesis_spout.kinesis.read.polled_getter import FRESH, Cursor
from kinesis_spout.model.errors import KinesisError, KinesisSpoutError
from kinesis_spout.model.record import Record
from kinesis_spout.ports import Page, ShardGetter
from kinesis_spout.spark.driver import shard_reading
from kinesis_spout.spark.driver.driver_shards import DriverShard, HeldPages
from kinesis_spout.spark.driver.engine_settings import WORTH_A_JOB_BYTES
from kinesis_spout.spark.driver.shard_reading import TRANSITIONS, ReadEvent, ReadState
from kinesis_spout.spark.tasks.work import WorkResult, WorkSlice
from kinesis_spout.testing import InMemoryShardGetter, InMemoryStream
from shard_state import Position, SequenceNumber, ShardBound, SliceKind, SliceOutcome, SlicePlan

S, E = ReadState, ReadEvent
BOUND = ShardBound(position=Position.at(SequenceNumber(5)), tip_counts_from=0.0)


def record(number: int, size: int = 10) -> Record:
    return Record(data=b"x" * size, sequence_number=str(number), shard_id="shard")


def page(*records: Record, behind: int = 0, at_end: bool = False) -> Page:
    size = sum(len(each.data) for each in records)
    return Page(records=records, size_bytes=size, millis_behind_latest=behind, at_end=at_end)


class Getter(InMemoryShardGetter):
    def __init__(self) -> None:
        stream = InMemoryStream()
        super().__init__(stream, stream.list_shards()[0].shard_id, Position.trim_horizon())
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


def plan(kind: SliceKind) -> SlicePlan:
    return SlicePlan(
        shard_id="shard", epoch=1, kind=kind, limit=9, position=Position.trim_horizon(), max_failures=9
    )


def read(*left: Record, at_end: bool = False, **more: Any) -> WorkResult:
    outcome = SliceOutcome(at_end=at_end)
    return WorkResult(plan=plan(SliceKind.READ), outcome=outcome, left=left, **more)


def polled(shard: DriverShard, came: Page, begun_at: float = 0.0, bound: ShardBound | None = None) -> None:
    shard.begin_poll(Getter)
    shard.take_in(came, begun_at, bound)


# Who reads

DO: dict[ReadEvent, Callable[[DriverShard], object]] = {
    E.POLL: lambda shard: shard.begin_poll(Getter),
    E.PAGE: lambda shard: shard.take_in(page(), 0.0),
    E.LAST_PAGE: lambda shard: shard.take_in(page(at_end=True), 0.0),
    E.BOUND: lambda shard: shard.take_in(page(record(9)), 0.0, BOUND),
    E.FAIL: lambda shard: shard.poll_failed(),
    E.DROP: lambda shard: shard.drop_page(),
    E.SLICE: lambda shard: shard.slice_goes_out(),
    E.SLICE_OVER: lambda shard: shard.slice_over(),
    E.SLICE_ENDS: lambda shard: shard.slice_read(read(at_end=True), 0.0),
}
REACHED_BY: dict[ReadState, tuple[ReadEvent, ...]] = {
    S.TIP: (),
    S.POLLED: (E.POLL,),
    S.EXECUTORS: (E.SLICE,),
    S.AT_BOUND: (E.POLL, E.BOUND),
    S.ENDED: (E.POLL, E.LAST_PAGE),
}
ARROWS = {
    (S.TIP, E.POLL, S.POLLED),
    (S.TIP, E.SLICE, S.EXECUTORS),
    (S.POLLED, E.PAGE, S.TIP),
    (S.POLLED, E.LAST_PAGE, S.ENDED),
    (S.POLLED, E.BOUND, S.AT_BOUND),
    (S.POLLED, E.FAIL, S.TIP),
    (S.POLLED, E.DROP, S.TIP),
    (S.POLLED, E.SLICE, S.EXECUTORS),
    (S.EXECUTORS, E.SLICE_OVER, S.TIP),
    (S.EXECUTORS, E.SLICE_ENDS, S.ENDED),
    (S.AT_BOUND, E.DROP, S.TIP),
    (S.ENDED, E.DROP, S.TIP),
}


def test_every_state_answers_every_event() -> None:
    assert set(TRANSITIONS) == {(state, event) for state in S for event in E}


def test_the_table_in_the_text_is_the_table() -> None:
    rows = [line.split() for line in (shard_reading.__doc__ or "").splitlines() if line.startswith("    ")]
    events = [E[name] for name in rows[0][2:]]
    told = {
        (S[state], event, S[state if after == "-" else after])
        for state, *row in rows[1:]
        for event, after in zip(events, row, strict=True)
    }
    assert told == {(*pair, after) for pair, after in TRANSITIONS.items()}


@pytest.mark.parametrize("event", E, ids=lambda event: event.name)
@pytest.mark.parametrize("state", S, ids=lambda state: state.name)
def test_who_reads_after_each_event(state: ReadState, event: ReadEvent) -> None:
    shard = DriverShard(1)
    for before in REACHED_BY[state]:
        DO[before](shard)
    assert shard.reading is state
    DO[event](shard)

    expected = [after for from_, on, after in ARROWS if (from_, on) == (state, event)]
    assert [shard.reading] == (expected or [state])


@pytest.mark.parametrize("state", S, ids=lambda state: state.name)
def test_the_driver_polls_only_what_nobody_reads(state: ReadState) -> None:
    shard = DriverShard(1)
    for event in REACHED_BY[state]:
        DO[event](shard)
    assert shard.may_poll is (state is S.TIP)


def test_the_driver_polls_on_behind_waiting_records_only_for_a_push_and_few_bytes() -> None:
    shard = DriverShard(1)
    polled(shard, page(record(1)))
    may_poll = [shard.may_poll]
    shard.news_came(5.0)
    may_poll.append(shard.may_poll)
    polled(shard, page(record(2, size=WORTH_A_JOB_BYTES)))
    shard.news_came(5.0)
    may_poll.append(shard.may_poll)
    assert may_poll == [False, True, False]


def test_a_getter_lives_from_poll_to_poll_until_executors_read_or_its_page_is_dropped() -> None:
    shard = DriverShard(1)
    first = shard.begin_poll(Getter)
    shard.take_in(page(), 0.0)
    assert shard.begin_poll(Getter) is first
    shard.slice_goes_out()
    assert isinstance(first, Getter)
    assert first.is_closed
    shard.slice_over()

    second = shard.begin_poll(Getter)
    assert second is not first
    shard.drop_page()
    assert isinstance(second, Getter)
    assert second.is_closed
    assert shard.getter is None


def test_a_getter_that_cannot_be_opened_leaves_the_place_for_the_next_try() -> None:
    shard = DriverShard(1)
    shard.drop_page(Cursor(iterator="here"))

    def refuse() -> ShardGetter:
        raise KinesisError("no")

    with pytest.raises(KinesisError):
        shard.begin_poll(refuse)
    shard.poll_failed()
    assert (shard.may_poll, shard.cursor.iterator) == (True, "here")
    shard.begin_poll(Getter)
    assert shard.cursor == FRESH, "the executors' iterator would lead back"


# What waits


def test_records_stay_until_a_slice_has_dealt_with_them() -> None:
    shard = DriverShard(1)
    polled(shard, page(record(1), record(2), record(3)))

    assert shard.carried(2) == (record(1), record(2))
    assert shard.carried(9) == (record(1), record(2), record(3))
    shard.settled(2)
    assert shard.carried(9) == (record(3),)
    shard.settled(1)
    assert (shard.size_bytes, shard.may_poll) == (0, True)


def test_records_from_the_bound_on_are_left_to_another_run() -> None:
    shard = DriverShard(1)
    polled(shard, page(record(4), record(5), record(6)), bound=BOUND)
    assert shard.carried(9) == (record(4),)


def test_all_shards_together_know_how_much_waits() -> None:
    held = HeldPages()
    one, other = DriverShard(1, held), DriverShard(1, held)
    polled(one, page(record(1, size=100)))
    other.slice_goes_out()
    other.slice_read(read(record(2, size=20)), 0.0)
    assert held.size_bytes == 120
    one.drop_page()
    other.settled(1)
    assert held.size_bytes == 0


def test_all_of_a_shard_has_gone_out_once_slices_carry_what_waits_and_it_goes_on_without_an_end() -> None:
    shard = DriverShard(1)
    reading, retried, carried = (
        WorkSlice(plan=plan(kind), records=(record(1), record(2)))
        for kind in (SliceKind.READ, SliceKind.RETRY, SliceKind.CARRIED)
    )
    assert shard.all_goes_out([])
    polled(shard, page(record(1), record(2)))
    assert not shard.all_goes_out([])
    assert not shard.all_goes_out([reading, retried])
    assert shard.all_goes_out([retried, carried])
    polled(shard, page(at_end=True))
    assert not shard.all_goes_out([carried]), "its children are not read yet"


def test_a_page_that_is_dropped_takes_the_place_behind_it_along() -> None:
    """Executors that read on there would skip what was dropped."""
    shard = DriverShard(1)
    shard.slice_goes_out()
    shard.slice_read(read(record(1), record(2), cursor=Cursor(iterator="behind")), 0.0)
    assert shard.carried(5) == (record(1), record(2))
    assert shard.size_bytes == sum(len(each.data) for each in (record(1), record(2)))
    shard.drop_page()

    assert (shard.cursor.iterator, shard.size_bytes, shard.may_poll) == (None, 0, True)


# What the pages show, and when it is looked at again


def test_polls_get_rarer_only_after_some_empty_ones_and_at_once_frequent_again() -> None:
    shard = DriverShard(1)
    periods = []
    for _ in range(12):
        polled(shard, page())
        periods.append(aligned_idle_period(shard.view.empty_polls, 0.2, 1.0))

    assert periods[:5] == [0.2] * 5
    assert periods == sorted(periods)
    assert periods[-3:] == [0.8] * 3, "the ticks of a rarer poll are ticks of the more frequent ones"
    polled(shard, page(record(1)))
    assert aligned_idle_period(shard.view.empty_polls, 0.2, 1.0) == 0.2


def test_the_tip_counts_as_seen_from_when_the_poll_began() -> None:
    """What was put while the poll was under way may have come too late for it."""
    shard = DriverShard(1)
    polled(shard, page(), 5.0)
    assert shard.view.tip_seen_at == 5.0
    polled(shard, page(behind=100), 6.0)
    assert shard.view.tip_seen_at == 5.0
    polled(shard, page(record(1)), 7.0)
    assert shard.view.tip_seen_at == 5.0


def test_a_shard_was_read_up_to_where_a_poll_began_that_came_to_its_tip_whatever_that_found() -> None:
    shard = DriverShard(1)
    polled(shard, page(record(1)), 5.0)
    assert shard.view.read_to == 5.0
    polled(shard, page(record(2), behind=100), 9.0)
    assert shard.view.read_to == 5.0
    shard.drop_page()
    assert shard.view.read_to == -inf, "it is read again"


def test_an_error_delays_what_would_be_read_sooner_and_nothing_else() -> None:
    shard, error = DriverShard(1), KinesisSpoutError("throttled")
    shard.schedule(poll_at=3.0, read_at=9.0, out_at=1.0)
    shard.failed(error, again_at=5.0)
    assert shard.times == (5.0, 9.0, 1.0)
    assert shard.error is error
    shard.news_came(4.0)
    assert shard.times.poll_at == 4.0
