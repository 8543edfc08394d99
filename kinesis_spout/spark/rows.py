"""Rows of Arrow with the columns of ``format("kinesis")``, as records."""

from collections.abc import Iterator
from itertools import repeat

import pyarrow as pa

from kinesis_spout.model.columns import ARROW_TYPES
from kinesis_spout.model.record import Record


def records_of(batch: pa.RecordBatch) -> Iterator[Record]:
    """For a batch with ``RECORD_COLUMNS``, or all of ``HANDLED_COLUMNS``."""
    keys, data, streams, shards, sequences = (
        batch.column(name).to_pylist()
        for name in ("partitionKey", "data", "stream", "shardId", "sequenceNumber")
    )
    micros = batch.column("approximateArrivalTimestamp").cast(ARROW_TYPES["timestamp"]).cast(pa.int64())
    arrivals = [None if value is None else value / 1e6 for value in micros.to_pylist()]
    subs, hash_keys = (
        batch.column(name).to_pylist() if name in batch.schema.names else [None] * batch.num_rows
        for name in ("subSequenceNumber", "explicitHashKey")
    )
    return map(
        Record, data, sequences, keys, arrivals, repeat(None), streams, shards, repeat(1), subs, hash_keys
    )
