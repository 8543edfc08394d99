"""Random outages and random poison: good records are not given up, poison is, and all flows after the mend."""

from collections.abc import Sequence

import pytest

from shard_state import Order
from tests.model.outages import (
    FLOWS_AGAIN_SECONDS,
    RETRIES_SECONDS,
    History,
    Result,
    play,
    random_outage,
    random_poison,
)

WELL_UNTIL = 120.0


def outage(seconds: float, *, rate: float, failing: float, **more: object) -> History:
    ends = WELL_UNTIL + seconds
    return History(
        rate=rate,
        failing=failing,
        outage=(WELL_UNTIL, ends),
        writes_until=ends + 60,
        ends_at=ends + 120,
        **more,  # type: ignore[arg-type]
    )


def share_given_up(results: Sequence[Result]) -> float:
    return sum(each.good_given_up for each in results) / sum(each.in_outage for each in results)


@pytest.mark.parametrize("seed", range(0, 18, 6))
def test_of_random_outages_at_most_one_good_record_of_a_thousand_is_given_up(seed: int) -> None:
    histories = [random_outage(each) for each in range(seed, seed + 6)]
    results = [play(each) for each in histories]
    assert share_given_up(results) <= 0.001, histories
    for history, result in zip(histories, results, strict=True):
        assert result.unfinished == 0, history
        assert result.flows_after <= FLOWS_AGAIN_SECONDS, history


@pytest.mark.parametrize("failing", [0.8, 0.9, 0.95, 0.99, 1.0])
@pytest.mark.parametrize(("rate", "seconds"), [(0.1, 540), (1, 120), (15, 60), (100, 20)])
def test_an_outage_at_any_level_and_rate_gives_up_none(rate: float, seconds: float, failing: float) -> None:
    result = play(outage(seconds, rate=rate, failing=failing))
    assert (result.good_given_up, result.unfinished) == (0, 0)
    assert result.flows_after <= FLOWS_AGAIN_SECONDS


@pytest.mark.parametrize("orderly", [True, False])
@pytest.mark.parametrize("failing", [0.9, 1.0])
@pytest.mark.parametrize("rate", [1, 15])
def test_restarts_in_an_outage_use_up_no_attempts(rate: float, failing: float, *, orderly: bool) -> None:
    history = outage(180, rate=rate, failing=failing, restarts_every=5.0, orderly=orderly)
    result = play(history)
    assert result.good_given_up <= 0.001 * result.in_outage
    assert result.unfinished == 0


@pytest.mark.parametrize("failing", [0.9, 1.0])
def test_ten_members_that_share_one_record_a_second_give_up_none(failing: float) -> None:
    assert play(outage(300, rate=1.0, failing=failing, members=10)).good_given_up == 0


def test_where_each_failure_holds_up_its_only_shard_two_are_given_up_in_ten_minutes() -> None:
    """Nothing else can be tried, so nothing tells the first ones from poison."""
    result = play(outage(540, rate=1.0, failing=1.0, shards=1, order=Order.SHARD))
    assert result.good_given_up <= 2


@pytest.mark.parametrize("seed", range(0, 18, 6))
def test_poison_among_good_records_is_given_up_soon_and_no_good_one_is(seed: int) -> None:
    results = [play(random_poison(each)) for each in range(seed, seed + 6)]
    seconds = [each for result in results for each in result.poison_given_up]
    late = [each for each in seconds if each > RETRIES_SECONDS + 30]
    assert sum(result.good_given_up for result in results) <= 0.001 * sum(result.good for result in results)
    assert len(late) <= 0.15 * len(seconds)


@pytest.mark.parametrize(("records", "seconds"), [(1, 45), (2, 45), (8, 130)])
def test_bad_records_with_nothing_behind_them_are_given_up_soon_and_without_a_flood(
    records: int, seconds: float
) -> None:
    good = 1_000
    result = play(History(rate=15.0, poison=1.0, poison_after=good, most=good + records, ends_at=1_200.0))
    assert len(result.poison_given_up) == records
    assert max(result.poison_given_up) <= seconds
    assert result.deliveries - good <= 16 * records


def test_an_outage_that_is_longer_than_records_are_spared_gives_them_up() -> None:
    result = play(outage(300, rate=1.0, failing=1.0, max_spared_seconds=60.0))
    assert result.good_given_up > 0


def test_without_sparing_each_failure_counts() -> None:
    result = play(outage(60, rate=1.0, failing=1.0, max_spared_seconds=0.0))
    assert result.good_given_up >= result.in_outage - 10
