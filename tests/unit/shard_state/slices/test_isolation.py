import pytest

from shard_state import SequenceNumber
from shard_state.slices.isolation import Isolation

pytestmark = pytest.mark.no_second_run

ONE = SequenceNumber(1)


def test_a_trusted_shard_is_neither_alone_nor_limited() -> None:
    isolation = Isolation()
    assert not isolation.alone
    assert isolation.limit(500) == 500


def test_after_the_death_of_a_shared_job_the_slice_runs_alone_and_whole() -> None:
    isolation = Isolation()
    assert not isolation.died(100, alone=False)
    assert isolation.alone
    assert isolation.limit(500) == 100


def test_one_slice_of_a_single_record_that_dies_in_company_is_not_isolated() -> None:
    assert not Isolation().died(1, alone=False)


def test_a_slice_that_dies_alone_is_halved_until_one_record_is_isolated() -> None:
    isolation = Isolation()
    isolation.died(100, alone=False)
    sizes = []
    while True:
        sizes.append(isolation.limit(500))
        if isolation.died(sizes[-1], alone=True):
            break
    assert sizes == [100, 50, 25, 12, 6, 3, 1]


def test_an_innocent_slice_is_trusted_after_it_passed_alone() -> None:
    isolation = Isolation()
    isolation.died(100, alone=False)
    isolation.survived(100, alone=True)
    assert not isolation.alone


def test_of_a_half_that_passed_the_other_half_is_suspected_and_halved_in_turn() -> None:
    isolation = Isolation()
    isolation.died(8, alone=True)
    sizes = []
    for _ in range(2):
        sizes.append(isolation.limit(500))
        isolation.survived(sizes[-1], alone=True)
    sizes.append(isolation.limit(500))
    isolation.died(sizes[-1], alone=True)
    assert sizes == [4, 2, 1]
    assert not isolation.alone


def test_suspicion_ends_with_the_last_of_the_suspects() -> None:
    isolation = Isolation()
    isolation.died(8, alone=True)
    passed = 0
    while isolation.alone:
        passed += isolation.limit(500)
        isolation.survived(isolation.limit(500), alone=True)
    assert passed == 8
    assert isolation.limit(500) == 500


def test_a_success_in_company_proves_nothing() -> None:
    isolation = Isolation()
    isolation.died(8, alone=False)
    isolation.survived(8, alone=False)
    assert isolation.alone
    assert isolation.limit(500) == 8


def test_suspects_of_a_handler_that_takes_many_records_are_known_after_two_more_deaths() -> None:
    isolation = Isolation()
    isolation.suspect(10_000)
    assert (isolation.limit(500), isolation.portion) == (10_000, 100)
    isolation.suspect(100)
    assert (isolation.limit(500), isolation.portion) == (100, 1)
    isolation.survived(100, alone=True)
    assert isolation.portion is None


def test_an_isolated_record_is_remembered_until_it_is_acquitted() -> None:
    isolation = Isolation()
    isolation.isolate(ONE)
    assert isolation.is_isolated(ONE)
    isolation.acquit(ONE)
    isolation.acquit(ONE)
    assert not isolation.is_isolated(ONE)
