"""The function for foreachBatch, without Spark: what it says of a job that Spark could not run."""

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, cast

import pytest
from pyspark.errors import PySparkException, PythonException
from pyspark.sql.types import BinaryType, DataType, StringType, StructField, StructType, TimestampType

from kinesis_spout.model.columns import RECORD_COLUMNS as COLUMNS
from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.spark.per_record.each_record import each_record

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TYPES: Final[dict[str, DataType]] = {
    "string": StringType(),
    "binary": BinaryType(),
    "timestamp": TimestampType(),
}


class FailingFrame:
    """A DataFrame whose job fails."""

    schema = StructType([StructField(name, TYPES[type_]) for name, type_ in COLUMNS.items()])

    def __init__(self, error: PySparkException) -> None:
        self._error = error

    def select(self, *columns: str) -> Self:
        del columns
        return self

    def mapInArrow(self, function: Any, schema: str) -> Self:  # noqa: N802 - Spark's name
        del function, schema
        return self

    def toArrow(self) -> None:  # noqa: N802 - Spark's name
        raise self._error


def run(error: PySparkException, folder: Path) -> None:
    function = each_record(print, app="billing", dead_letters=str(folder))
    function(cast("DataFrame", FailingFrame(error)), 0)


def test_an_unfit_python_on_the_executors_is_told_with_what_to_set(tmp_path: Path) -> None:
    error = PythonException(
        "Traceback (most recent call last):\nNo module named 'kinesis_spout'\n\tat org.apache"
    )
    with pytest.raises(
        InvalidConfig, match=rf"^[^\n]*PYSPARK_PYTHON[^\n]*{re.escape(sys.executable)}[^\n]*$"
    ):
        run(error, tmp_path)


def test_another_failure_of_the_job_stays_as_spark_told_it(tmp_path: Path) -> None:
    with pytest.raises(PythonException, match="No module named 'orders'"):
        run(PythonException("No module named 'orders'"), tmp_path)
