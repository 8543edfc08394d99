import itertools
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesis_spout.structured.offsets import QueryOffset, ReadRange, ShardOffset, StreamOffset
from kinesis_spout.structured.pages.page_buffer import PageBuffer
from kinesis_spout.structured.stream.planning import BatchLimits, MicroBatchPlan, patience_seconds, plan_batch
from shard_state import Position, SequenceNumber
from tests.unit.structured.pages.pages import page_of, sequences_of

NO_LIMITS = BatchLimits()


def start_of(*shards: str, position: Position | None = None) -> QueryOffset:
    entry = ShardOffset(position=position or Position.trim_horizon())
    return QueryOffset(streams={"orders": StreamOffset(created=1.0, shards=dict.fromkeys(shards, entry))})


def buffer_of(**pages: list[list[int]]) -> PageBuffer:
    buffer = PageBuffer()
    for shard, of_shard in pages.items():
        for page in of_shard:
            buffer.append(("orders", shard), page_of(page, shard_id=shard), data_bytes=0)
    return buffer


def reading(*shards: str, ended: bool = False) -> dict[tuple[str, str], bool]:
    return {("orders", shard): ended for shard in shards}


def entry(offset: QueryOffset, shard: str) -> ShardOffset:
    return offset.streams["orders"].shards[shard]


@pytest.mark.parametrize(
    ("late", "under_way", "seconds"),
    [(0.0, 0, 0.0), (0.0, 1, 0.03), (0.2, 1, 0.03), (2.0, 1, 0.2), (2.0, 0, 0.2), (3600, 1, 1)],
)
def test_records_wait_a_moment_for_reads_under_way_and_longer_if_they_are_late(
    late: float, under_way: int, seconds: float
) -> None:
    assert patience(late_seconds=late, reads_under_way=under_way) == pytest.approx(seconds)


def test_late_records_do_not_wait_beyond_the_limits_of_a_batch_or_half_of_the_room() -> None:
    assert patience(BatchLimits(rows=11)) == 1
    assert patience(BatchLimits(rows=10)) == 0
    assert patience(BatchLimits(bytes=1_001)) == 1
    assert patience(BatchLimits(bytes=1_000)) == 0
    assert patience(room_bytes=2_002) == 1
    assert patience(room_bytes=2_000) == 0
    assert patience(room_bytes=2_000, reads_under_way=1) == 0.03


def patience(limits: BatchLimits = NO_LIMITS, **given: Any) -> float:
    """Of ten records that weigh a thousand bytes and are an hour late."""
    here = {
        "rows": 10,
        "size_bytes": 1_000,
        "room_bytes": 100_000,
        "reads_under_way": 0,
        "late_seconds": 3600.0,
    }
    return patience_seconds(limits, **(here | given))


def test_nothing_new_is_no_batch() -> None:
    assert plan_batch(start_of("a"), PageBuffer(), reading("a"), NO_LIMITS) is None


def test_a_batch_takes_what_is_there_and_says_its_first_and_last() -> None:
    plan = plan_batch(start_of("a", "b"), buffer_of(a=[[1, 2], [5]]), reading("a", "b"), NO_LIMITS)
    assert plan is not None
    assert plan.rows == 3
    assert entry(plan.end, "a") == ShardOffset(
        position=Position.after(SequenceNumber(5)), read=ReadRange(first=SequenceNumber(1), rows=3)
    )
    assert entry(plan.end, "b") == ShardOffset(position=Position.trim_horizon())


def test_what_an_earlier_batch_read_is_not_said_again() -> None:
    first = plan_batch(start_of("a"), buffer_of(a=[[1]]), reading("a"), NO_LIMITS)
    assert first is not None
    second = plan_batch(first.end, PageBuffer(), reading("a", ended=True), NO_LIMITS)
    assert second is not None
    assert entry(second.end, "a").read is None
    assert entry(second.end, "a").at_end


def test_an_end_is_reached_only_with_the_last_record_before_it() -> None:
    plan = plan_batch(start_of("a"), buffer_of(a=[[1, 2, 3]]), reading("a", ended=True), BatchLimits(rows=2))
    assert plan is not None
    assert not entry(plan.end, "a").at_end
    rest = plan_batch(plan.end, buffer_of(a=[[1, 2, 3]]), reading("a", ended=True), NO_LIMITS)
    assert rest is not None
    assert entry(rest.end, "a").at_end


def test_a_start_at_a_record_takes_that_record() -> None:
    at = start_of("a", position=Position.at(SequenceNumber(2)))
    plan = plan_batch(at, buffer_of(a=[[1, 2, 3]]), reading("a"), NO_LIMITS)
    assert plan is not None
    assert entry(plan.end, "a").read == ReadRange(first=SequenceNumber(2), rows=2)


