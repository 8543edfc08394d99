from hypothesis import given
from hypothesis import strategies as st

from kinesis_spout.zookeeper.nodes import ChunkLimits, chunked


@given(st.lists(st.integers(0, 50)), st.integers(1, 60), st.integers(1, 6))
def test_chunks_keep_the_order_and_the_limits_and_none_is_empty(
    sizes: list[int], max_bytes: int, max_writes: int
) -> None:
    limits = ChunkLimits(max_bytes=max_bytes, max_writes=max_writes)
    chunks = list(chunked(sizes, lambda size: size, limits))
    assert [size for chunk in chunks for size in chunk] == sizes
    for chunk in chunks:
        assert 1 <= len(chunk) <= max_writes
        assert sum(chunk) <= max_bytes or len(chunk) == 1


def test_what_fits_is_one_chunk() -> None:
    assert list(chunked(range(1000), lambda _: 300, ChunkLimits())) == [list(range(1000))]
