"""The writers that Spark is given: what they refuse, that they travel, and what they log."""

import logging
import pickle

import pytest
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceArrowWriter
from pyspark.sql.types import StructType

from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.settings.source_options import WriteOptions
from kinesis_spout.structured.write.writer import KinesisBatchWriter, KinesisStreamWriter
from kinesis_spout.structured.write.written_columns import Written

SCHEMA = StructType().add("data", "string").add("partitionKey", "string")
BOTH = [KinesisBatchWriter, KinesisStreamWriter]
SECRETS = {"awsAccessKey": "AKIA-in-view", "awsSecretKey": "hidden-secret", "sessionToken": "hidden-token"}

Kind = type[KinesisBatchWriter] | type[KinesisStreamWriter]


def options(**changed: str) -> WriteOptions:
    return WriteOptions.of({"streamName": "orders", "region": "eu-west-1", **changed})


@pytest.mark.parametrize("kind", BOTH)
def test_a_stream_cannot_be_overwritten(kind: Kind) -> None:
    with pytest.raises(InvalidConfig, match=r"mode: expected append, got overwrite; .*\.mode\(\"append\"\)"):
        kind(options(), SCHEMA, overwrite=True)


@pytest.mark.parametrize("kind", BOTH)
def test_columns_are_checked_when_the_writer_is_made(kind: Kind) -> None:
    with pytest.raises(InvalidConfig, match="column 'partitionKey': expected string, got bigint"):
        kind(options(), StructType().add("data", "string").add("partitionKey", "long"), overwrite=False)


@pytest.mark.parametrize("kind", BOTH)
def test_the_option_names_the_column_of_the_key(kind: Kind) -> None:
    schema = StructType().add("data", "string").add("customer", "string")
    kind(options(partitionKeyColumn="customer"), schema, overwrite=False)
    with pytest.raises(InvalidConfig, match="column 'partitionKey'"):
        kind(options(), schema, overwrite=False)


@pytest.mark.parametrize("kind", BOTH)
def test_dead_letters_that_a_task_cannot_reach_are_refused_before_anything_is_written(kind: Kind) -> None:
    with pytest.raises(InvalidConfig, match=r"^deadLetters: expected"):
        kind(options(deadLetters="ftp://host/dead"), SCHEMA, overwrite=False)


@pytest.mark.parametrize("kind", BOTH)
def test_a_writer_travels_to_the_executors(kind: Kind) -> None:
    writer = pickle.loads(pickle.dumps(kind(options(**SECRETS), SCHEMA, overwrite=False)))
    assert type(writer) is kind


@pytest.mark.parametrize("kind", BOTH)
def test_a_writers_text_has_no_secrets(kind: Kind) -> None:
    writer = kind(options(**SECRETS), SCHEMA, overwrite=False)
    assert "hidden" not in f"{writer!r}{vars(writer)}"


def test_the_batch_writer_takes_arrow_and_the_stream_writer_does_where_pyspark_can() -> None:
    assert issubclass(KinesisBatchWriter, DataSourceArrowWriter)
    best = getattr(datasource, "DataSourceStreamArrowWriter", datasource.DataSourceStreamWriter)
    assert issubclass(KinesisStreamWriter, best)


def test_a_report_travels_to_the_driver() -> None:
    report = Written(records=1, size_bytes=2, retried=3, dead_lettered=4)
    assert pickle.loads(pickle.dumps(report)) == report


def test_a_commit_logs_the_sum_over_its_tasks(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    parts = [Written(records=2, size_bytes=20), Written(records=3, size_bytes=30, retried=1)]
    KinesisBatchWriter(options(), SCHEMA, overwrite=False).commit(parts)
    KinesisStreamWriter(options(), SCHEMA, overwrite=False).commit(parts, 7)
    text = "5 records (50 bytes) on Kinesis, 1 of them put again, 0 rows dead-lettered"
    assert caplog.messages == [f"Write: {text}", f"Micro-batch 7: {text}"]
    assert {record.levelname for record in caplog.records} == {"INFO"}


def test_dead_letters_make_the_summary_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    writer = KinesisStreamWriter(options(deadLetters="/var/dead"), SCHEMA, overwrite=False)
    writer.commit([Written(dead_lettered=2)], 0)
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_an_abort_says_what_stays(caplog: pytest.LogCaptureFixture) -> None:
    KinesisBatchWriter(options(), SCHEMA, overwrite=False).abort([None, Written(records=2, size_bytes=20)])
    KinesisStreamWriter(options(), SCHEMA, overwrite=False).abort([None], 7)
    first, second = caplog.messages
    assert "2 records (20 bytes) on Kinesis" in first
    assert second.startswith("Micro-batch 7 failed. ")