def test_whose_turn_it_is_changes() -> None:
    buffer = buffer_of(a=[[1, 2]], b=[[1, 2]])
    served = []
    for turn in range(2):
        plan = plan_batch(start_of("a", "b"), buffer, reading("a", "b"), BatchLimits(rows=1), turn)
        assert plan is not None
        served += [shard for shard in "ab" if entry(plan.end, shard).read]
    assert served == ["a", "b"]


def test_a_record_that_is_larger_than_the_limit_goes_alone() -> None:
    plan = plan_batch(start_of("a"), buffer_of(a=[[1, 2]]), reading("a"), BatchLimits(bytes=1))
    assert plan is not None
    assert plan.rows == 1


@given(
    st.dictionaries(
        st.sampled_from("abcd"), st.lists(st.integers(1, 20), min_size=1, max_size=4), min_size=1
    ),
    st.integers(1, 60),
    st.none() | st.integers(1, 20_000),
)
def test_batches_cover_everything_once_in_order_within_their_limits(
    sizes: dict[str, list[int]], rows: int, size: int | None
) -> None:
    buffer = PageBuffer()
    for shard, of_shard in sizes.items():
        at = 0
        for count in of_shard:
            page = page_of(range(at, at + count), shard_id=shard)
            buffer.append(("orders", shard), page, data_bytes=0)
            at += count
    offset = start_of(*sizes)
    read: dict[str, list[int]] = {shard: [] for shard in sizes}
    limits = BatchLimits(rows=rows, bytes=size)
    turn = 0
    while (plan := plan_batch(offset, buffer, reading(*sizes), limits, turn)) is not None:
        assert 1 <= plan.rows <= rows
        assert size is None or plan.rows == 1 or plan.bytes <= size
        for shard in sizes:
            done = entry(plan.end, shard)
            if done.read is None:
                continue
            read[shard] += rows_read(buffer, plan, shard)
            assert done.last is not None
            buffer.free(("orders", shard), done.last)
        offset = plan.end
        turn += 1
    assert read == {shard: list(range(sum(of_shard))) for shard, of_shard in sizes.items()}
    assert buffer.size_bytes == 0


# --- aggregated records


@given(
    st.dictionaries(
        st.sampled_from("abc"),
        st.lists(st.lists(st.integers(1, 12), min_size=1, max_size=5), min_size=1, max_size=3),
        min_size=1,
    ),
    st.integers(1, 30),
    st.none() | st.integers(1, 5_000),
)
def test_no_batch_divides_an_aggregated_record(
    pages: dict[str, list[list[int]]], rows: int, size: int | None
) -> None:
    """A page is given by the numbers of user records in its records."""
    numbers = itertools.count()
    by_shard = {
        shard: [[number for of_record in page for number in [next(numbers)] * of_record] for page in of_shard]
        for shard, of_shard in pages.items()
    }
    buffer, offset, turn = buffer_of(**by_shard), start_of(*pages), 0
    read: dict[str, list[int]] = {shard: [] for shard in pages}
    limits = BatchLimits(rows=rows, bytes=size)
    while (plan := plan_batch(offset, buffer, reading(*pages), limits, turn)) is not None:
        new = {shard: rows_read(buffer, plan, shard) for shard in pages}
        records = {number for of_shard in new.values() for number in of_shard}
        assert plan.rows == sum(map(len, new.values()))
        assert len(records) == 1 or (plan.rows <= rows and (size is None or plan.bytes <= size))
        assert not records & {number for of_shard in read.values() for number in of_shard}
        for shard, of_shard in new.items():
            read[shard] += of_shard
            if of_shard:
                buffer.free(("orders", shard), SequenceNumber(of_shard[-1]))
        offset = plan.end
        turn += 1
    assert read == {shard: [*itertools.chain(*of_shard)] for shard, of_shard in by_shard.items()}
    assert buffer.size_bytes == 0


def rows_read(buffer: PageBuffer, plan: MicroBatchPlan, shard: str) -> list[int]:
    done = entry(plan.end, shard)
    if done.read is None:
        return []
    last = done.position.sequence_number
    assert last is not None
    segments = buffer.segments(("orders", shard), done.read.first, last)
    pages = [(buffer.page(segment.page), segment) for segment in segments]
    rows = [
        number
        for page, segment in pages
        if page is not None
        for number in sequences_of(page.batch.slice(segment.offset, segment.rows))
    ]
    assert len(rows) == done.read.rows
    return rows


# --- oldest arrivals first


def arriving(**arrivals: Sequence[Sequence[float | None]]) -> PageBuffer:
    """Give a buffer of pages whose records, numbered from 1 in each shard, arrived at these seconds."""
    buffer = PageBuffer()
    for shard, pages in arrivals.items():
        number = 1
        for page in pages:
            numbered = dict(enumerate(page, start=number))
            number += len(page)
            batch = page_of(numbered, shard_id=shard, arrival=numbered.__getitem__)
            buffer.append(("orders", shard), batch, data_bytes=0)
    return buffer


