"""The function for foreachBatch, over DataFrames whose jobs run in this process."""

import pickle
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, Self, cast

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.errors import PySparkException, PythonException
from pyspark.sql.types import BinaryType, DataType, StringType, StructField, StructType, TimestampType

from kinesis_spout import Reject
from kinesis_spout.dead_letters.json_lines import JsonLinesSink
from kinesis_spout.model.columns import RECORD_COLUMNS
from kinesis_spout.model.errors import DeadLetterError, InvalidConfig
from kinesis_spout.model.record import Record
from kinesis_spout.spark.record_outcomes import each_record
from kinesis_spout.testing import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TYPES: Final[dict[str, DataType]] = {
    "string": StringType(),
    "binary": BinaryType(),
    "timestamp": TimestampType(),
}
Deliver = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class Frame:
    """A DataFrame of such rows; its jobs run here, in one task."""

    schema = StructType([StructField(name, TYPES[type_]) for name, type_ in RECORD_COLUMNS.items()])

    def __init__(self, rows: pa.Table, error: PySparkException | None = None) -> None:
        self._rows = rows
        self._error = error
        self.sparkSession = SimpleNamespace(createDataFrame=Frame)

    def select(self, *columns: str) -> Self:
        del columns
        return self

    def mapInArrow(self, function: Deliver, schema: str) -> Self:  # noqa: N802 - Spark's name
        assert schema == "pickled binary"
        if self._error is not None:
            return self
        return type(self)(pa.Table.from_batches(function(self._rows.to_batches())))

    def toArrow(self) -> pa.Table:  # noqa: N802 - Spark's name
        if self._error is not None:
            raise self._error
        return self._rows


def page(*payloads: str) -> pa.Table:
    rows = len(payloads)
    return pa.table(
        {
            "partitionKey": ["key"] * rows,
            "data": pa.array([payload.encode() for payload in payloads], pa.binary()),
            "stream": ["orders"] * rows,
            "shardId": ["shard"] * rows,
            "sequenceNumber": [str(at + 1) for at in range(rows)],
            "approximateArrivalTimestamp": pa.array(
                [datetime(2026, 1, 2, tzinfo=UTC)] * rows, pa.timestamp("us", tz="UTC")
            ),
        }
    )


def run(function: Callable[["DataFrame", int], None], frame: Frame) -> None:
    function(cast("DataFrame", frame), 0)


def ignore(record: Record) -> None:
    del record


def reject(record: Record) -> None:
    raise Reject(record.data.decode())


def test_the_function_travels_to_where_foreach_batch_runs() -> None:
    function = each_record(ignore, dead_letters="/dead", app="billing", on_progress=print)

    assert callable(pickle.loads(cloudpickle.dumps(function)))  # type: ignore[no-untyped-call]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"handler": "charge"}, "handler: expected a function, got a str"),
        ({"app": ""}, "app: expected"),
        ({"dead_letters": ""}, "dead_letters: expected"),
        ({"dead_letters": "kinesis://"}, "dead_letters: expected"),
        ({"dead_letters": "file://host/dead"}, "dead_letters: expected"),
        ({"dead_letters": "hdfs://me:sesame@nodes/dead"}, "dead_letters: expected a URL without a password"),
        ({"scheme": "yaml"}, "scheme: expected one of raw, text, json"),
        ({"retry_limit": -1}, "retry_limit: expected"),
        ({"retry_backoff_seconds": -1.0}, "retry_backoff_seconds: expected"),
        ({"retry_backoff_seconds": 9.0, "retry_backoff_cap_seconds": 5.0}, "retry_backoff_cap_seconds"),
        ({"maximum_record_age_seconds": 0}, "maximum_record_age_seconds: expected"),
        ({"concurrency": 1_001}, "concurrency: expected"),
        ({"max_failed_bytes_per_task": 0}, "max_failed_bytes_per_task: expected more than 0, got 0"),
        ({"order": "key"}, "each_record: expected settings among app, .*, got order"),
    ],
)
def test_an_argument_out_of_its_range_is_named(arguments: dict[str, Any], message: str) -> None:
    good: dict[str, Any] = {"handler": ignore, "dead_letters": "/dead", "app": "billing"}

    with pytest.raises(InvalidConfig, match=message):
        each_record(**good | arguments)


# Jobs that fail


def test_an_unfit_python_on_the_executors_is_told_with_what_to_set(tmp_path: Path) -> None:
    error = PythonException(
        "Traceback (most recent call last):\nNo module named 'kinesis_spout'\n\tat org.apache"
    )
    with pytest.raises(
        InvalidConfig, match=rf"^[^\n]*PYSPARK_PYTHON[^\n]*{re.escape(sys.executable)}[^\n]*$"
    ):
        run(each_record(print, app="billing", dead_letters=str(tmp_path)), Frame(page(), error))


def test_another_failure_of_the_job_stays_as_spark_told_it(tmp_path: Path) -> None:
    error = PythonException("No module named 'orders'")
    with pytest.raises(PythonException, match="No module named 'orders'"):
        run(each_record(print, app="billing", dead_letters=str(tmp_path)), Frame(page(), error))


# Where dead letters go


def test_letters_are_in_the_sink_when_the_function_returns(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/dead"
    run(each_record(reject, app="billing", dead_letters=url, clock=ManualClock()), Frame(page("a", "b")))

    assert [letter.data for letter in JsonLinesSink(tmp_path / "dead").read()] == [b"a", b"b"]


def test_a_micro_batch_warns_of_its_dead_letters(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    function = each_record(reject, app="billing", dead_letters=str(tmp_path), clock=ManualClock())
    run(function, Frame(page("a", "b")))
    (line,) = [record for record in caplog.records if record.getMessage().startswith("dead-lettered")]
    assert line.levelname == "WARNING"
    assert line.getMessage().startswith("dead-lettered 2 records, 2 since the start of micro-batch ")


def test_a_place_that_nothing_is_written_to_is_not_made(tmp_path: Path) -> None:
    run(each_record(ignore, app="billing", dead_letters=str(tmp_path / "dead")), Frame(page("a")))

    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_to_is_noticed_before_any_work_is_done(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DeadLetterError, match="expected to be able to write below"):
        run(each_record(pytest.fail, app="billing", dead_letters=str(tmp_path / "file")), Frame(page("a")))


class Blocking(ManualClock):
    """A clock; the place is blocked from the first record on, until the clock has slept ``until``."""

    def __init__(self, place: Path, until: float) -> None:
        super().__init__()
        self._place = place
        self._until = until

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        if self.monotonic() >= self._until:
            self._place.unlink(missing_ok=True)


def blocked(place: Path, until: float) -> tuple[Blocking, Callable[["DataFrame", int], None]]:
    def block(record: Record) -> None:
        place.touch()
        raise Reject(record.data.decode())

    clock = Blocking(place, until)
    return clock, each_record(block, app="billing", dead_letters=str(place), clock=clock)


def test_a_write_that_fails_is_tried_again_until_the_place_is_there(tmp_path: Path) -> None:
    _, function = blocked(tmp_path / "dead", until=0.5)
    run(function, Frame(page("a")))

    assert [letter.data for letter in JsonLinesSink(tmp_path / "dead").read()] == [b"a"]


def test_a_write_that_goes_on_failing_is_an_error_after_several_tries(tmp_path: Path) -> None:
    clock, function = blocked(tmp_path / "dead", until=1_000)
    with pytest.raises(DeadLetterError):
        run(function, Frame(page("a")))

    assert clock.monotonic() == 7.5
