"""What is tried at each door, what its records ask for, and the judgement of it."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from tests.fault.suite.consumers.delivery_log import Entry, Kind, RecordId, read_delivery_log
from tests.fault.suite.failure_rates import MIXED, failure_rates, failures_in_a_row, in_turn
from tests.fault.suite.trials import evidence as judged
from tests.fault.suite.trials.evidence import LAST_PLACE, PhaseResult, TrialEvidence, TrialLetter
from tests.fault.suite.trials.failing import Failing
from tests.fault.suite.trials.plan import (
    PLACES,
    RETRY_LIMIT,
    Door,
    Phase,
    Place,
    TrialPlan,
    TrialRecord,
    drawn_records,
)
from tests.fault.suite.trials.report import TrialReport

# Rates


@pytest.mark.parametrize(
    ("text", "rates"), [("5%", (0.05,)), ("0.1%,30%", (0.001, 0.3)), ("mixed", MIXED), ("0", (0.0,))]
)
def test_rates_are_read_as_they_are_written(text: str, rates: tuple[float, ...]) -> None:
    assert failure_rates(text) == pytest.approx(rates)


@pytest.mark.parametrize("text", ["100%", "-1%", "often", ""])
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected rates|could not convert"):
        failure_rates(text)


def test_failures_come_at_their_rate_and_stay_within_their_bound() -> None:
    random = Random(1)
    drawn = Counter(failures_in_a_row(random, 0.3, 3) for _ in range(10_000))
    assert set(drawn) == {0, 1, 2, 3}
    assert (10_000 - drawn[0]) / 10_000 == pytest.approx(0.3, abs=0.02)
    assert drawn[3] / 10_000 == pytest.approx(0.027, abs=0.01)


def test_rates_take_turns() -> None:
    assert [in_turn((0.1, 0.2), number, 2) for number in range(5)] == [0.1, 0.1, 0.2, 0.2, 0.1]


# Plans


@pytest.mark.parametrize("door", LAST_PLACE)
@pytest.mark.parametrize("rates", [MIXED, (0.001,)])
def test_each_kind_of_failure_and_a_poison_record_is_in_one_phase_of_each_door(
    door: Door, rates: tuple[float, ...]
) -> None:
    phases = TrialPlan(seed=7, rates=rates).phases(door)
    records = [record for phase in phases for record in drawn_records(Random(1), door, phase, 0)]
    assert not phases[0].rate
    assert {place for record in records for place in record.fails} == set(PLACES[door])
    assert any(record.is_poison for record in records)


def test_no_record_is_drawn_to_fail_so_often_that_it_is_given_up() -> None:
    phase = Phase(rate=0.9, per_second=None, records=1_000)
    drawn = drawn_records(Random(1), Door.TOPOLOGY, phase, 0)
    assert max(record.failures for record in drawn) == RETRY_LIMIT
    assert not any(record.is_poison and record.fails for record in drawn)


@pytest.mark.parametrize("pace", [None, 1.0])
def test_only_the_paces_that_were_chosen_are_tried_after_the_calm_phase(pace: float | None) -> None:
    phases = TrialPlan(seed=1, paces=(pace,)).phases(Door.RECORD)
    assert {phase.per_second for phase in phases[1:]} == {pace}


def test_a_failure_happens_once_in_whatever_process_or_attempt_and_is_counted(tmp_path: Path) -> None:
    record = TrialRecord(number=4, word="a", fails={Place.HANDLER: 2})
    for process in range(2):
        failing = Failing(log=str(tmp_path / f"log-{process}"), folder=str(tmp_path / "failures"))
        Path(failing.folder).mkdir(exist_ok=True)
        with pytest.raises(ValueError, match="this time"):
            failing.handle(record, Place.HANDLER, process + 1)
    failing.handle(record, Place.HANDLER, 3)
    assert failing.happened() == {Place.HANDLER: 2}
    kinds = [entry.kind for entry in read_delivery_log(Path(failing.log))]
    assert kinds == [Kind.DELIVERED, Kind.FAILED, Kind.DELIVERED, Kind.HANDLED]


# The judgement


def entries(number: int, *kinds: Kind, place: Place = Place.HANDLER) -> list[Entry]:
    record = RecordId(place, number)
    return [Entry(time=float(number), kind=kind, life="log", record=record) for kind in kinds]


FINE = TrialRecord(number=0, word="a")
FAILS = TrialRecord(number=1, word="b", fails={Place.HANDLER: 1})
POISON = TrialRecord(number=2, word="c", is_poison=True)
CALM = PhaseResult(phase=Phase(rate=0.0, per_second=None, records=10), most_seconds=1.0, all_seconds=1.1)
FAILING = PhaseResult(
    phase=Phase(rate=0.3, per_second=None, records=10),
    most_seconds=2.0,
    all_seconds=3.0,
    endpoint_faults={"answers 500": 2},
    endpoint_chances=10.5,
)
FEW_CALLS = replace(FAILING, endpoint_faults={}, endpoint_chances=1.0)
GOOD = TrialEvidence(
    door=Door.RECORD,
    ledger=[FINE, FAILS, POISON],
    phases=[CALM, FAILING],
    entries=[
        *entries(0, Kind.DELIVERED, Kind.HANDLED),
        *entries(1, Kind.DELIVERED, Kind.FAILED, Kind.DELIVERED, Kind.HANDLED),
        *entries(2, *(1 + RETRY_LIMIT) * [Kind.DELIVERED]),
    ],
    letters=[TrialLetter(number=2, attempts=1 + RETRY_LIMIT, reason="exhausted")],
    happened={Place.HANDLER: 1},
)
GOOD_PRODUCER = replace(
    GOOD,
    door=Door.PRODUCER,
    ledger=[FINE, TrialRecord(number=1, word="b")],
    entries=[],
    letters=[],
    happened={},
    on_stream={0: 1, 1: 2},
    puts_lost=1,
)
GOOD_TOPOLOGY = replace(
    GOOD,
    door=Door.TOPOLOGY,
    entries=[
        *entries(0, Kind.HANDLED, place=Place.SINK),
        *entries(1, Kind.HANDLED, Kind.HANDLED, place=Place.SINK),
    ],
    happened=dict.fromkeys(PLACES[Door.TOPOLOGY], 1),
    counts={"a": 1, "b": 1, "all": 2},
)

BAD = {
    "a failure that was taken for an ack": (
        "lost",
        replace(GOOD, entries=[*GOOD.entries[:3], *GOOD.entries[6:]]),
    ),
    "a poison record that was taken for acked": ("lost", replace(GOOD, letters=[])),
    "a confirmed record that is not on the stream": ("lost", replace(GOOD_PRODUCER, on_stream={1: 1})),
    "an innocent record's letter": (
        "innocent records dead-lettered",
        replace(GOOD, letters=[*GOOD.letters, replace(GOOD.letters[0], number=1)]),
    ),
    "a letter that was lost": ("dead letters", replace(GOOD, letters=[])),
    "a letter after too few attempts": (
        "dead letters",
        replace(GOOD, letters=[replace(GOOD.letters[0], attempts=2)]),
    ),
    "a poison record that was handled": (
        "dead letters",
        replace(GOOD, entries=[*GOOD.entries, *entries(2, Kind.HANDLED)]),
    ),
    "a delivery that no failure explains": (
        "attempts",
        replace(GOOD, entries=[*GOOD.entries, *entries(0, Kind.DELIVERED)]),
    ),
    "a record that never came again": ("attempts", replace(GOOD, entries=GOOD.entries[:3])),
    "a record handled twice": (
        "unexplained duplicates",
        replace(GOOD, entries=[*GOOD.entries, *entries(0, Kind.HANDLED)]),
    ),
    "a record on the stream again though no answer was lost": (
        "unexplained duplicates",
        replace(GOOD_PRODUCER, puts_lost=0),
    ),
    "a record counted twice": ("counted wrongly", replace(GOOD_TOPOLOGY, counts={"a": 2, "b": 1, "all": 3})),
    "a record given up and counted": (
        "counted wrongly",
        replace(GOOD_TOPOLOGY, counts={"a": 1, "b": 1, "c": 1, "all": 3}),
    ),
    "a phase that stands still": (
        "not finished in time",
        replace(GOOD, phases=[CALM, replace(FAILING, all_seconds=None, without_outcome=3)]),
    ),
    "a record that could not be put": ("not finished in time", replace(GOOD_PRODUCER, unconfirmed=1)),
    "a door that has ended": ("not finished in time", replace(GOOD, errors=["it ended: OSError"])),
    "a kind of failure that never happened": (
        "failures that never happened",
        replace(GOOD_TOPOLOGY, happened={Place.SINK: 3}),
    ),
    "an endpoint that never failed": (
        "failures that never happened",
        replace(GOOD_PRODUCER, phases=[CALM, replace(FAILING, endpoint_faults={})]),
    ),
}


@pytest.mark.parametrize(
    "good",
    [GOOD, GOOD_PRODUCER, GOOD_TOPOLOGY, replace(GOOD, phases=[CALM, FEW_CALLS])],
    ids=["record", "producer", "topology", "so few calls that none failed by chance"],
)
def test_a_good_trial_is_good(good: TrialEvidence) -> None:
    assert TrialReport(seed=1, trials=[good]).violations() == {}


@pytest.mark.parametrize("what", BAD)
def test_what_is_wrong_with_a_trial_is_named(what: str) -> None:
    name, evidence = BAD[what]
    assert list(judged.TRIAL_CHECKERS[name](evidence))
    assert not TrialReport(seed=1, trials=[GOOD, evidence]).is_good


def test_every_checker_of_trials_can_fail() -> None:
    assert {name for name, _ in BAD.values()} == set(judged.TRIAL_CHECKERS)
