"""Dead letters in files that are written once and never changed: for stores without durable appends.

Every write makes one new file of JSON lines, which gets its name only when it is complete. The names sort by
the time of the write.
"""

import os
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from kinesis_spout.model.clock import Clock, SystemClock
from kinesis_spout.model.errors import DeadLetterError


class WholeFiles(ABC):
    """A directory of such files, as ``Lines``. Every method raises DeadLetterError on a failure."""

    def __init__(self, address: str, clock: Clock | None = None) -> None:
        self.address = address
        """The directory, for messages."""
        self._clock = clock or SystemClock()

    @abstractmethod
    def check_writable(self) -> None:
        """Check that a file can be made, leaving nothing behind."""

    @abstractmethod
    def create(self, name: str, lines: Iterable[bytes]) -> None:
        """Make a file of lines (without their ends), durable and whole before returning."""

    @abstractmethod
    def names(self) -> Iterable[str]:
        """Name what the directory holds, in any order; nothing if it does not exist yet."""

    @abstractmethod
    def chunks(self, name: str) -> Iterator[bytes]:
        """Yield the bytes of a file."""

    @abstractmethod
    def close(self) -> None:
        """Release what is held. Idempotent."""

    def append(self, kind: str, lines: Iterable[bytes]) -> None:
        """Make a new file of lines; if it raises, all of them or none are stored."""
        made_at = datetime.fromtimestamp(self._clock.time(), UTC).strftime("%Y%m%dT%H%M%S.%fZ")
        # Drivers on several hosts may share the directory; times and process ids may be equal there.
        self.create(f"{kind}-{made_at}-{os.getpid()}-{uuid.uuid4().hex}.jsonl", lines)

    def read(self, kind: str) -> Iterator[tuple[str, bytes]]:
        for name in sorted(self.names()):
            if name.startswith(f"{kind}-") and name.endswith(".jsonl"):
                yield from self._lines_of(name)

    def _lines_of(self, name: str) -> Iterator[tuple[str, bytes]]:
        file = f"{self.address.rstrip('/')}/{name}"
        number, rest = 0, b""
        for chunk in self.chunks(name):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                number += 1
                yield f"{file}:{number}", line
        if rest:
            raise DeadLetterError(
                f"{file}:{number + 1}: expected a complete line, got one without an end; files get their names "
                "only when complete, so something else wrote to this one"
            )
