from typing import Any

import pytest

from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.model.handler import RaisedAt
from kinesis_spout.model.record import DeadLetter, Record
from kinesis_spout.settings import SpoutConfig
from kinesis_spout.spark.record_outcomes import FailedRecords
from kinesis_spout.spark.tasks.work import Unfinished, WorkResult
from shard_state import Blame, Fate, Position, RetryPolicy, SliceKind, SliceOutcome, SlicePlan, UnackedRecord

Failed = tuple[Unfinished, UnackedRecord]
PLAN = SlicePlan(
    shard_id="", epoch=0, kind=SliceKind.RETRY, limit=99, position=Position.trim_horizon(), max_failures=99
)

NOW = 1_700_000_000.0


def failed(limit: int | None = 2, age: float | None = None, spared_seconds: float = 0.0) -> FailedRecords:
    policy = RetryPolicy(limit=limit, backoff_seconds=1.0, cap_seconds=60.0, jitter=0.0)
    blame = Blame(spared_seconds, retry_seconds=policy.all_seconds, limit=limit)
    config = SpoutConfig.of(stream="orders", app="billing", maximum_record_age_seconds=age)
    return FailedRecords(config, policy, blame)


def row(
    sequence: int,
    attempt: int = 1,
    arrived: float | None = NOW - 10,
    *,
    rejected: bool = False,
    delay_seconds: float | None = None,
    raised: RaisedAt | None = None,
    **others: Any,
) -> Failed:
    record = Record(
        data=f"r{sequence}".encode(),
        sequence_number=str(sequence),
        partition_key="key",
        arrival_timestamp=arrived,
        stream="orders",
        shard_id="shard",
        attempt=attempt,
        **others,
    )
    failed = UnackedRecord(
        index=0,
        sequence=record.sequence,
        previous=None,
        attempt=attempt,
        fate=Fate.REJECTED if rejected else Fate.FAILED,
        delay_seconds=delay_seconds,
    )
    return Unfinished(record=record, error="ValueError: bad", raised=raised), failed


def settle(records: FailedRecords, *rows: Failed, at: float = 100.0) -> list[DeadLetter]:
    return records.settle([result(*rows)], NOW, at)


def result(*rows: Failed, delivered: int | None = None) -> WorkResult:
    return WorkResult(
        plan=PLAN,
        outcome=SliceOutcome(failures=tuple(failed for _, failed in rows)),
        unfinished=tuple(unfinished for unfinished, _ in rows),
        delivered=len(rows) if delivered is None else delivered,
    )


def sequences(due: list[Record]) -> list[str]:
    return [record.sequence_number for record in due]


def test_a_failed_record_waits_for_its_back_off_and_comes_as_the_next_attempt() -> None:
    records = failed()

    assert settle(records, row(1)) == []
    assert records.next_due == 101.0
    (due,) = records.take_due(101.0)
    assert (due.attempt, due.data) == (2, b"r1")
    assert records.next_due is None


def test_records_that_failed_together_come_back_together() -> None:
    records = failed()
    settle(records, row(1), row(2), row(3))

    assert sequences(records.take_due(101.0)) == ["1", "2", "3"]


def test_each_retry_waits_longer_than_the_one_before() -> None:
    records = failed()
    settle(records, row(1, attempt=2))

    assert records.next_due == 102.0


def test_the_handler_may_choose_the_delay() -> None:
    records = failed()
    settle(records, row(1, delay_seconds=7.0), row(2))

    assert sequences(records.take_due(101.0)) == ["2"]
    assert records.next_due == 107.0


def test_the_earliest_is_given_even_if_the_sleeper_was_woken_early() -> None:
    records = failed()
    settle(records, row(1), row(2, delay_seconds=7.0))

    assert sequences(records.take_due(100.5)) == ["1"]
    assert records.next_due == 107.0


def test_a_record_past_its_retry_limit_becomes_a_letter_with_all_that_is_known_of_it() -> None:
    records = failed()

    assert settle(records, row(1), row(2, attempt=3)) == [
        DeadLetter(
            application="billing",
            stream="orders",
            shard_id="shard",
            sequence_number="2",
            partition_key="key",
            arrival_timestamp=NOW - 10,
            data=b"r2",
            attempts=3,
            error="ValueError: bad",
            reason="exhausted",
            died_at=NOW,
        )
    ]
    assert sequences(records.take_due(101.0)) == ["1"]


