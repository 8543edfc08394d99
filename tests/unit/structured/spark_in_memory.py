"""What Spark does with a streaming reader, without Spark: offset log, commit log, replays, pickled readers."""

import json
import pickle
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any, cast

import pyarrow as pa

from kinesis_spout.kinesis import KinesisClientSettings, PollingShardGetter
from kinesis_spout.settings.source_options import StreamReadOptions
from kinesis_spout.structured.pages.page_buffer import ShardKey
from kinesis_spout.structured.stream.partitions import ShardRanges, read_ranges
from kinesis_spout.structured.stream.stream_reader import KinesisStreamReader
from kinesis_spout.testing import InMemoryStream
from tests.support.kinesis.in_memory_client import InMemoryKinesisClient
from tests.support.waiting import DEADLINE_SECONDS

Row = tuple[str, str, bytes]
"""Shard, sequence number, data."""


_clients: dict[str, Any] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class InMemorySettings(KinesisClientSettings):
    """Leads to a client in memory, also after it was pickled."""

    name: str = ""

    def connect(self) -> Any:
        return _clients[self.name]


def options(stream: InMemoryStream, **given: str) -> StreamReadOptions:
    return options_over(InMemoryKinesisClient(stream), stream.name, **{"streamName": stream.name} | given)


def options_over(client: Any, name: str, **given: str) -> StreamReadOptions:
    """Give the options of a read with a client in memory, which is known by a name."""
    _clients[name] = client
    defaults = {
        "region": "us-east-1",
        "initialPosition": "earliest",
        "pageServerHost": "127.0.0.1",
        "shardFetchInterval": "200ms",
    }
    read = StreamReadOptions.of(defaults | given)
    return replace(
        read,
        client=InMemorySettings(region="us-east-1", name=name),
        read=replace(read.read, fetch_period_seconds=0.001),
        idle_fetch_period_seconds=0.001,
        shard_list_seconds=0.001,
        stream_list_interval_seconds=0.001,
    )


def rows_of(partitions: list[Any]) -> list[Row]:
    """What the tasks of a batch read, each with its own copy of the reader."""
    rows: list[Row] = []
    for partition in pickle.loads(pickle.dumps(partitions)):
        assert isinstance(partition, ShardRanges)
        for batch in read_ranges(partition):
            rows.extend(_rows(batch))
    return rows


def _rows(batch: pa.RecordBatch) -> list[Row]:
    columns = (batch.column(name).to_pylist() for name in ("shardId", "sequenceNumber", "data"))
    return cast("list[Row]", list(zip(*columns, strict=True)))


@dataclass
class Batch:
    number: int
    rows: list[Row]
    partitions: list[Any] = field(repr=False)


class SparkInMemory:
    """A query with its checkpoint. ``crash`` and ``start`` end and begin a run of it."""

    def __init__(self, options: StreamReadOptions, *, available_now: bool = False) -> None:
        self.options = options
        self.offsets: list[str] = []
        self.committed = 0
        self.batches: list[Batch] = []
        self.start(available_now=available_now)

    def start(self, *, available_now: bool = False) -> None:
        self.reader = KinesisStreamReader(self.options)
        self._initial: str | None = None
        if available_now:
            self.reader.prepareForTriggerAvailableNow()

    def ask_initial_offset(self) -> None:
        """Ask it now rather than at the first trigger of this run, which then has this one."""
        self._initial = json.dumps(self.reader.initialOffset())

    def stop(self) -> None:
        self.reader.stop()

    def trigger(self, *, fail: bool = False) -> Batch | None:
        """Run what Spark runs at a trigger: the batch that was logged and not committed, else a new one.

        With ``fail`` the batch is logged and read, and the query ends before it is committed.
        """
        if len(self.offsets) == self.committed:
            start = json.loads(self._start())
            text = json.dumps(self._latest_offset(start))
            if text == json.dumps(start):
                return None
            self.offsets.append(text)
            if self.committed:
                self.reader.commit(json.loads(self.offsets[-2]))
        batch = self._run()
        if fail:
            self.reader.stop()
            self.start()
        else:
            self.committed += 1
            self.batches.append(batch)
        return batch

    def until_idle(self, triggers: int = 1000) -> list[Row]:
        """Trigger until a trigger has nothing. Returns the rows of all batches of this call."""
        rows: list[Row] = []
        for _ in range(triggers):
            batch = self.trigger()
            if batch is None:
                return rows
            rows.extend(batch.rows)
        raise AssertionError(f"still new batches after {triggers} triggers")

    def next_batch(self, *, fail: bool = False) -> Batch:
        """Trigger until a batch comes: a shard may be found, or born, only after a trigger."""
        deadline = monotonic() + DEADLINE_SECONDS
        while monotonic() < deadline:
            batch = self.trigger(fail=fail)
            if batch is not None:
                return batch
        raise AssertionError(f"no batch within {DEADLINE_SECONDS:g} s")

    def until_rows(self, count: int) -> list[Row]:
        """Trigger until so many rows have come. Returns the rows of all batches of this call."""
        rows: list[Row] = []
        while len(rows) < count:
            rows.extend(self.next_batch().rows)
        return rows

    @property
    def rows(self) -> list[Row]:
        return [row for batch in self.batches for row in batch.rows]

    def _latest_offset(self, start: dict[str, Any]) -> dict[str, Any]:
        """Ask for it until something came, or every shard was polled since: the reader waits for one second."""
        deadline = monotonic() + DEADLINE_SECONDS
        polled = self._empty_polls()
        while True:
            found = self.reader.latestOffset(start, self.reader.getDefaultReadLimit())
            is_polled = all(count != polled.get(shard, 0) for shard, count in self._empty_polls().items())
            if found != start or is_polled or monotonic() >= deadline:
                return found

    def _empty_polls(self) -> dict[ShardKey, int]:
        """How many polls in a row were empty, of each shard that is polled now and can be."""
        if self.reader._ahead is None:
            return {}
        fetched = self.reader._ahead._fetched
        return {
            shard: fetcher._empty_reads
            for shard, fetcher in list(fetched._fetchers.items())
            if isinstance(fetcher._getter, PollingShardGetter)
            and not (fetcher.at_end or fetcher.has_all_until or fetcher.failure or fetcher._failing_since)
            and fetcher not in fetched.room.parked
        }

    def _start(self) -> str:
        if self.committed:
            return self.offsets[self.committed - 1]
        return self._initial or json.dumps(self.reader.initialOffset())

    def _run(self) -> Batch:
        number = self.committed
        partitions = list(self.reader.partitions(json.loads(self._start()), json.loads(self.offsets[number])))
        return Batch(number, rows_of(partitions), partitions)
