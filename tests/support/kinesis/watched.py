"""``format("watched_kinesis")``: Kinesis whose tasks note what they do, and whose first attempts go wrong."""

import os
import signal
import time
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Row
from pyspark.sql.datasource import InputPartition

from kinesis_spout.settings.source_options import StreamReadOptions, WriteOptions
from kinesis_spout.structured.data_source import KinesisDataSource
from kinesis_spout.structured.stream.stream_reader import KinesisStreamReader
from kinesis_spout.structured.write.writer import KinesisStreamWriter
from kinesis_spout.structured.write.written_columns import Written

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

ROWS_AT_ONCE = 50
LINGERS_SECONDS = 120.0


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """What one attempt at a task did."""

    stage: int
    partition: int
    number: int
    """0 is the first."""
    payloads: list[str]
    """Of the rows that it handed on, in order."""
    ended: bool
    """Whether it handed on all of them."""


class Watch(msgspec.Struct, frozen=True, kw_only=True):
    """Watches the tasks of a query, from within them.

    A first attempt ``dies`` after some rows, as if the system had killed its process; or it ``lingers`` there
    until another attempt at its task is through.
    """

    folder: str
    first_attempt: str

    def attempts(self) -> list[Attempt]:
        """Give what attempts noted, by stage, partition and number."""
        found = [msgspec.json.decode(path.read_bytes(), type=Attempt) for path in Path(self.folder).iterdir()]
        return sorted(found, key=lambda attempt: (attempt.stage, attempt.partition, attempt.number))

    def over(self, items: Iterator[Any]) -> Iterator[Any]:
        """Hand Arrow batches, or rows, on in pieces."""
        context = TaskContext.get()
        assert context is not None, "Spark calls this in a task"
        attempt = Attempt(
            stage=context.stageId(),
            partition=context.partitionId(),
            number=context.attemptNumber(),
            payloads=[],
            ended=False,
        )
        for piece, payloads in _pieces(items):
            yield piece
            attempt.payloads.extend(bytes(payload).decode() for payload in payloads)
            self._note(attempt)
            self._go_wrong(attempt)
        self._note(msgspec.structs.replace(attempt, ended=True))

    def _go_wrong(self, attempt: Attempt) -> None:
        if attempt.number:
            return
        if self.first_attempt == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        second = self._path(attempt.stage, attempt.partition, 1)
        deadline = time.monotonic() + LINGERS_SECONDS
        while not (second.exists() and msgspec.json.decode(second.read_bytes(), type=Attempt).ended):
            assert time.monotonic() < deadline, f"no second attempt was through within {LINGERS_SECONDS} s"
            time.sleep(0.05)

    def _note(self, attempt: Attempt) -> None:
        path = self._path(attempt.stage, attempt.partition, attempt.number)
        new = path.with_suffix(".new")
        new.write_bytes(msgspec.json.encode(attempt))
        new.rename(path)

    def _path(self, stage: int, partition: int, number: int) -> Path:
        return Path(self.folder) / f"{stage}-{partition}-{number}"


def _pieces(items: Iterator[Any]) -> Iterator[tuple[Any, list[bytes]]]:
    for item in items:
        if isinstance(item, Row):  # PySpark 4.0 gives rows to streaming writers
            yield item, [item.data]
            continue
        for start in range(0, item.num_rows, ROWS_AT_ONCE):
            piece = item.slice(start, ROWS_AT_ONCE)
            yield piece, piece.column("data").to_pylist()


class WatchedKinesis(KinesisDataSource):
    """Takes the options of Kinesis, and ``watch``: the JSON of a `Watch`."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        given = {name.lower(): value for name, value in options.items()}
        self._watch = msgspec.json.decode(given.pop("watch"), type=Watch)
        super().__init__(given)

    @classmethod
    def name(cls) -> str:
        return "watched_kinesis"

    def streamReader(self, schema: "StructType") -> "WatchedReader":  # noqa: ARG002, N802 - Spark's name
        return WatchedReader(StreamReadOptions.of(self.options), self._watch)

    def streamWriter(self, schema: "StructType", overwrite: bool) -> "WatchedWriter":  # noqa: FBT001, N802
        return WatchedWriter(self._watch, WriteOptions.of(self.options), schema, overwrite=overwrite)


class WatchedReader(KinesisStreamReader):
    def __init__(self, options: StreamReadOptions, watch: Watch) -> None:
        super().__init__(options)
        self._watch = watch

    def __reduce__(self) -> tuple[Any, ...]:
        return WatchedReader, (self._options, self._watch)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._watch.over(super().read(partition))


class WatchedWriter(KinesisStreamWriter):
    def __init__(self, watch: Watch, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._watch = watch

    def write(self, iterator: Iterator[Any]) -> Written:
        return super().write(self._watch.over(iterator))
