"""The handlers of ``bench_doors``, and how many records they were given, in all processes.

Each process counts in a file of its own, mapped into its memory: that costs a handler some 0.1 µs, and what was
counted is seen at once from outside and outlives the process. So a benchmark can tell that every record was
handled, and handled once, without asking the spout.
"""

import json
import mmap
import os
import tempfile
import threading
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame

from kinesis_spout.model.record import Record

_COUNTS: Final = "BENCHMARK_COUNTS"
"""The environment variable that names the folder of the counts."""
_BYTES: Final = 8

_folder: Final = None if _COUNTS in os.environ else tempfile.TemporaryDirectory()
"""Of the first process that imports this; those that it starts inherit the name."""
if _folder is not None:
    os.environ[_COUNTS] = _folder.name


def _own_count() -> memoryview:
    descriptor, _ = tempfile.mkstemp(dir=os.environ[_COUNTS])
    os.truncate(descriptor, _BYTES)
    mapped = mmap.mmap(descriptor, _BYTES)
    os.close(descriptor)
    return memoryview(mapped).cast("q")


_count: Final = _own_count()
_lock: Final = threading.Lock()
"""For the driver's handlers; a task calls its handler on one thread."""


def handled() -> int:
    """Count what all processes were given so far."""
    files = Path(os.environ[_COUNTS]).iterdir()
    return sum(memoryview(file.read_bytes()).cast("q")[0] for file in files)


def look(record: Record) -> None:
    """Do nothing with a record but look at its data."""
    _ = record.data
    _count[0] += 1


def parse(record: Record) -> None:
    """Parse a record's JSON as the standard library does it."""
    json.loads(record.data)
    _count[0] += 1


def take_parsed(values: Any) -> None:  # noqa: ARG001 - that they were made is what costs
    """Do nothing with a record that the spout's scheme has parsed."""
    _count[0] += 1


def look_at_rows(batch: pa.RecordBatch, _collector: object) -> None:
    """Do nothing with an Arrow batch but count its rows."""
    _count[0] += batch.num_rows


def count_rows(rows: DataFrame, _beside: object) -> None:
    """Count the rows of a micro-batch with a job of Spark; for ``foreach_batch`` and ``foreachBatch``."""
    counted = rows.count()
    with _lock:  # the spout runs two micro-batches of different shards at a time
        _count[0] += counted


class FailsAtFirst:
    """Does what ``look`` does, but fails so many of 100 records, spread evenly, at their first delivery."""

    def __init__(self, percent: int) -> None:
        self._failing = frozenset(f"{number:02}" for number in range(0, 100, 100 // percent))

    def __call__(self, record: Record) -> None:
        _count[0] += 1
        if record.attempt == 1 and record.sequence_number[-2:] in self._failing:
            raise ValueError("not at the first time")
