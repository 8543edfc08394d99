"""Dead letters as lines of JSON in a local directory: readable with any tool, durable when ``write`` returns."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from kinesis_spout.dead_letters.line_files import LineFiles
from kinesis_spout.dead_letters.stored_form import (
    decoded,
    decoded_mark,
    encoded,
    encoded_mark,
    mark_of,
    without_redriven,
)
from kinesis_spout.model.clock import Clock, SystemClock
from kinesis_spout.model.dead_letter import DeadLetter

MAX_FILE_BYTES: Final = 64 * 1024 * 1024


class JsonLinesSink:
    """A local directory of ``dead-letters-*.jsonl`` and ``redriven-*.jsonl`` files. See `LineFiles`.

    The directory is made at the first write. Several processes, of one or more applications, may share it.
    """

    def __init__(
        self, directory: str | Path, *, max_file_bytes: int = MAX_FILE_BYTES, clock: Clock | None = None
    ) -> None:
        clock = clock or SystemClock()
        self._letters, self._marks = (
            LineFiles(directory=Path(directory), kind=kind, max_file_bytes=max_file_bytes, clock=clock)
            for kind in ("dead-letters", "redriven")
        )

    def check_writable(self) -> None:
        """Find out that letters can be written; see the port."""
        self._letters.check_writable()

    def write(self, letters: Sequence[DeadLetter]) -> None:
        """Make the letters durable before returning; see the port."""
        if letters:
            self._letters.append(encoded(letter) for letter in letters)

    def read(self) -> Iterable[DeadLetter]:
        """Give back what was not redriven. A bad line is an error that names ``file:line``; see the port."""
        return without_redriven(
            (decoded(where, line) for where, line in self._letters.read()),
            [decoded_mark(where, line) for where, line in self._marks.read()],
        )

    def mark_redriven(self, letters: Sequence[DeadLetter]) -> None:
        """Leave the letters out of ``read`` from now on, durably.

        Raises:
            DeadLetterError: some or all of them may be marked.
        """
        if letters:
            self._marks.append(encoded_mark(mark_of(letter)) for letter in letters)

    def close(self) -> None:
        """Close the files in use. May be called twice."""
        self._letters.close()
        self._marks.close()
