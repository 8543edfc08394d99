"""Each checker of the fault suite is silent about a good run, and speaks about the one thing that it is for."""

from dataclasses import replace

import pytest

from shard_state import SHARD_END, Checkpoint, Position, SequenceNumber
from tests.fault.suite.consumers.delivery_log import Entry, Kind, RecordId
from tests.fault.suite.consumers.payload import Act
from tests.fault.suite.judgement import checkers
from tests.fault.suite.judgement.evidence import STOPPED, Event, Evidence, Letter, Probe, Sample
from tests.fault.suite.judgement.zookeeper_history import Ownership, StoredCheckpoint
from tests.fault.suite.producer import Put

SHARD = "shardId-000000000000"
CHILD = "shardId-000000000001"
A, B = 0xA, 0xB
"""Two sessions."""


def put(sequence: int, *, shard: str = SHARD, key: str = "key", act: Act = Act.NOTHING) -> Put:
    return Put(record=RecordId(shard, sequence), key=key, act=act)


def entry(
    time: float,
    kind: Kind,
    sequence: int,
    *,
    life: str = "c1.1",
    epoch: int = 1,
    attempt: int = 1,
    shard: str = SHARD,
) -> Entry:
    record = RecordId(shard, sequence)
    return Entry(time=time, kind=kind, life=life, record=record, epoch=epoch, attempt=attempt)


def done(
    time: float, sequence: int, *, life: str = "c1.1", epoch: int = 1, attempt: int = 1, shard: str = SHARD
) -> list[Entry]:
    """A delivery that is handled and acked."""
    return [
        entry(time + later, kind, sequence, life=life, epoch=epoch, attempt=attempt, shard=shard)
        for later, kind in ((0.0, Kind.DELIVERED), (0.01, Kind.HANDLED), (0.02, Kind.ACKED))
    ]


def stored(
    time: float,
    base: int,
    *,
    shard: str = SHARD,
    session: int = A,
    owner: int | None = None,
    epoch: int = 1,
    acquires: bool = False,
    holes: tuple[tuple[int, int], ...] = (),
    attempts: tuple[tuple[int, int], ...] = (),
) -> StoredCheckpoint:
    checkpoint = Checkpoint(
        start=Position.trim_horizon(),
        base=SHARD_END if base == -1 else SequenceNumber(base),
        epoch=epoch,
        holes=tuple((SequenceNumber(after), SequenceNumber(last)) for after, last in holes),
        attempts=tuple((SequenceNumber(sequence), count) for sequence, count in attempts),
    )
    return StoredCheckpoint(
        zxid=int(time * 100),
        time=time,
        shard=shard,
        session=session,
        owner_session=session if owner is None else owner,
        checkpoint=checkpoint,
        size_bytes=100,
        acquires=acquires,
    )


GOOD = Evidence(
    ledger=[put(1), put(2), put(3, act=Act.POISON), put(1, shard=CHILD)],
    entries=[
        *done(1.0, 1),
        *done(2.0, 2),
        *(
            entry(3.0 + attempt, kind, 3, attempt=attempt)
            for attempt in (1, 2)
            for kind in (Kind.DELIVERED, Kind.FAILED)
        ),
        entry(5.1, Kind.EXHAUSTED, 3, attempt=2),
        entry(5.2, Kind.BURIED, 3, epoch=0, attempt=2),
        *done(7.0, 1, shard=CHILD, life="c2.1"),
    ],
    checkpoints=[
        stored(0.5, 0, acquires=True),
        stored(2.5, 2),
        stored(6.0, -1),
        stored(6.5, 0, shard=CHILD, session=B, acquires=True),
        stored(8.0, 1, shard=CHILD, session=B),
    ],
    letters=[Letter(record=RecordId(SHARD, 3), attempts=2, reason="exhausted")],
    parents={SHARD: (), CHILD: (SHARD,)},
    samples=[Sample(life="c1.1", resident_bytes=100 << 20, threads=8, descriptors=20)],
    retry_limit=1,
)


def without(sequence: int, *kinds: Kind) -> list[Entry]:
    return [
        each for each in GOOD.entries if each.record != RecordId(SHARD, sequence) or each.kind not in kinds
    ]


