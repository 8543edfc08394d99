"""Records of 10 MiB without a key in a streaming query, with room for hardly more than one page."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from kinesis_spout.kinesis.pace import ReadPace
from kinesis_spout.testing import InMemoryStream
from tests.support.waiting import wait_until
from tests.unit.structured.spark_in_memory import Batch, SparkInMemory, options

LARGEST = [bytes([number]) * (10 * 1024 * 1024) for number in range(3)]


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch) -> Iterator[SparkInMemory]:
    monkeypatch.setattr(ReadPace, "seconds_for", lambda *_: 0.2)  # waits in real time here
    stream = InMemoryStream()
    for data in LARGEST:
        stream.put(data)
    asked = options(stream, maxBufferedBytes="20m", maxBytesPerTrigger="1")
    spark = SparkInMemory(replace(asked, read=replace(asked.read, max_fetch_bytes_per_second=10**10)))
    yield spark
    spark.stop()


def next_batch(spark: SparkInMemory, *, fail: bool = False) -> Batch:
    """Trigger until there is a batch: one of these takes longer to come than a trigger waits."""
    found: list[Batch] = []

    def has_one() -> bool:
        batch = spark.trigger(fail=fail)
        found.extend([] if batch is None else [batch])
        return bool(found)

    wait_until(has_one, "a batch")
    return found[0]


def test_each_is_a_batch_whole_although_it_is_larger_than_the_limit_of_one(spark: SparkInMemory) -> None:
    batches = [next_batch(spark) for _ in LARGEST]

    assert [[data for _, _, data in batch.rows] for batch in batches] == [[data] for data in LARGEST]


def test_a_replay_reads_the_same_ones_again(spark: SparkInMemory) -> None:
    lost, replayed = next_batch(spark, fail=True), next_batch(spark)

    assert replayed.rows == lost.rows
    assert [data for _, _, data in [*replayed.rows, *next_batch(spark).rows]] == LARGEST[:2]
