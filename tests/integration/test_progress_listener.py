"""The progress listener on real streaming queries: of another source, and of one that reports as ours does."""
# ruff: noqa: ARG002 - the signatures are Spark's

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.listener import QueryProgressEvent

from kinesis_spout.structured.progress_listener import KinesisProgressListener
from kinesis_spout.structured.source_progress import SourceProgress
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]

DEADLINE_SECONDS = 240


class Watched(KinesisProgressListener):
    """Tells of which queries progress came, of any source. Mutable."""

    def __init__(self) -> None:
        super().__init__()
        self.came: set[str] = set()

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        super().onQueryProgress(event)
        if event.progress.numInputRows:
            self.came.add(str(event.progress.id))


@pytest.fixture
def listener(spark: SparkSession) -> Iterator[Watched]:
    watched = Watched()
    spark.streams.addListener(watched)
    yield watched
    spark.streams.removeListener(watched)


@pytest.fixture
def run(spark: SparkSession, tmp_path: Path, listener: Watched) -> Callable[[str], str]:
    def run_until_progress(source: str) -> str:
        query = (
            spark.readStream.format(source)
            .load()
            .writeStream.format("noop")
            .queryName("watched")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )
        try:
            # Progress of a query before may come late.
            wait_until(lambda: str(query.id) in listener.came, "progress", seconds=DEADLINE_SECONDS)
        finally:
            query.stop()
        return str(query.id)

    return run_until_progress


def test_progress_of_another_source_is_passed_over(listener: Watched, run: Callable[[str], str]) -> None:
    query_id = run("rate")

    assert listener.recent(query_id) == ()


@pytest.mark.skipif(
    not hasattr(DataSourceStreamReader, "reportLatestOffset"),
    reason="a source cannot report before Spark 4.2",
)
def test_what_a_reader_reports_arrives(
    spark: SparkSession, listener: Watched, run: Callable[[str], str]
) -> None:
    spark.dataSource.register(reporting_source())
    query_id = run("reports_as_kinesis")

    first = listener.recent(query_id)[0]
    assert (first.name, first.batch_id, first.rows) == ("watched", 0, 2)
    assert (first.streams, first.max_ms_behind_latest, first.total_shards) == (("orders",), 30, 4)


def reporting_source() -> type[DataSource]:
    # Made in a function, so that it travels by value: the workers cannot import this module.
    class Reader(DataSourceStreamReader):
        def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
            return {"at": 0}

        def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:  # noqa: N802
            return {"at": 1}

        def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
            return SourceProgress(
                streams=("orders",),
                mode="polling",
                min_ms_behind_latest=10,
                avg_ms_behind_latest=20,
                max_ms_behind_latest=30,
                total_shards=4,
                closed_shards=0,
                processed_records=2,
                processed_bytes=20,
                throttles=0,
                buffered_bytes=0,
                aggregates=0,
                damaged_aggregates=0,
                records_outside_shard=0,
            ).as_document()

        def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
            return [InputPartition(0)]

        def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
            yield (1,)
            yield (2,)

    class Source(DataSource):
        @classmethod
        def name(cls) -> str:
            return "reports_as_kinesis"

        def schema(self) -> str:
            return "number int"

        def streamReader(self, schema: Any) -> Reader:  # noqa: N802
            return Reader()

    return Source
