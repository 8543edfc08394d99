"""How a batch is divided among tasks, and how a task's rows are moved."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from kinesis_spout.structured.page_buffer import Segment
from kinesis_spout.structured.partitions import ShardRange, in_pieces, in_tasks
from shard_state import SequenceNumber

PER_TASK = 100
MEBIBYTE = 1024 * 1024

sizes_of_shards = st.lists(st.integers(0, 1_000), max_size=40)
limits = st.none() | st.integers(1, 5)


def shards(*sizes: int) -> list[ShardRange]:
    return [
        ShardRange(
            stream="orders",
            shard_id=f"shardId-{number:012}",
            first=SequenceNumber(1),
            last=SequenceNumber(9),
            rows=3,
            size_bytes=size,
        )
        for number, size in enumerate(sizes)
    ]


def sizes_of_tasks(*sizes: int, shards_per_task: int | None = None) -> list[list[int]]:
    tasks = in_tasks(shards(*sizes), bytes_per_task=PER_TASK, shards_per_task=shards_per_task)
    return [[shard.size_bytes for shard in task] for task in tasks]


def test_small_shards_share_a_task() -> None:
    assert sizes_of_tasks(10, 20, 30) == [[10, 20, 30]]


def test_each_so_many_bytes_make_another_task() -> None:
    assert sizes_of_tasks(60, 50, 60, 50) == [[60], [50, 60], [50]]
    assert sizes_of_tasks(40, 50, 40, 50, 20) == [[40, 50], [40, 50, 20]]


def test_a_large_shard_is_not_divided() -> None:
    assert sizes_of_tasks(0, 900, 10) == [[0], [900], [10]]


def test_a_task_has_no_more_shards_than_it_may() -> None:
    assert sizes_of_tasks(1, 2, 3, 4, 5, shards_per_task=2) == [[1, 2], [3, 4], [5]]


def test_nothing_makes_no_task() -> None:
    assert sizes_of_tasks() == []


@given(sizes_of_shards, limits, st.randoms())
def test_rows_come_in_the_same_order_whatever_is_known_of_the_sizes(
    sizes: list[int], shards_per_task: int | None, order: Random
) -> None:
    known, unknown = shards(*sizes), shards(*[0] * len(sizes))
    order.shuffle(unknown)

    def ids(ranges: list[ShardRange]) -> list[str]:
        tasks = in_tasks(ranges, bytes_per_task=PER_TASK, shards_per_task=shards_per_task)
        assert all(tasks)
        assert all(len(task) <= (shards_per_task or len(ranges)) for task in tasks)
        return [shard.shard_id for task in tasks for shard in task]

    assert ids(known) == ids(unknown) == [shard.shard_id for shard in shards(*sizes)]


@given(
    sizes=st.lists(st.integers(1, 10_000), max_size=5),
    offset=st.integers(0, 9_000),
    row_bytes=st.floats(0.0, 4.0 * MEBIBYTE),
)
def test_pieces_are_the_rows_of_the_segments_in_their_order(
    sizes: list[int], offset: int, row_bytes: float
) -> None:
    segments = [Segment(page, offset, rows) for page, rows in enumerate(sizes)]

    pieces = list(in_pieces(segments, row_bytes))

    def rows(of: list[Segment]) -> list[tuple[int, int]]:
        return [(page, row) for page, first, count in of for row in range(first, first + count)]

    assert rows(pieces) == rows(segments)


def test_a_piece_weighs_about_a_mebibyte() -> None:
    pieces = list(in_pieces([Segment(7, 0, 10_000)], 1200.0))

    assert {piece.rows for piece in pieces[:-1]} == {MEBIBYTE // 1200}


def test_a_piece_has_two_thousand_rows_at_most() -> None:
    assert [piece.rows for piece in in_pieces([Segment(7, 100, 4_500)], 10.0)] == [2_000, 2_000, 500]


def test_a_record_larger_than_a_piece_is_a_piece() -> None:
    assert list(in_pieces([Segment(7, 3, 2)], 5.0 * MEBIBYTE)) == [Segment(7, 3, 1), Segment(7, 4, 1)]