def rows_by_shard(plan: MicroBatchPlan | None, *shards: str) -> dict[str, int]:
    assert plan is not None
    reads = {shard: entry(plan.end, shard).read for shard in shards}
    return {shard: read.rows for shard, read in reads.items() if read is not None}


def test_a_batch_takes_the_oldest_arrivals_first_over_all_shards() -> None:
    buffer = arriving(hot=[[1, 2, 3, 4], [5, 6, 7, 8]], cold=[[2.5, 7.5]])
    start = start_of("hot", "cold")
    first = plan_batch(start, buffer, reading("hot", "cold"), BatchLimits(rows=5))
    assert rows_by_shard(first, "hot", "cold") == {"hot": 4, "cold": 1}
    assert first is not None
    second = plan_batch(first.end, buffer, reading("hot", "cold"), BatchLimits(rows=3))
    assert rows_by_shard(second, "hot", "cold") == {"hot": 3}


def test_a_limit_of_bytes_takes_the_oldest_arrivals_first_as_well() -> None:
    buffer = arriving(hot=[[1, 2, 3, 4]], cold=[[2.5, 7.5]])
    row = buffer.size_bytes / 6
    plan = plan_batch(
        start_of("hot", "cold"), buffer, reading("hot", "cold"), BatchLimits(bytes=int(3.5 * row))
    )
    assert rows_by_shard(plan, "hot", "cold") == {"hot": 2, "cold": 1}


def test_shards_take_turns_among_records_of_the_same_millisecond() -> None:
    buffer = arriving(a=[[1, 1, 1, 1]], b=[[1, 1, 1, 1]], c=[[0.5]])
    plan = plan_batch(start_of("a", "b", "c"), buffer, reading("a", "b", "c"), BatchLimits(rows=5))
    assert rows_by_shard(plan, "a", "b", "c") == {"a": 2, "b": 2, "c": 1}


def test_records_that_arrived_after_what_may_be_unread_wait() -> None:
    buffer = arriving(a=[[1, 2, 3]], b=[[2, 9]])
    plan = plan_batch(start_of("a", "b"), buffer, reading("a", "b"), NO_LIMITS, until=2_500_000)
    assert rows_by_shard(plan, "a", "b") == {"a": 2, "b": 1}
    assert plan is not None
    assert not plan.is_full
    assert plan_batch(plan.end, buffer, reading("a", "b"), NO_LIMITS, until=2_500_000) is None


def test_a_shard_whose_last_records_wait_is_not_at_its_end() -> None:
    buffer = arriving(a=[[1, 2, 3]])
    plan = plan_batch(start_of("a"), buffer, reading("a", ended=True), NO_LIMITS, until=2_000_000)
    assert plan is not None
    assert not entry(plan.end, "a").at_end


def test_a_record_that_arrived_before_its_predecessor_or_at_no_known_time_keeps_its_place() -> None:
    buffer = arriving(a=[[5, 1, None, 6]], b=[[4]])
    plan = plan_batch(start_of("a", "b"), buffer, reading("a", "b"), BatchLimits(rows=2))
    assert rows_by_shard(plan, "a", "b") == {"a": 1, "b": 1}


@given(
    st.dictionaries(
        st.sampled_from("abcd"),
        st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=6), min_size=1, max_size=3),
        min_size=1,
    ),
    st.integers(1, 12),
)
def test_no_batch_has_a_record_a_millisecond_newer_than_one_that_it_leaves(
    milliseconds: dict[str, list[list[int]]], rows: int
) -> None:
    arrivals = {
        shard: list(itertools.accumulate(itertools.chain(*pages), max))
        for shard, pages in milliseconds.items()
    }
    buffer = arriving(
        **{shard: [[at / 1000 for at in page] for page in pages] for shard, pages in milliseconds.items()}
    )
    offset = start_of(*arrivals)
    done = dict.fromkeys(arrivals, 0)
    turn = 0
    while (plan := plan_batch(offset, buffer, reading(*arrivals), BatchLimits(rows=rows), turn)) is not None:
        taken = rows_by_shard(plan, *arrivals)
        newest = max(arrivals[shard][done[shard] + count - 1] for shard, count in taken.items())
        for shard, count in taken.items():
            done[shard] += count
        left = [of_shard[done[shard]] for shard, of_shard in arrivals.items() if done[shard] < len(of_shard)]
        assert newest <= min(left, default=newest)
        offset, turn = plan.end, turn + 1
    assert done == {shard: len(of_shard) for shard, of_shard in arrivals.items()}


def test_a_batch_that_is_due_has_no_rows_and_says_since_when_its_shards_are_whole() -> None:
    plan = plan_batch(
        start_of("a"), PageBuffer(), reading("a"), NO_LIMITS, since={("orders", "a"): 5.0}, is_due=True
    )

    assert plan is not None
    assert plan.rows == 0
    [stream] = plan.end.streams.values()
    assert stream.shards["a"].position.since == 5.0
