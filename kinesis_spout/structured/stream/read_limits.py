"""Spark's read limits, which came with PySpark 4.2; before it, Spark does not ask for any."""

from typing import Final

from kinesis_spout.settings.source_options import StreamReadOptions

_NO_LIMIT: Final = (1 << 63) - 1

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )
except ImportError:  # PySpark 4.0 and 4.1
    from dataclasses import dataclass

    class ReadLimit:  # type: ignore[no-redef]
        """See PySpark 4.2."""

    class ReadAllAvailable(ReadLimit):  # type: ignore[no-redef]
        """See PySpark 4.2."""

    @dataclass
    class ReadMinRows(ReadLimit):  # type: ignore[no-redef]
        min_rows: int

    @dataclass
    class ReadMaxRows(ReadLimit):  # type: ignore[no-redef]
        max_rows: int

    @dataclass
    class ReadMaxBytes(ReadLimit):  # type: ignore[no-redef]
        max_bytes: int

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """See PySpark 4.2. Before it, such a query takes one batch of what was fetched."""


def default_limit(options: StreamReadOptions) -> ReadLimit:
    """Never ``ReadAllAvailable``: when Spark passes that, the query takes what is available, once."""
    if options.max_records_per_trigger is not None:
        return ReadMaxRows(options.max_records_per_trigger)
    if options.max_bytes_per_trigger is not None:
        return ReadMaxBytes(options.max_bytes_per_trigger)
    if options.min_records_per_trigger is not None:
        return ReadMinRows(options.min_records_per_trigger)
    return ReadMaxRows(_NO_LIMIT)


__all__ = ["ReadAllAvailable", "ReadLimit", "SupportsTriggerAvailableNow", "default_limit"]
