"""Rows that cannot become records: an error that says which, or dead letters.

A dead letter is made for a record that was read. A row has no shard and no sequence number; it gets
``partition-<n>`` and its number there instead, and the stream that it was meant for. So dead letters of the
sink are listed and redriven like others.
"""

from typing import Final

from kinesis_spout.model.clock import Clock
from kinesis_spout.model.dead_letter import DeadLetter
from kinesis_spout.model.errors import KinesisSpoutError
from kinesis_spout.ports import DeadLetterSink
from kinesis_spout.structured.write.written_columns import RowValues

APPLICATION: Final = "format(kinesis)"
"""The application name in dead letters of the sink."""

_LETTERS_AT_A_TIME: Final = 500
_BYTES_AT_A_TIME: Final = 8 * 1024 * 1024


class UnwritableRow(KinesisSpoutError):  # noqa: N818 - the names say what happened
    """A row can never become a record, and there are no dead letters. Names the row and the reason."""


class RejectedRows:
    """Holds dead letters that are not durable yet. Without a ``sink`` the first row is an error."""

    def __init__(self, sink: DeadLetterSink | None, partition: int, clock: Clock) -> None:
        self._sink = sink
        self._partition = partition
        self._clock = clock
        self._letters: list[DeadLetter] = []
        self._letters_bytes = 0
        self.count = 0

    def add(self, row: int, values: RowValues, fault: str) -> None:
        """Raises UnwritableRow where there is no sink, and DeadLetterError."""
        if self._sink is None:
            raise UnwritableRow(
                f"partition {self._partition}, row {row} (counted from 0): {fault}; correct the row or filter it "
                "out, or set the option deadLetters to keep such rows there"
            )
        data = values.data or b""
        self._letters.append(
            DeadLetter(
                application=APPLICATION,
                stream=values.stream or "",
                shard_id=f"partition-{self._partition}",
                sequence_number=str(row),
                partition_key=values.partition_key,
                arrival_timestamp=None,
                data=data,
                attempts=1,
                error=fault,
                reason="rejected",
                died_at=self._clock.time(),
                explicit_hash_key=values.explicit_hash_key,
            )
        )
        self.count += 1
        self._letters_bytes += len(data)
        if len(self._letters) >= _LETTERS_AT_A_TIME or self._letters_bytes >= _BYTES_AT_A_TIME:
            self.finish()

    def finish(self) -> None:
        if self._sink is not None:
            self._sink.write(self._letters)
        self._letters, self._letters_bytes = [], 0
