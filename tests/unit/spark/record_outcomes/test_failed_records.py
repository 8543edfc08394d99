from typing import Any

import pyarrow as pa
import pytest

from kinesis_spout.model.columns import HANDLED_COLUMNS as COLUMNS
from kinesis_spout.model.dead_letter import DeadLetter
from kinesis_spout.spark.record_outcomes.failed_records import FailedRecords, RetryRules
from kinesis_spout.spark.record_outcomes.record_delivery import OUTCOMES_SCHEMA
from shard_state import RetryPolicy

NOW = 1_700_000_000.0


def failed(limit: int | None = 2, age: float | None = None) -> FailedRecords:
    policy = RetryPolicy(limit=limit, backoff_seconds=1.0, cap_seconds=60.0, jitter=0.1)
    return FailedRecords(RetryRules(policy=policy, maximum_record_age_seconds=age), "billing")


def row(sequence: int, attempt: int = 1, arrived: float | None = NOW - 10, **others: Any) -> dict[str, Any]:
    return {
        "partitionKey": "key",
        "data": f"r{sequence}".encode(),
        "stream": "orders",
        "shardId": "shard",
        "sequenceNumber": str(sequence),
        "approximateArrivalTimestamp": None if arrived is None else round(arrived * 1e6),
        "attempt": attempt,
        "error": "ValueError: bad",
        "rejected": False,
        "delaySeconds": None,
    } | others


def table(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=OUTCOMES_SCHEMA)


def settle(records: FailedRecords, *rows: dict[str, Any], at: float = 100.0) -> list[DeadLetter]:
    return records.settle(table(*rows), now=NOW, monotonic=at, random=0.5)


def spare(records: FailedRecords, *rows: dict[str, Any], at: float = 100.0) -> list[DeadLetter]:
    return records.settle(table(*rows), now=NOW, monotonic=at, random=0.5, spare=True)


def sequences(due: pa.Table) -> list[str]:
    return [str(sequence) for sequence in due.column("sequenceNumber").to_pylist()]


def test_a_failed_record_waits_for_its_back_off_and_comes_as_the_next_attempt() -> None:
    records = failed()

    assert settle(records, row(1)) == []
    assert records.next_due == pytest.approx(100.95)
    due = records.take_due(101.0)
    assert due.schema.names == [*COLUMNS, "attempt"]
    assert due.column("attempt").to_pylist() == [2]
    assert due.column("data").to_pylist() == [b"r1"]
    assert records.next_due is None


def test_records_that_failed_together_come_back_together() -> None:
    records = failed()
    settle(records, row(1), row(2), row(3))

    assert sequences(records.take_due(101.0)) == ["1", "2", "3"]


def test_each_retry_waits_longer_than_the_one_before() -> None:
    records = failed()
    settle(records, row(1, attempt=2))

    assert records.next_due == pytest.approx(101.9)


def test_the_handler_may_choose_the_delay() -> None:
    records = failed()
    settle(records, row(1, delaySeconds=7.0), row(2))

    assert sequences(records.take_due(101.0)) == ["2"]
    assert records.next_due == 107.0


def test_the_earliest_is_given_even_if_the_sleeper_was_woken_early() -> None:
    records = failed()
    settle(records, row(1), row(2, delaySeconds=7.0))

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
        row(4, arrived=NOW - 10, delaySeconds=6.0),
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


def test_spared_deliveries_do_not_count_and_nothing_is_given_up_but_what_is_rejected() -> None:
    records = failed(limit=2, age=1.0)
    letters = spare(records, row(1, attempt=3), row(2), row(3, rejected=True))

    assert [letter.sequence_number for letter in letters] == ["3"]
    assert sorted(records.take_due(200.0).column("attempt").to_pylist()) == [1, 3]


def test_one_record_can_be_taken_alone_and_the_others_stay() -> None:
    records = failed()
    spare(records, row(1), row(2))
    first = records.take_one()

    assert sequences(first) == ["1"]
    spare(records, row(1), at=105.0)
    assert sequences(records.take_one()) == ["2"]
    assert sequences(records.take_one()) == ["1"]
    assert records.next_due is None


def test_a_letter_says_where_its_failure_was_raised() -> None:
    [letter] = settle(failed(), row(1, attempt=3, traceback="in bill"))

    assert letter.traceback == "in bill"


def test_a_user_record_waits_and_dies_under_its_own_number() -> None:
    records = failed()
    first, second = (row(7, subSequenceNumber=sub, explicitHashKey=str(sub)) for sub in (0, 1))

    (letter,) = settle(records, first, second | {"rejected": True})

    assert (letter.sequence_number, letter.message_id) == ("7:1", "shard:7:1")
    assert letter.explicit_hash_key == "1"
    due = records.take_due(101.0)
    assert due.column("subSequenceNumber").to_pylist() == [0]
    assert due.column("explicitHashKey").to_pylist() == ["0"]
