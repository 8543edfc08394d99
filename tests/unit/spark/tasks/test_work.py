"""What travels arrives as it was."""

import pickle

from kinesis_spout.model.handler import Failure, RaisedAt
from kinesis_spout.model.record import Record, TracedRecord
from kinesis_spout.spark.tasks.work import Unfinished, WorkResult, WorkSlice, failed_record
from shard_state import (
    Fate,
    Position,
    Redelivery,
    SequenceNumber,
    SliceKind,
    SliceOutcome,
    SlicePlan,
)

RECORDS = (
    Record(data=b"one", sequence_number="1", partition_key="k", shard_id="s", attempt=2),
    TracedRecord(data=b"two", sequence_number="1", sub_sequence_number=4, traceparent="00-1-2-01"),
)
PLAN = SlicePlan(
    shard_id="s",
    epoch=3,
    kind=SliceKind.RETRY,
    limit=2,
    position=Position.after(SequenceNumber(1)),
    max_failures=2,
    retries=tuple(Redelivery(sequence=record.sequence, attempt=2) for record in RECORDS),
)
FAILURES = (
    Failure(error_text="no", raised=RaisedAt("ValueError at a", "Traceback")),
    Failure(error_text="later", delay_seconds=2.5, put_off=True),
)


def test_a_slice_arrives_as_it_was() -> None:
    work = WorkSlice(plan=PLAN, records=RECORDS)
    arrived = pickle.loads(pickle.dumps(work))

    assert arrived == work
    assert [type(record) for record in arrived.records] == [Record, TracedRecord]


def test_a_result_arrives_as_it_was() -> None:
    failures = tuple(
        failed_record(record, failure, index=at, previous=RECORDS[0].sequence if at else None)
        for at, (record, failure) in enumerate(zip(RECORDS, FAILURES, strict=True))
    )
    result = WorkResult(
        plan=PLAN,
        outcome=SliceOutcome(first=RECORDS[0].sequence, last=RECORDS[1].sequence, count=2, failures=failures),
        unfinished=tuple(
            Unfinished(record=record, error=failure.error_text, raised=failure.raised)
            for record, failure in zip(RECORDS, FAILURES, strict=True)
        ),
        delivered=2,
        left=RECORDS,
        throttles=1,
    )
    arrived = pickle.loads(pickle.dumps(result))

    assert arrived == result
    assert [failure.fate for failure in arrived.outcome.failures] == [Fate.FAILED, Fate.PUT_OFF]
    assert arrived.unfinished[0].raised == FAILURES[0].raised


def test_failures_are_counted_by_where_they_were_raised_and_verdicts_are_none() -> None:
    place = RaisedAt("ValueError at a", "Traceback")
    ended = [
        Failure(error_text="ValueError: one", raised=place),
        Failure(error_text="ValueError: two", raised=place),
        Failure(error_text="a text"),
        Failure(error_text="the worker died", killed_worker=True),
        Failure(error_text="put off", put_off=True),
        Failure(error_text="no use", rejected=True),
    ]
    records = [Record(data=b"", sequence_number=str(number), partition_key="k") for number in range(1, 7)]
    failed = zip(records, ended, strict=True)
    result = WorkResult(
        plan=PLAN,
        outcome=SliceOutcome(
            count=6,
            failures=tuple(
                failed_record(record, failure, index=at, previous=None)
                for at, (record, failure) in enumerate(failed)
            ),
        ),
        unfinished=tuple(
            Unfinished(record=record, error=failure.error_text, raised=failure.raised)
            for record, failure in zip(records, ended, strict=True)
        ),
    )
    assert result.kinds_of_failures() == [(place, 2, "ValueError: one"), (None, 2, "a text")]
