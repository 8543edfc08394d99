"""How dead letters are stored: a line of JSON each, and a line of JSON for each redriven letter.

A letter may be stored more than once (the port promises at least once), so a mark identifies it by its
message id and the time it died, and covers every copy.
"""

import os
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Final, Protocol, TypeVar

import msgspec

from kinesis_spout.model.clock import Clock, SystemClock
from kinesis_spout.model.dead_letter import DeadLetter
from kinesis_spout.model.errors import DeadLetterError

T = TypeVar("T")

_LETTERS: Final = "dead-letters"
_MARKS: Final = "redriven"


class RedrivenMark(msgspec.Struct, frozen=True, kw_only=True):
    """A letter was put back on its stream."""

    message_id: str
    died_at: float


def mark_of(letter: DeadLetter) -> RedrivenMark:
    return RedrivenMark(message_id=letter.message_id, died_at=letter.died_at)


def encoded(letter: DeadLetter) -> bytes:
    """Encode the letter as one line of JSON, without the line's end."""
    try:
        return msgspec.json.encode(letter)
    except UnicodeEncodeError:
        # An error text may hold lone surrogates. Losing them is better than losing the record.
        error = letter.error.encode("utf-8", "replace").decode()
        return msgspec.json.encode(msgspec.structs.replace(letter, error=error))


def encoded_mark(mark: RedrivenMark) -> bytes:
    return msgspec.json.encode(mark)


def decoded(where: str, line: bytes) -> DeadLetter:
    """Decode a letter.

    Raises:
        DeadLetterError: names its place, and never the content, which is the user's data.
    """
    return _decoded(DeadLetter, "a dead letter", where, line)


def decoded_mark(where: str, line: bytes) -> RedrivenMark:
    """Decode a mark. Raises like ``decoded``."""
    return _decoded(RedrivenMark, "a redriven mark", where, line)


def _decoded(kind: type[T], what: str, where: str, line: bytes) -> T:
    try:
        return msgspec.json.decode(line, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DeadLetterError(
            f"{where}: expected {what} as JSON, got {len(line)} bytes that cannot be read as one ({error}); move "
            "the line or the file away to read the others"
        ) from error


def without_redriven(letters: Iterable[DeadLetter], marks: Iterable[RedrivenMark]) -> Iterator[DeadLetter]:
    redriven = frozenset(marks)
    return (letter for letter in letters if mark_of(letter) not in redriven)


def made_at(clock: Clock) -> str:
    """The time in a file's name: names sort by it."""
    return datetime.fromtimestamp(clock.time(), UTC).strftime("%Y%m%dT%H%M%S.%fZ")


class Lines(Protocol):
    """Keeps lines of several kinds. Every method raises DeadLetterError on a failure."""

    def check_writable(self) -> None:
        """Check that lines can be kept, leaving nothing behind."""
        ...

    def append(self, kind: str, lines: Iterable[bytes]) -> None:
        """Make lines (without their ends) durable before returning; if it raises, some may be stored."""
        ...

    def read(self, kind: str) -> Iterator[tuple[str, bytes]]:
        """Yield every line with its place, ``file:line``; the oldest file first."""
        ...

    def close(self) -> None:
        """Release what is held. Idempotent."""
        ...


class WholeFiles(ABC):
    """A directory of files that are written once: ``Lines`` for stores without durable appends.

    Every write makes one new file, which gets its name only when it is complete. The names sort by the time of
    the write. Every method raises DeadLetterError on a failure.
    """

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
        # Drivers on several hosts may share the directory; times and process ids may be equal there.
        self.create(f"{kind}-{made_at(self._clock)}-{os.getpid()}-{uuid.uuid4().hex}.jsonl", lines)

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


class LinesSink:
    """A sink in ``dead-letters-*.jsonl`` and ``redriven-*.jsonl`` files; several processes may share it."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines

    def check_writable(self) -> None:
        self._lines.check_writable()

    def write(self, letters: Sequence[DeadLetter]) -> None:
        if letters:
            self._lines.append(_LETTERS, (encoded(letter) for letter in letters))

    def read(self) -> Iterable[DeadLetter]:
        """Return the letters that were not redriven. A bad line is an error that names ``file:line``."""
        return without_redriven(
            (decoded(where, line) for where, line in self._lines.read(_LETTERS)),
            [decoded_mark(where, line) for where, line in self._lines.read(_MARKS)],
        )

    def mark_redriven(self, letters: Sequence[DeadLetter]) -> None:
        """Leave the letters out of ``read`` from now on, durably.

        Raises:
            DeadLetterError: some or all of them may be marked.
        """
        if letters:
            self._lines.append(_MARKS, (encoded_mark(mark_of(letter)) for letter in letters))

    def close(self) -> None:
        self._lines.close()
