"""A streaming reader for options that are wrong: it says so where PySpark can tell it to the user.

PySpark 4.3 hides what is raised while a streaming reader is made behind an ``UnboundLocalError`` of its own.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from kinesis_spout.errors import InvalidConfig


class RefusedStreamReader(DataSourceStreamReader):
    """Raises ``InvalidConfig`` at whatever is asked first.

    Args:
        message: of the error.
    """

    def __init__(self, message: str) -> None:
        self._message = message

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Raise."""
        self._refuse()

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, Any]:  # noqa: ARG002, N802
        """Raise."""
        self._refuse()

    def partitions(self, start: Any, end: Any) -> Sequence[InputPartition]:  # noqa: ARG002
        """Raise."""
        self._refuse()

    def read(self, partition: InputPartition) -> Iterator[Any]:  # noqa: ARG002
        """Raise."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise InvalidConfig(self._message)
