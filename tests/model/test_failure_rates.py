"""Handlers and calls that fail at random rates, in both record doors: nothing is lost, and no innocent given up.

Where `test_every_call` has one fault in a run, here everything fails now and then: handlers, calls to ZooKeeper,
to Kinesis and to the dead letter sink, from 0.1 % of them to 30 %. What each record's handler does is drawn
before, so that the world knows what must come of it.
"""

import logging
import random
from collections.abc import Callable

import pytest

from shard_state import Order
from tests.fault.suite.failure_rates import MIXED, failures_in_a_row, named
from tests.model.call_faults import Fault, faults_of
from tests.model.counted_processes import OpenDoor
from tests.model.counted_world import RETRY_LIMIT, CountedWorld, Scenario
from tests.model.stepped_doors import MicroBatchDoor, PlainDoor

pytestmark = pytest.mark.no_second_run

RUNS = 4
_KINDS = ("acks", "fails-once", "fails-twice")
_GIVEN_UP = ("fails", "rejects")
_CALL_FAULTS = frozenset({Fault.REFUSED, Fault.ANSWER_LOST, Fault.ITERATORS_EXPIRED})


@pytest.mark.parametrize("rate", MIXED, ids=named)
@pytest.mark.parametrize("open_door", [PlainDoor, MicroBatchDoor], ids=["plain", "micro-batch"])
@pytest.mark.parametrize("order", Order)
def test_nothing_is_lost_and_nothing_innocent_given_up_at_any_rate_of_failures(
    order: Order, open_door: OpenDoor, rate: float
) -> None:
    failed = 0
    for seed in range(RUNS):
        draws = random.Random(f"{order}/{rate}/{seed}")
        world = CountedWorld(scenario(draws, order, rate), open_door, {}, by_chance(draws, rate))
        before = random.getstate()
        random.seed(seed)  # back-off has jitter
        try:
            world.run()
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        finally:
            random.setstate(before)
        failed += world.by_chance.total()
    assert failed or rate < MIXED[-2], "calls have failed, or the runs prove nothing"


def scenario(draws: random.Random, order: Order, rate: float) -> Scenario:
    def records(count: int) -> list[str]:
        return [f"{kind()} {draws.choice('abcde')}" for _ in range(count)]

    def kind() -> str:
        if draws.random() < rate / 5:
            return draws.choice(_GIVEN_UP)
        return _KINDS[failures_in_a_row(draws, rate, RETRY_LIMIT)]

    return Scenario(order=order, first=records(12), second=records(12), later=records(4))


def by_chance(draws: random.Random, rate: float) -> Callable[[str], Fault | None]:
    def met(call: str) -> Fault | None:
        faults = [fault for fault in faults_of(call) if fault in _CALL_FAULTS]
        return draws.choice(faults) if faults and draws.random() < rate else None

    return met


@pytest.fixture(autouse=True)
def _without_logs(caplog: pytest.LogCaptureFixture) -> None:
    """Runs in which everything fails have much to say."""
    caplog.set_level(logging.CRITICAL, logger="kinesis_spout")
