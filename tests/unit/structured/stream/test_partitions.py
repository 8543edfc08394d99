"""How a batch is divided among tasks, and how a task's rows are moved."""

from random import Random

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from kinesis_spout.structured.stream.partitions import ShardRange, in_chunks, in_tasks
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


@given(st.lists(st.integers(0, 5_000), min_size=1, max_size=30))
def test_chunks_have_all_rows_in_their_order(sizes: list[int]) -> None:
    batch = batch_with(sizes)

    assert pa.Table.from_batches(in_chunks(batch), batch.schema).equals(pa.Table.from_batches([batch]))


def test_a_chunk_weighs_about_a_mebibyte() -> None:
    chunks = list(in_chunks(batch_with([1200] * 3_000)))

    assert len({chunk.num_rows for chunk in chunks[:-1]}) == 1
    assert 0.9 * MEBIBYTE < chunks[0].nbytes <= MEBIBYTE


def test_a_chunk_has_two_thousand_rows_at_most() -> None:
    assert [chunk.num_rows for chunk in in_chunks(batch_with([1] * 4_500))] == [2_000, 2_000, 500]


def test_a_record_larger_than_a_chunk_is_a_chunk() -> None:
    assert [chunk.num_rows for chunk in in_chunks(batch_with([5 * MEBIBYTE] * 2))] == [1, 1]


def batch_with(sizes: list[int]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"data": [bytes(size) for size in sizes]})
