"""Batches fit one PutRecords call, and hold everything in order."""

from hypothesis import given
from hypothesis import strategies as st

from kinesis_spout.kinesis.write.put_records import (
    MAX_BATCH_BYTES,
    MAX_BATCH_RECORDS,
    Entry,
    batches,
)


@given(st.lists(st.integers(0, 2 * MAX_BATCH_BYTES), max_size=2_000))
def test_batches_keep_all_items_in_order_and_stay_within_the_limits(sizes: list[int]) -> None:
    cut = list(batches(sizes, lambda size: size))
    assert [size for batch in cut for size in batch] == sizes
    for batch in cut:
        assert 1 <= len(batch) <= MAX_BATCH_RECORDS
        assert sum(batch) <= MAX_BATCH_BYTES or len(batch) == 1


def test_batches_are_as_large_as_they_may_be() -> None:
    assert [len(batch) for batch in batches([1] * 1_001, lambda size: size)] == [500, 500, 1]


def test_an_entry_weighs_its_data_and_its_key_in_bytes() -> None:
    assert Entry("Ключ", b"123").size_bytes == 11
