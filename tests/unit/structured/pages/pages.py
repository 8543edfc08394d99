"""Pages of records for tests: their sequence numbers, their sizes."""

from collections.abc import Callable, Iterable

import pyarrow as pa

from kinesis_spout.kinesis import SCHEMA
from kinesis_spout.kinesis.read.arrow import batch_of_records
from kinesis_spout.model.record import Record


def page_of(
    sequences: Iterable[int],
    *,
    stream: str = "orders",
    shard_id: str = "a",
    width: int = 0,
    arrival: Callable[[int], float | None] = lambda _: 1.0,
) -> pa.RecordBatch:
    records = [
        Record(
            data=str(number).zfill(width).encode(),
            sequence_number=str(number),
            partition_key="k",
            arrival_timestamp=arrival(number),
        )
        for number in sequences
    ]
    return batch_of_records(records, stream=stream, shard_id=shard_id).select(SCHEMA.names)


def sequences_of(batch: pa.RecordBatch) -> list[int]:
    return [int(text) for text in batch.column("sequenceNumber").to_pylist()]
