"""The figures of a run of the fault suite, and its table."""

from collections import Counter
from dataclasses import replace

from tests.fault.suite.consumers.delivery_log import Entry, Kind, RecordId
from tests.fault.suite.judgement.evidence import CLOSED, KILLED, KILLS, Event, Evidence
from tests.fault.suite.judgement.report import Report, joins, lines, percentile, takeovers

SHARD = "shardId-000000000000"


def handled(time: float, life: str, *, shard: str = SHARD, kind: Kind = Kind.HANDLED) -> Entry:
    return Entry(time=time, kind=kind, life=life, record=RecordId(shard, 1))


KILL = Event(kind=KILLED, target="c1", begin=10.0, end=10.5, life="c1.1", shards=(SHARD,))
EVIDENCE = Evidence(
    ledger=[],
    entries=[
        handled(9.0, "c1.1"),
        handled(11.0, "c2.1", shard="another"),
        handled(11.5, "c1.1"),
        handled(14.0, "c2.1"),
        handled(15.0, "c2.1"),
    ],
    events=[KILL],
)


def test_a_fail_over_lasts_from_the_kill_to_the_first_record_of_its_shards_that_another_one_handled() -> None:
    assert takeovers(EVIDENCE, KILLS) == ([4.0], [4.0])
    assert takeovers(EVIDENCE, {CLOSED}) == ([], [])


def test_a_kill_that_another_fault_met_is_not_alone() -> None:
    split = Event(kind="split", target="stream", begin=13.0, end=13.2)
    assert takeovers(replace(EVIDENCE, events=[KILL, split]), KILLS) == ([4.0], [])
    later = replace(split, begin=14.1, end=14.2)
    assert takeovers(replace(EVIDENCE, events=[KILL, later]), KILLS) == ([4.0], [4.0])


def test_an_owner_of_nothing_that_is_killed_has_no_fail_over() -> None:
    assert takeovers(replace(EVIDENCE, events=[replace(KILL, shards=())]), KILLS) == ([], [])


def test_joining_lasts_from_the_start_to_the_first_delivery_and_the_first_lives_do_not_count() -> None:
    entries = [
        handled(1.0, "c1.1", kind=Kind.STARTED),
        handled(2.0, "c1.1", kind=Kind.DELIVERED),
        handled(5.0, "c1.2", kind=Kind.STARTED),
        handled(8.0, "c1.2", kind=Kind.DELIVERED),
        handled(9.0, "c1.2", kind=Kind.DELIVERED),
    ]
    assert joins(replace(EVIDENCE, entries=entries)) == [3.0]


def test_percentiles_are_of_what_there_is() -> None:
    assert percentile([], 0.5) == "-"
    assert percentile([1.0, 2.0, 3.0], 0.5) == "2.0 s"
    assert percentile([1.0, 2.0, 3.0], 0.99) == "3.0 s"


REPORT = Report(
    seed=7,
    events=Counter({KILLED: 3, "split": 2}),
    kinesis_answers=Counter({"answers 500": 4}),
    records=10_000,
    deliveries=10_500,
    failures_by_chance=300,
    dead_letters=5,
    duplicates=100,
    violations={"lost": [], "zombie writes": []},
    seconds={"fail-over, kills alone": [3.5]},
    stale=[],
    fault_seconds=60.0,
    settle_seconds=2.0,
    ended_by_handler=1,
    failed_starts=Counter({"kinesis_spout.model.errors.StoreUnavailable": 1}),
    probes=120,
    most={"resident_mib": 100, "threads": 10, "descriptors": 10, "node_bytes": 500, "shards": 9},
)


def test_a_run_without_violations_is_good_and_one_with_any_is_not() -> None:
    assert REPORT.is_good
    bad = replace(REPORT, violations={"lost": ["shard:1 was never handled"], "zombie writes": []})
    assert not bad.is_good
    assert any("shard:1 was never handled" in line for line in lines(bad))


def test_the_table_fits_a_terminal_of_80_columns() -> None:
    assert max(map(len, lines(REPORT))) <= 80
    assert REPORT.as_document()["events_total"] == 5