def also(*entries: Entry) -> list[Entry]:
    return sorted([*GOOD.entries, *entries], key=lambda each: each.time)


def written(*writes: StoredCheckpoint) -> list[StoredCheckpoint]:
    return sorted([*GOOD.checkpoints, *writes], key=lambda each: each.zxid)


@pytest.mark.parametrize("name", checkers.CHECKERS)
def test_a_good_run_is_good(name: str) -> None:
    assert list(checkers.CHECKERS[name](GOOD)) == []


BAD = {
    "a record that was never handled": (
        checkers.lost,
        replace(GOOD, entries=without(1, Kind.HANDLED)),
    ),
    "a dead letter that is not there": (
        checkers.lost,
        replace(GOOD, letters=[]),
    ),
    "a record that the last checkpoint does not reach": (
        checkers.unfinished,
        replace(GOOD, ledger=[*GOOD.ledger, put(2, shard=CHILD)]),
    ),
    "a shard that was never stored": (
        checkers.unfinished,
        replace(GOOD, ledger=[*GOOD.ledger, put(2, shard="another")]),
    ),
    "a checkpoint beyond a record that is not handled yet": (
        checkers.finished_too_early,
        replace(GOOD, checkpoints=written(stored(1.5, 2))),
    ),
    "a hole with a record that is not handled yet": (
        checkers.finished_too_early,
        replace(GOOD, checkpoints=written(stored(0.7, 0, holes=((1, 2),)))),
    ),
    "a checkpoint beyond a letter that is not durable yet": (
        checkers.finished_too_early,
        replace(GOOD, checkpoints=written(stored(5.15, 3))),
    ),
    "a failure that is taken for an ack": (
        checkers.acked_without_success,
        replace(GOOD, entries=also(entry(3.5, Kind.ACKED, 3, attempt=1))),
    ),
    "an ack of an attempt that failed, though the one before it was handled": (
        checkers.acked_without_success,
        replace(GOOD, entries=also(entry(3.5, Kind.ACKED, 1, attempt=2))),
    ),
    "a checkpoint that decreases": (
        checkers.checkpoint_back,
        replace(GOOD, checkpoints=written(stored(3.0, 1))),
    ),
    "an epoch that decreases": (
        checkers.checkpoint_back,
        replace(GOOD, checkpoints=written(stored(3.0, 2, epoch=0))),
    ),
    "a write under an old epoch": (
        checkers.zombie_writes,
        replace(
            GOOD,
            checkpoints=written(stored(2.7, 2, session=B, epoch=2, acquires=True), stored(2.8, 2)),
        ),
    ),
    "a write by a session that is not the owner": (
        checkers.zombie_writes,
        replace(GOOD, checkpoints=written(stored(2.7, 2, owner=B))),
    ),
    "a record handled twice by one owner": (
        checkers.unexplained_duplicates,
        replace(GOOD, entries=also(*done(2.2, 2))),
    ),
    "a record handled again that two commits have missed": (
        checkers.forgotten,
        replace(
            GOOD,
            entries=also(*done(5.5, 1, epoch=2, life="c2.1")),
            checkpoints=[
                stored(0.5, 0, acquires=True),
                stored(3.0, 0),
                stored(4.0, 0),
                stored(5.0, 0, session=B, epoch=2, acquires=True),
            ],
        ),
    ),
    "a record delivered that was stored as finished": (
        checkers.delivered_though_stored,
        replace(
            GOOD,
            entries=also(*done(5.5, 2, epoch=2, life="c2.1")),
            checkpoints=written(stored(5.3, 2, session=B, epoch=2, acquires=True)),
        ),
    ),
    "a record delivered long after the shard was lost": (
        checkers.too_stale,
        replace(
            GOOD,
            entries=also(entry(19.0, Kind.DELIVERED, 2)),
            checkpoints=written(stored(5.3, 2, session=B, epoch=2, acquires=True)),
            events=[Event(kind=STOPPED, target="c1", life="c1.1", begin=5.0, end=13.0)],
        ),
    ),
    "a record delivered long after the shard was lost, by one that was awake": (
        checkers.too_stale,
        replace(
            GOOD,
            entries=also(entry(12.0, Kind.DELIVERED, 2)),
            checkpoints=written(stored(5.3, 2, session=B, epoch=2, acquires=True)),
        ),
    ),
    "a record delivered before the one before it was done": (
        checkers.order_per_key,
        replace(GOOD, entries=also(entry(0.9, Kind.DELIVERED, 2))),
    ),
    "a record delivered while the one before it waits for a retry": (
        checkers.order_per_key,
        replace(
            GOOD,
            ledger=[*GOOD.ledger, put(4)],
            entries=also(entry(4.5, Kind.DELIVERED, 4)),
        ),
    ),
    "a child delivered before its parent was finished": (
        checkers.parents_first,
        replace(GOOD, entries=also(entry(5.15, Kind.DELIVERED, 1, shard=CHILD, life="c2.1"))),
    ),
    "a child owned before its parent was over": (
        checkers.children_too_early,
        replace(GOOD, checkpoints=[each for each in GOOD.checkpoints if not each.checkpoint.is_shard_end]),
    ),
    "an attempt that was left out": (
        checkers.attempts,
        replace(GOOD, entries=also(entry(5.05, Kind.DELIVERED, 3, attempt=4))),
    ),
    "attempts that begin anew with a new owner": (
        checkers.attempts,
        replace(
            GOOD,
            entries=also(entry(5.4, Kind.DELIVERED, 3, attempt=1, epoch=2, life="c2.1")),
            checkpoints=written(
                stored(5.3, 2, session=B, epoch=2, acquires=True, attempts=((3, 1),)),
            ),
        ),
    ),
    "an attempt beyond the limit": (
        checkers.attempts,
        replace(GOOD, entries=also(entry(5.05, Kind.DELIVERED, 3, attempt=3))),
    ),
    "a letter before all attempts were made": (
        checkers.letters,
        replace(GOOD, letters=[replace(GOOD.letters[0], attempts=1)]),
    ),
    "a letter of a record that is fine": (
        checkers.letters,
        replace(GOOD, letters=[*GOOD.letters, replace(GOOD.letters[0], record=RecordId(SHARD, 1))]),
    ),
    "a record without the letter that it is due": (
        checkers.letters,
        replace(GOOD, letters=[]),
    ),
    "too much memory": (
        checkers.resources,
        replace(GOOD, samples=[replace(GOOD.samples[0], resident_bytes=1 << 30)]),
    ),
    "too many threads": (
        checkers.resources,
        replace(GOOD, samples=[replace(GOOD.samples[0], threads=1_000)]),
    ),
    "too many descriptors": (
        checkers.resources,
        replace(GOOD, samples=[replace(GOOD.samples[0], descriptors=1_000)]),
    ),
    "a stored node that is too large": (
        checkers.resources,
        replace(GOOD, checkpoints=[replace(GOOD.checkpoints[0], size_bytes=1 << 20)]),
    ),
    "one that says it is not alive": (
        checkers.restarts_by_livez,
        replace(GOOD, probes=[Probe(life="c1.1", time=1.0, status=503, said="why")]),
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_what_is_wrong_is_named(what: str) -> None:
    check, evidence = BAD[what]
    assert list(check(evidence))


def test_every_checker_can_fail() -> None:
    assert {check for check, _ in BAD.values()} == set(checkers.CHECKERS.values())


def test_a_record_handled_again_by_the_next_owner_is_a_duplicate_and_no_violation() -> None:
    evidence = replace(
        GOOD,
        entries=also(*done(5.5, 2, epoch=2, life="c2.1")),
        checkpoints=[stored(0.5, 0, acquires=True), stored(5.3, 1, session=B, epoch=2, acquires=True)],
    )
    assert checkers.duplicates(evidence) == 1
    for check in (checkers.unexplained_duplicates, checkers.forgotten, checkers.delivered_though_stored):
        assert list(check(evidence)) == []


def test_attempts_of_the_next_owner_go_on_from_what_was_stored() -> None:
    evidence = replace(
        GOOD,
        entries=[
            entry(1.0, Kind.DELIVERED, 3),
            entry(2.0, Kind.DELIVERED, 3, attempt=2, epoch=2, life="c2.1"),
        ],
        checkpoints=[
            stored(0.5, 2, acquires=True),
            stored(1.5, 2, session=B, epoch=2, acquires=True, attempts=((3, 1),)),
        ],
    )
    assert list(checkers.attempts(evidence)) == []


def test_the_next_owner_makes_the_last_attempt_again_whose_letter_was_not_durable() -> None:
    evidence = replace(
        GOOD,
        entries=[entry(5.0, Kind.DELIVERED, 3, attempt=2, epoch=2, life="c2.1")],
        checkpoints=[stored(4.0, 2, session=B, epoch=2, acquires=True, attempts=((3, 2),))],
    )
    assert list(checkers.attempts(evidence)) == []


def test_the_next_of_a_key_does_not_wait_for_a_record_whose_handler_never_said_how_it_ended() -> None:
    evidence = replace(
        GOOD,
        ledger=[put(1, act=Act.FORGET), put(2)],
        entries=[entry(1.0, Kind.DELIVERED, 1), *done(2.0, 2), *done(4.0, 1, attempt=2)],
    )
    assert list(checkers.order_per_key(evidence)) == []


def test_the_ownership_of_a_delivery_is_found_by_its_process_where_the_door_does_not_say_it() -> None:
    delivery = entry(5.5, Kind.DELIVERED, 2, epoch=0, life="c2.1")
    evidence = replace(
        GOOD,
        checkpoints=written(stored(5.3, 2, session=B, epoch=2, acquires=True)),
        ownerships=[
            Ownership(shard=SHARD, session=A, pid=11, begin=0.5),
            Ownership(shard=SHARD, session=B, pid=22, begin=5.3),
        ],
        pids={"c1.1": 11, "c2.1": 22},
    )
    assert evidence.epoch_of(delivery) == 2
    assert evidence.epoch_of(replace(delivery, life="c1.1")) == 1
    assert evidence.epoch_of(replace(delivery, time=5.0)) == 0


def test_a_stale_delivery_is_counted_from_when_the_process_woke_up() -> None:
    evidence = replace(
        GOOD,
        entries=also(entry(13.5, Kind.DELIVERED, 2)),
        checkpoints=written(stored(5.3, 2, session=B, epoch=2, acquires=True)),
        events=[Event(kind=STOPPED, target="c1", life="c1.1", begin=5.0, end=13.0)],
    )
    ((stale, seconds),) = checkers.stale_deliveries(evidence)
    assert (stale.time, seconds) == (13.5, 0.5)
    assert list(checkers.too_stale(evidence)) == []


def test_a_job_on_spark_may_go_on_with_its_slice_for_longer() -> None:
    evidence = replace(
        GOOD,
        entries=[entry(12.0, Kind.DELIVERED, 2, epoch=0)],
        checkpoints=written(stored(5.3, 2, session=B, epoch=2, acquires=True)),
        ownerships=[Ownership(shard=SHARD, session=A, pid=11, begin=0.5)],
        pids={"c1.1": 11},
    )
    assert len(list(checkers.stale_deliveries(evidence))) == 1
    assert list(checkers.too_stale(evidence)) == []
    evidence = replace(evidence, entries=[entry(120.0, Kind.DELIVERED, 2, epoch=0)])
    assert len(list(checkers.too_stale(evidence))) == 1


def test_on_spark_a_record_may_be_handled_again_and_uncounted_once_a_worker_has_died() -> None:
    again = [replace(each, epoch=0) for each in done(3.0, 2)]
    evidence = replace(
        GOOD,
        entries=[*(replace(each, epoch=0) for each in done(2.0, 2)), *again],
        ownerships=[Ownership(shard=SHARD, session=A, pid=11, begin=0.5)],
        pids={"c1.1": 11},
    )
    worker = Entry(time=2.9, kind=Kind.NEW_WORKER, life="c1.1", record=RecordId("", 0))
    assert list(checkers.attempts(evidence)) == []
    assert len(list(checkers.unexplained_duplicates(evidence))) == 1
    evidence = replace(evidence, entries=[*evidence.entries[:3], worker, *again])
    assert list(checkers.unexplained_duplicates(evidence)) == []


@pytest.mark.parametrize(("regained", "found"), [(3.0, 0), (1.5, 1)], ids=["two ownerships", "one ownership"])
def test_a_handler_on_spark_works_under_the_ownership_that_its_record_was_delivered_in(
    regained: float, found: int
) -> None:
    """A slow handler had the record while its life lost the shard and got it again; an earlier worker had died."""
    kinds = (Kind.DELIVERED, Kind.DELIVERED, Kind.DELIVERED, Kind.HANDLED, Kind.HANDLED)
    evidence = replace(
        GOOD,
        entries=[entry(time, kind, 2, epoch=0) for time, kind in zip((1, 2, 4, 6, 8), kinds, strict=True)],
        checkpoints=[stored(0.5, 0, acquires=True), stored(regained, 0, epoch=2, acquires=True)],
        ownerships=[Ownership(shard=SHARD, session=A, pid=11, begin=0.5)],
        pids={"c1.1": 11},
    )
    assert len(list(checkers.unexplained_duplicates(evidence))) == found


@pytest.mark.parametrize(("since", "found"), [(9.0, 0), (1.5, 1)], ids=["two ownerships", "one ownership"])
def test_a_late_job_on_spark_may_be_of_an_earlier_ownership_if_there_was_one(
    since: float, found: int
) -> None:
    """Jobs of both ownerships waited for a worker, until the shard was somebody else's again."""
    deliveries = [replace(each, epoch=0) for each in (*done(20.0, 2), *done(21.0, 2))]
    evidence = replace(
        GOOD,
        entries=deliveries,
        checkpoints=[
            stored(0.5, 0, session=A if since > 2.0 else B, acquires=True),
            stored(since, 0, epoch=2, acquires=True),
            stored(12.0, 0, session=B, epoch=3, acquires=True),
        ],
        ownerships=[Ownership(shard=SHARD, session=A, pid=11, begin=0.5)],
        pids={"c1.1": 11},
    )
    assert len(list(checkers.unexplained_duplicates(evidence))) == found


def in_a_row(count: int) -> Evidence:
    """So many records fail one after the other, the last of them twice, though its retry limit is 0."""
    failures = [
        each
        for number in range(1, count + 1)
        for each in (entry(number, Kind.DELIVERED, number), entry(number + 0.1, Kind.FAILED, number))
    ]
    again = [entry(20.0, Kind.DELIVERED, count, attempt=2), entry(20.1, Kind.EXHAUSTED, count, attempt=2)]
    return Evidence(
        ledger=[put(count, act=Act.POISON)],
        entries=[*done(0.6, 99), *failures, *again],
        checkpoints=[stored(0.5, 0, acquires=True)],
        letters=[Letter(record=RecordId(SHARD, count), attempts=2, reason="exhausted")],
        retry_limit=0,
    )


def test_from_the_sixth_failure_in_a_row_on_none_need_be_an_attempt() -> None:
    assert list(checkers.attempts(in_a_row(6))) == list(checkers.letters(in_a_row(6))) == []


@pytest.mark.parametrize("succeeds", [False, True])
def test_before_the_sixth_failure_in_a_row_and_after_a_success_each_is_one(*, succeeds: bool) -> None:
    evidence = in_a_row(6 if succeeds else 5)
    if succeeds:
        entries = sorted([*evidence.entries, *done(5.5, 98)], key=lambda each: each.time)
        evidence = replace(evidence, entries=entries)
    (record,) = [each.record for each in evidence.ledger]
    assert list(checkers.attempts(evidence)) == [f"{SHARD}:{record.sequence}: attempt 2 is beyond the limit"]
    assert len(list(checkers.letters(evidence))) == 1


def test_the_failures_of_one_record_are_no_row() -> None:
    one = [
        entry(number + later, kind, 1, attempt=number)
        for number in range(1, 8)
        for later, kind in ((0.0, Kind.DELIVERED), (0.1, Kind.FAILED))
    ]
    evidence = Evidence(
        ledger=[put(1)], entries=one, checkpoints=[stored(0.5, 0, acquires=True)], retry_limit=5
    )
    assert list(checkers.attempts(evidence)) == [f"{SHARD}:1: attempt 7 is beyond the limit"]
