"""The stored form of dead letters: a line of JSON each, and a line of JSON for each redriven letter.

A letter may be stored more than once (the port promises at least once), so a mark identifies it by its
message id and the time it died, and covers every copy.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Final, TypeVar

import msgspec

from kinesis_spout.model.clock import Clock
from kinesis_spout.model.errors import DeadLetterError
from kinesis_spout.model.record import DeadLetter

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


class LinesSink(ABC):
    """A sink in ``dead-letters-*.jsonl`` and ``redriven-*.jsonl`` files; several processes may share it."""

    @abstractmethod
    def check_writable(self) -> None:
        """Check that lines can be kept, leaving no letter behind."""

    @abstractmethod
    def close(self) -> None:
        """Release what is held. Idempotent."""

    @abstractmethod
    def append(self, kind: str, lines: Iterable[bytes]) -> None:
        """Make lines (without their ends) durable before returning; if it raises, some may be stored."""

    @abstractmethod
    def lines(self, kind: str) -> Iterator[tuple[str, bytes]]:
        """Yield every line with its place, ``file:line``; the oldest file first."""

    def write(self, letters: Sequence[DeadLetter]) -> None:
        if letters:
            self.append(_LETTERS, (encoded(letter) for letter in letters))

    def read(self) -> Iterable[DeadLetter]:
        """Return the letters that were not redriven. A bad line is an error that names ``file:line``."""
        return without_redriven(
            (decoded(where, line) for where, line in self.lines(_LETTERS)),
            [decoded_mark(where, line) for where, line in self.lines(_MARKS)],
        )

    def mark_redriven(self, letters: Sequence[DeadLetter]) -> None:
        """Leave the letters out of ``read`` from now on, durably.

        Raises:
            DeadLetterError: some or all of them may be marked.
        """
        if letters:
            self.append(_MARKS, (encoded_mark(mark_of(letter)) for letter in letters))
