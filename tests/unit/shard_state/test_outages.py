"""An outage after a good time: how many good records are given up, and when the first succeeds after the mend."""

from collections.abc import Iterator
from random import Random

import pytest

from shard_state import (
    BreakerRule,
    Capacity,
    Checkpoint,
    Exhausted,
    FailedRecord,
    Position,
    Redelivery,
    RetryPolicy,
    SequenceNumber,
    Shard,
    SliceOutcome,
    StateManager,
)
from shard_state.checkpoint.checkpoint import next_ownership


class Consumer:
    """One shard, into which records come at a rate, and a handler that breaks and is mended. Mutable."""

    def __init__(self, *, rate: float, retry_limit: int | None = 3, failing: float = 0.0) -> None:
        random = Random(22)
        self.manager = a_manager(retry_limit, random)
        self._random, self._rate, self._failing = random, rate, failing
        self._step = max(0.01, min(0.1, 1 / rate))
        self._now = self._arrived = 0.0
        self._handed_out = 0
        self._broken = False
        self.given_up = 0
        self.pauses = 0
        self.succeeded_at: list[float] = []

    def runs(self, seconds: float, *, broken: bool = False) -> None:
        self._broken, self.succeeded_at = broken, []
        until = self._now + seconds
        while self._now < until:
            self._arrived += self._step * self._rate
            was_paused = self.manager.breaker.pause is not None
            for sequence, attempt in self._due():
                self._handle(sequence, attempt)
            self.pauses += self.manager.breaker.pause is not None and not was_paused
            self._now += self._step

    def _due(self) -> Iterator[tuple[SequenceNumber, int]]:
        while True:
            for fresh in self.manager.breaker.probes_fresh if self.manager.breaker.pause else (False, True):
                handed_out = self._fresh() if fresh else self.manager.take_retry("a", self._now)
                if handed_out is not None:
                    yield handed_out.sequence, handed_out.attempt
                    break
            else:
                return

    def _fresh(self) -> Redelivery | None:
        if self._handed_out + 1 > self._arrived or not self.manager.may_read("a", self._now):
            return None
        self._handed_out += 1
        sequence = SequenceNumber(self._handed_out)
        return Redelivery(
            sequence=sequence, attempt=self.manager.emit("a", sequence, None, self._now).attempt
        )

    def _handle(self, sequence: SequenceNumber, attempt: int) -> None:
        if not self._broken and self._random.random() >= self._failing:
            self.succeeded_at.append(self._now)
            self.manager.ack("a", sequence, self._now)
        elif isinstance(self.manager.fail("a", sequence, self._now, attempt=attempt), Exhausted):
            self.given_up += 1
            self.manager.dead_lettered("a", sequence, self._now)


def a_manager(retry_limit: int | None, random: Random) -> StateManager:
    manager = StateManager(
        app_instance="application",
        random=random.random,
        retry=RetryPolicy(limit=retry_limit),
        capacity=Capacity(records=1_000_000, holes=1_000_000),
        breaker=BreakerRule(),
    )
    manager.listed([Shard(shard_id="a")], {})
    manager.acquired("a", next_ownership(None, Checkpoint(start=Position.trim_horizon())))
    return manager


OUTAGES = pytest.mark.parametrize("outage_seconds", [40, 600])


@OUTAGES
@pytest.mark.parametrize(("rate", "good_seconds"), [(1, 60), (1, 3_600), (15, 60), (15, 600), (300, 60)])
def test_an_outage_after_a_good_time_gives_nothing_up_and_its_mend_is_noticed_within_15_seconds(
    rate: float, good_seconds: float, outage_seconds: float
) -> None:
    consumer = Consumer(rate=rate)
    consumer.runs(good_seconds)
    consumer.runs(outage_seconds, broken=True)
    mended_at = good_seconds + outage_seconds
    consumer.runs(60)
    assert consumer.given_up == 0
    assert consumer.succeeded_at[0] - mended_at <= 15.2
    assert consumer.manager.breaker.pause is None


@OUTAGES
@pytest.mark.parametrize("rate", [1, 15, 300])
def test_without_retries_fewer_than_fifty_are_given_up(rate: float, outage_seconds: float) -> None:
    consumer = Consumer(rate=rate, retry_limit=0)
    consumer.runs(60)
    consumer.runs(outage_seconds, broken=True)
    assert consumer.given_up <= 49


def test_an_outage_from_the_start_gives_nothing_up() -> None:
    consumer = Consumer(rate=1)
    consumer.runs(600, broken=True)
    assert consumer.given_up == 0


@pytest.mark.parametrize("rate", [1, 300])
@pytest.mark.parametrize("failing", [0.001, 0.01, 0.05, 0.3])
def test_failures_at_random_never_pause_and_are_given_up_at_their_limit(failing: float, rate: float) -> None:
    consumer = Consumer(rate=rate, failing=failing)
    consumer.runs(18_000 / rate)
    assert consumer.pauses == 0
    assert consumer.given_up == pytest.approx(18_000 * failing**4, rel=0.4, abs=5)


def test_bad_records_after_which_nothing_comes_are_given_up_when_the_doubt_is_over() -> None:
    consumer = Consumer(rate=1)
    consumer.runs(60)
    consumer.runs(20, broken=True)
    consumer._rate = 0
    consumer.runs(400, broken=True)
    assert consumer.given_up == 20
    assert consumer.pauses == 0


class TestSliceBySlice:
    def settle(self, manager: StateManager, first: int, count: int, failed: range) -> list[Exhausted]:
        (plan,) = [plan for plan in manager.plan(0.0, {}) if plan.is_fresh]
        failures = tuple(
            FailedRecord(
                index=number - first,
                sequence=SequenceNumber(number),
                previous=SequenceNumber(number - 1) if number > first else None,
                attempt=1,
            )
            for number in failed
        )
        outcome = SliceOutcome(
            first=SequenceNumber(first),
            last=SequenceNumber(first + count - 1),
            count=count,
            failures=failures,
        )
        return manager.settle(plan, outcome, 0.0, delivered=count)

    def test_an_outage_that_begins_within_a_slice_is_judged_before_any_of_it_is_given_up(self) -> None:
        manager = a_manager(0, Random(22))
        assert self.settle(manager, 1, 1_000, range(941, 1_001)) == []
        assert manager.breaker.pause is not None
        assert (manager.breaker.pause.failed, manager.breaker.pause.outcomes) == (60, 60)

    def test_the_row_goes_on_from_slice_to_slice(self) -> None:
        manager = a_manager(0, Random(22))
        given_up = len(self.settle(manager, 1, 1_000, range(961, 1_001)))
        given_up += len(self.settle(manager, 1_001, 200, range(1_001, 1_201)))
        assert manager.breaker.pause is not None
        assert given_up == 40

    def test_bad_records_among_good_ones_are_no_row(self) -> None:
        manager = a_manager(0, Random(22))
        assert len(self.settle(manager, 1, 1_000, range(101, 900))) == 799
        assert len(self.settle(manager, 1_001, 1_000, range(1_001, 1_101))) == 100
        assert manager.breaker.pause is None
