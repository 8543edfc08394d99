"""Columns that the user lists: Spark tells them when a read is planned, and then one line says what is wrong."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
    # PySpark 4.0 leaves the socket of a collect() to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

OPTIONS = {"streamName": "orders", "region": "us-east-1", "endpointUrl": "http://127.0.0.1:9"}
OTHER_COLUMNS = "InvalidConfig: expected the columns (partitionKey string, data binary, stream string, "
NO_OPTIONS = "InvalidConfig: no stream is named: "


@pytest.fixture
def table(spark: SparkSession) -> Iterator[str]:
    options = ", ".join(f"{name} '{text}'" for name, text in OPTIONS.items())
    spark.sql(f"CREATE TABLE listed (data binary, partitionKey string) USING kinesis OPTIONS ({options})")
    yield "listed"
    spark.sql("DROP TABLE listed")


def collected(frame: DataFrame, _folder: Path) -> None:
    frame.collect()


def streamed(frame: DataFrame, folder: Path) -> None:
    frame.writeStream.format("noop").option("checkpointLocation", str(folder)).start().awaitTermination(60)


def refusal(query: Callable[[DataFrame, Path], None], frame: DataFrame, folder: Path) -> str:
    """The last line of what Spark says, where the error stands."""
    with pytest.raises(PySparkException) as raised:
        query(frame, folder)
    [line] = {line for line in str(raised.value).splitlines() if "InvalidConfig: " in line}
    return line


@pytest.mark.parametrize("query", [collected, streamed])
def test_a_schema_of_the_users_own_is_refused_with_the_columns_that_there_are(
    spark: SparkSession, tmp_path: Path, query: Callable[[DataFrame, Path], None]
) -> None:
    reader = spark.read if query is collected else spark.readStream
    frame = reader.format("kinesis").options(**OPTIONS).schema("data string").load()

    line = refusal(query, frame, tmp_path)

    assert OTHER_COLUMNS in line
    assert "got (data string): list no columns" in line
    assert 'selectExpr("cast(data as string)")' in line


@pytest.mark.parametrize("query", [collected, streamed])
def test_a_table_with_a_list_of_columns_is_refused_with_how_to_create_it(
    spark: SparkSession, table: str, tmp_path: Path, query: Callable[[DataFrame, Path], None]
) -> None:
    frame = spark.read.table(table) if query is collected else spark.readStream.table(table)

    line = refusal(query, frame, tmp_path)

    assert NO_OPTIONS in line
    assert "CREATE TABLE without a list of columns" in line
