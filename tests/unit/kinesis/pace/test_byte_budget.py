from hypothesis import given
from hypothesis import strategies as st

from kinesis_spout.kinesis.pace import ByteBudget

_MEGABYTE = 1_000_000


def test_without_a_limit_everything_is_paid_for_at_once() -> None:
    assert ByteBudget().pay(10 * _MEGABYTE, since=7.0) == 7.0


def test_one_shard_alone_has_the_whole_budget() -> None:
    budget = ByteBudget(_MEGABYTE)

    first = budget.pay(_MEGABYTE, since=0.0)
    second = budget.pay(_MEGABYTE, since=first)

    assert (first, second) == (1.0, 2.0)


def test_shards_that_read_together_are_paid_for_one_after_the_other() -> None:
    budget = ByteBudget(_MEGABYTE)

    assert [budget.pay(_MEGABYTE, since=0.0) for _ in range(3)] == [1.0, 2.0, 3.0]


def test_an_empty_page_is_free_whatever_others_have_read() -> None:
    budget = ByteBudget(_MEGABYTE)
    budget.pay(100 * _MEGABYTE, since=0.0)

    assert budget.pay(0, since=1.0) == 1.0


def test_what_was_not_used_is_not_saved_up() -> None:
    budget = ByteBudget(_MEGABYTE)
    budget.pay(_MEGABYTE, since=0.0)

    assert budget.pay(_MEGABYTE, since=1000.0) == 1001.0


def test_a_member_with_a_quarter_of_the_shards_has_a_quarter_of_the_budget() -> None:
    budget = ByteBudget(_MEGABYTE)
    budget.take_part(0.25)

    assert budget.bytes_per_second == _MEGABYTE / 4
    assert budget.pay(_MEGABYTE, since=0.0) == 4.0


_pages = st.lists(
    st.lists(st.integers(0, 10 * _MEGABYTE), min_size=1, max_size=20),
    min_size=1,
    max_size=6,
)


@given(pages_of=_pages, rate=st.integers(1_000, 20 * _MEGABYTE))
def test_in_any_span_no_more_is_read_than_its_budget_and_a_page_of_each_shard(
    pages_of: list[list[int]], rate: int
) -> None:
    """All pages are read in the end, too: also one that is larger than the budget of a second."""
    budget = ByteBudget(rate)
    ready_at = dict.fromkeys(range(len(pages_of)), 0.0)
    left = {shard: list(pages) for shard, pages in enumerate(pages_of)}
    reads: list[tuple[float, int]] = []
    while left:
        shard = min(left, key=lambda each: (ready_at[each], each))
        now, size_bytes = ready_at[shard], left[shard].pop(0)
        reads.append((now, size_bytes))
        ready_at[shard] = max(now + 0.2, budget.pay(size_bytes, since=now))
        if not left[shard]:
            del left[shard]

    assert len(reads) == sum(map(len, pages_of))
    a_page_of_each = sum(max(pages) for pages in pages_of)
    for first, (begin, _) in enumerate(reads):
        read_bytes = 0
        for end, size_bytes in reads[first:]:
            read_bytes += size_bytes
            allowed = rate * (end - begin) + a_page_of_each
            assert read_bytes <= allowed * (1 + 1e-9) + 1
