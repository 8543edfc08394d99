from math import inf

from hypothesis import given
from hypothesis import strategies as st

from kinesis_spout.kinesis.pace import ApplicationBudget

_MEGABYTE = 1_000_000


def test_the_streams_of_a_member_have_the_part_of_its_shards_of_all_streams_together() -> None:
    budget = ApplicationBudget(_MEGABYTE)
    budget.assigned("orders", 1, 8)
    assert budget.bytes.bytes_per_second == _MEGABYTE / 8
    budget.assigned("refunds", 2, 2)
    assert budget.bytes.bytes_per_second == _MEGABYTE * 3 / 10


def test_a_stream_that_is_read_no_more_leaves_its_part() -> None:
    budget = ApplicationBudget(_MEGABYTE)
    budget.assigned("orders", 1, 4)
    budget.assigned("refunds", 0, 4)
    budget.left("refunds")
    budget.left("refunds")
    assert budget.bytes.bytes_per_second == _MEGABYTE / 4


def test_a_member_that_is_told_of_no_shards_keeps_its_rate() -> None:
    budget = ApplicationBudget(_MEGABYTE)
    budget.assigned("orders", 0, 4)
    assert budget.bytes.bytes_per_second == _MEGABYTE


def test_without_a_limit_there_is_none_whatever_is_assigned() -> None:
    budget = ApplicationBudget()
    budget.assigned("orders", 1, 8)
    assert budget.bytes.bytes_per_second == inf


@given(owners=st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=9), min_size=1, max_size=5))
def test_the_parts_of_all_members_are_the_budget_over_all_streams(owners: list[list[int]]) -> None:
    rates = []
    for member in {owner for of_stream in owners for owner in of_stream}:
        budget = ApplicationBudget(_MEGABYTE)
        for stream, of_stream in enumerate(owners):
            budget.assigned(stream, of_stream.count(member), len(of_stream))
        rates.append(budget.bytes.bytes_per_second)
    assert abs(sum(rates) - _MEGABYTE) < 1