def test_a_rejected_record_is_given_up_at_its_first_delivery() -> None:
    [letter] = settle(failed(), row(1, rejected=True))

    assert (letter.reason, letter.attempts) == ("rejected", 1)


def test_without_a_limit_nothing_is_exhausted() -> None:
    assert settle(failed(limit=None), row(1, attempt=1_000_000)) == []


def test_a_record_that_would_be_too_old_at_its_retry_expires() -> None:
    records = failed(limit=None, age=15.0)
    letters = settle(
        records,
        row(1, arrived=NOW - 16),
        row(2, arrived=NOW - 14.5),
        row(3, arrived=NOW - 10),
        row(4, arrived=NOW - 10, delay_seconds=6.0),
    )

    assert [(letter.sequence_number, letter.reason) for letter in letters] == [
        ("1", "expired"),
        ("2", "expired"),
        ("4", "expired"),
    ]
    assert sequences(records.take_due(101.0)) == ["3"]


def test_a_record_of_unknown_arrival_never_expires() -> None:
    assert settle(failed(age=1.0), row(1, arrived=None)) == []


def test_what_the_handler_said_goes_before_age() -> None:
    letters = settle(failed(age=1.0), row(1, rejected=True), row(2, attempt=3))

    assert [letter.reason for letter in letters] == ["rejected", "exhausted"]


def test_nothing_failed_nothing_waits() -> None:
    records = failed()

    assert settle(records) == []
    assert records.next_due is None


def test_while_all_records_fail_none_is_given_up_but_what_is_rejected_and_few_are_tried() -> None:
    records = failed(limit=2, spared_seconds=600.0)
    letters = settle(records, *(row(number) for number in range(1, 101)), row(101, rejected=True))
    letters += settle(records, *(row(number) for number in range(102, 202)))
    tries, at = 0, 101.0
    while at < 600.0:
        taken = records.take_due(at)
        tries += len(taken)
        letters += settle(records, *(row(int(each.sequence_number), each.attempt) for each in taken), at=at)
        assert records.next_due is not None
        at = records.next_due

    assert [letter.sequence_number for letter in letters] == ["101"]
    assert tries < 300


def test_a_record_that_fails_while_others_pass_is_given_up_at_its_limit() -> None:
    records = failed(limit=2, spared_seconds=600.0)
    records.settle([result(row(1), delivered=1_000)], NOW, 100.0)
    records.settle([result(row(2), delivered=1_000)], NOW, 100.5)
    letters: list[DeadLetter] = []
    for at in (101.0, 103.0):
        taken = records.take_due(at)
        letters += settle(records, *(row(int(each.sequence_number), each.attempt) for each in taken), at=at)

    assert [letter.sequence_number for letter in letters] == ["1"]


def test_a_letter_says_where_its_failure_was_raised() -> None:
    [letter] = settle(failed(), row(1, attempt=3, raised=RaisedAt("ValueError", "in bill")))

    assert letter.traceback == "in bill"


def test_a_user_record_waits_and_dies_under_its_own_number() -> None:
    records = failed()
    first, second = (
        row(7, sub_sequence_number=sub, explicit_hash_key=str(sub), rejected=sub == 1) for sub in (0, 1)
    )

    (letter,) = settle(records, first, second)

    assert (letter.sequence_number, letter.message_id) == ("7:1", "shard:7:1")
    assert letter.explicit_hash_key == "1"
    (due,) = records.take_due(101.0)
    assert (due.sub_sequence_number, due.explicit_hash_key) == (0, "0")


def test_two_failed_rows_of_one_aggregate_that_nothing_tells_apart_are_refused() -> None:
    with pytest.raises(InvalidConfig, match=r"several rows are shard:7: .*extraColumns"):
        settle(failed(), row(7), row(8), row(7))
    other_stream, _ = row(7)
    other_stream.record.stream = "refunds"
    records = failed()
    settle(records, row(7), (other_stream, row(7)[1]))
    assert len(records.take_due(101.0)) == 2
