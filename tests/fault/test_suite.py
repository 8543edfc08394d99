"""A short run of the fault suite; `make fault` is the long one."""

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fault.suite.consumers.delivery_log import Kind
from tests.fault.suite.director import Director
from tests.fault.suite.judgement.checkers import CHECKERS
from tests.fault.suite.judgement.evidence import Evidence
from tests.fault.suite.judgement.report import lines, reported
from tests.fault.suite.world import Plan, World, made

pytestmark = [pytest.mark.no_second_run, pytest.mark.zookeeper, pytest.mark.endpoint]

FAULT_SECONDS = 24.0


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    plan = Plan(
        seed=random.SystemRandom().randrange(1_000_000),
        events=1_000,
        seconds=FAULT_SECONDS,
        session_seconds=2.0,
        alone_seconds=8.0,
        combined_seconds=FAULT_SECONDS,
        records_per_second=24.0,
        # Enough, also of a slow machine, that some failed at first, and some for good.
        least_records=400,
        failure_rates=(0.05, 0.3),
    )
    with made(plan, tmp_path) as made_world:
        yield made_world


def with_a_failure_taken_for_an_ack(evidence: Evidence) -> Evidence:
    """Leave out all that came after the first attempt of a record that failed, and say that it was acked."""
    acked = next(each for each in evidence.entries if each.kind is Kind.ACKED and each.attempt > 1)
    first = next(each for each in evidence.of(acked.record, Kind.DELIVERED))
    others = [each for each in evidence.entries if each.record != acked.record]
    return replace(evidence, entries=[*others, first, replace(first, kind=Kind.ACKED)])


def with_a_letter_lost(evidence: Evidence) -> Evidence:
    """Leave out the first letter, and its copies: a sink that loses an answer gets a letter twice."""
    lost = evidence.letters[0].record
    return replace(evidence, letters=[each for each in evidence.letters if each.record != lost])


def with_a_second_owner(evidence: Evidence) -> Evidence:
    """Have the last write of a shard come from a session that does not own it."""
    write = evidence.checkpoints[-1]
    return replace(evidence, checkpoints=[*evidence.checkpoints, replace(write, session=write.session + 1)])


FORGED: dict[Callable[[Evidence], Evidence], set[str]] = {
    with_a_failure_taken_for_an_ack: {"lost", "acked without success"},
    with_a_letter_lost: {"dead letters"},
    with_a_second_owner: {"zombie writes"},
}


def found_by_the_judge(evidence: Evidence) -> set[str]:
    return {name for name, check in CHECKERS.items() if list(check(evidence))}


def test_nothing_is_lost_and_nothing_goes_back_whatever_is_done_to_three_consumers(world: World) -> None:
    outcome = Director(world, lambda _: None).run()
    evidence = world.evidence(outcome.events)
    report = reported(world, outcome, evidence)
    table = "\n".join(lines(report))
    print(table)  # noqa: T201 - shown with -s, and when it fails
    assert report.is_good, table
    assert report.events.total() > 5, table
    for forge, named in FORGED.items():
        assert named <= found_by_the_judge(forge(evidence)), forge.__name__
