"""One micro-batch: its slices, how they are packed into tasks, and what to call the progress it made."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kinesis_spout.errors import DataLoss, ShardNotFound
from kinesis_spout.record import Record
from kinesis_spout.spark.work import Unfinished, WorkResult, WorkSlice
from kinesis_spout.spout.ports import OpenGetter
from shard_state import FailedRecord, Position, Redelivery, SequenceNumber

TRIMMED = "its data was trimmed by the stream's retention before it could be delivered again"


@dataclass(slots=True, kw_only=True)
class Batch:
    """A micro-batch from its plan to its end. Mutable."""

    number: int
    tag: str
    works: list[WorkSlice]
    started: float
    """Monotonic."""
    cancelled_for: str | None = None
    """Why it was cancelled; None if it was not."""

    def record(self, shard_id: str, sequence: SequenceNumber) -> Record | None:
        """Find a record that travelled with the batch."""
        for work in self.works:
            if work.plan.shard_id == shard_id:
                for record in work.records:
                    if record.sequence == sequence:
                        return record
        return None


def pack(works: Sequence[WorkSlice], *, per_task: int, parallelism: int) -> list[list[WorkSlice]]:
    """Spread slices over tasks: every core gets work, beyond that ``per_task`` slices share a task.

    A Python task costs far more than a slice, so there are no more tasks than that.
    """
    tasks = min(len(works), max(parallelism, -(-len(works) // per_task)))
    return [list(itertools.islice(works, at, None, tasks)) for at in range(tasks)]


def read_missing(
    work: WorkSlice, open_getter: OpenGetter, stream: str
) -> tuple[WorkSlice, list[tuple[int, Unfinished]]]:
    """Complete a slice of retries whose data was not kept, reading it again.

    Returns:
        The slice, its records in the order of its retries without those that retention trimmed, and those
        by their index.
    """
    kept = {record.sequence: record for record in work.records}
    records: list[Record] = []
    gone: list[tuple[int, Unfinished]] = []
    for at, retry in enumerate(work.plan.retries):
        record = kept.get(retry.sequence) or _read_again(open_getter, work.plan.shard_id, retry)
        if record is None:
            lost = Record(
                data=b"",
                sequence_number=retry.sequence.kinesis,
                stream=stream,
                shard_id=work.plan.shard_id,
                attempt=retry.attempt,
            )
            gone.append((at, Unfinished(record=lost, error=TRIMMED)))
        else:
            records.append(record)
    return replace(work, records=tuple(records)), gone


def with_gone(result: WorkResult, gone: Sequence[tuple[int, Unfinished]]) -> WorkResult:
    """Add to a slice's outcome the records that could not be delivered: they are given up."""
    if not gone:
        return result
    failures = tuple(
        FailedRecord(
            index=at,
            sequence=unfinished.record.sequence,
            previous=None,
            attempt=unfinished.record.attempt,
            rejected=True,
        )
        for at, unfinished in gone
    )
    return replace(
        result,
        outcome=replace(result.outcome, failures=result.outcome.failures + failures),
        unfinished=result.unfinished + tuple(unfinished for _, unfinished in gone),
    )


def _read_again(open_getter: OpenGetter, shard_id: str, retry: Redelivery) -> Record | None:
    getter = open_getter(shard_id, Position.at(retry.sequence))
    try:
        page = getter.read(1)
    except (DataLoss, ShardNotFound):
        return None
    return next((record for record in page.records if record.sequence == retry.sequence), None)
