"""Dead letters in files that are written once, whole, and never changed: for what cannot append durably.

Every write makes one new file of JSON lines, which has its name only when it is complete, whatever crashed. The
names sort by the time of the write.
"""

import os
import uuid
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Final, Protocol

from kinesis_spout.dead_letters.stored_form import (
    decoded,
    decoded_mark,
    encoded,
    encoded_mark,
    mark_of,
    without_redriven,
)
from kinesis_spout.model.clock import Clock
from kinesis_spout.model.dead_letter import DeadLetter
from kinesis_spout.model.errors import DeadLetterError

_LETTERS: Final = "dead-letters"
_MARKS: Final = "redriven"


class WholeFiles(Protocol):
    """A directory of such files. Every method raises DeadLetterError for what goes wrong."""

    @property
    def address(self) -> str:
        """The directory, for messages."""
        ...

    def check_writable(self) -> None:
        """Find out that a file could be made, leaving nothing behind."""
        ...

    def create(self, name: str, lines: Iterable[bytes]) -> None:
        """Make a file of lines (given without their ends), durable and whole before returning."""
        ...

    def names(self) -> Iterable[str]:
        """Name what the directory holds, in any order; nothing if there is no such directory yet."""
        ...

    def chunks(self, name: str) -> Iterator[bytes]:
        """Give the bytes of a file."""
        ...

    def close(self) -> None:
        """Release what is held. May be called twice."""
        ...


class WholeFilesSink:
    """A directory of ``dead-letters-*.jsonl`` and ``redriven-*.jsonl`` files. Several processes may share it."""

    def __init__(self, files: WholeFiles, clock: Clock) -> None:
        self._files = files
        self._clock = clock

    def check_writable(self) -> None:
        """Find out that letters can be written; see the port."""
        self._files.check_writable()

    def write(self, letters: Sequence[DeadLetter]) -> None:
        """Make the letters durable, in one new file, before returning; see the port."""
        if letters:
            self._files.create(self._new_name(_LETTERS), (encoded(letter) for letter in letters))

    def read(self) -> Iterable[DeadLetter]:
        """Give back what was not redriven. A bad line is an error that names ``file:line``; see the port."""
        return without_redriven(
            (decoded(where, line) for where, line in self._lines(_LETTERS)),
            [decoded_mark(where, line) for where, line in self._lines(_MARKS)],
        )

    def mark_redriven(self, letters: Sequence[DeadLetter]) -> None:
        """Leave the letters out of ``read`` from now on, durably.

        Raises:
            DeadLetterError: none or all of them are marked.
        """
        if letters:
            self._files.create(self._new_name(_MARKS), (encoded_mark(mark_of(letter)) for letter in letters))

    def close(self) -> None:
        """Release what is held. May be called twice."""
        self._files.close()

    def _new_name(self, kind: str) -> str:
        made_at = datetime.fromtimestamp(self._clock.time(), UTC).strftime("%Y%m%dT%H%M%S.%fZ")
        # Drivers on several hosts may share the directory; times and process ids may be equal there.
        return f"{kind}-{made_at}-{os.getpid()}-{uuid.uuid4().hex}.jsonl"

    def _lines(self, kind: str) -> Iterator[tuple[str, bytes]]:
        for name in sorted(self._files.names()):
            if name.startswith(f"{kind}-") and name.endswith(".jsonl"):
                yield from self._lines_of(name)

    def _lines_of(self, name: str) -> Iterator[tuple[str, bytes]]:
        file = f"{self._files.address.rstrip('/')}/{name}"
        number, rest = 0, b""
        for chunk in self._files.chunks(name):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                number += 1
                yield f"{file}:{number}", line
        if rest:
            raise DeadLetterError(
                f"{file}:{number + 1}: expected a complete line, got one without an end; files get their names "
                "only when complete, so something else wrote to this one"
            )
