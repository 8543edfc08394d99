"""What the tasks of a write report, and the sum of it."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from pyspark.sql.datasource import WriterCommitMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class Written(WriterCommitMessage):
    """What one task, or all of them, wrote."""

    records: int = 0
    """How many rows are on Kinesis."""
    size_bytes: int = 0
    """Their data and keys."""
    retried: int = 0
    """How many rows were put again: refused, in a call whose answer was lost, or overtaken by a resharding."""
    dead_lettered: int = 0
    """How many rows are dead letters instead."""

    @classmethod
    def sum_of(cls, parts: Iterable[WriterCommitMessage | None]) -> Self:
        """Add up what tasks reported; a task that failed reports None."""
        known = [part for part in parts if isinstance(part, Written)]
        return cls(
            records=sum(part.records for part in known),
            size_bytes=sum(part.size_bytes for part in known),
            retried=sum(part.retried for part in known),
            dead_lettered=sum(part.dead_lettered for part in known),
        )

    def __str__(self) -> str:
        return (
            f"{self.records} records ({self.size_bytes} bytes) on Kinesis, {self.retried} of them put again, "
            f"{self.dead_lettered} rows dead-lettered"
        )
