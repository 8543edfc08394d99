"""The stored form of dead letters: a line of JSON each, and another for each that was redriven or dismissed.

A letter may be stored more than once (the port promises at least once), so a mark identifies it by its
message id and the time it died, and covers every copy. A marked letter stays where it is.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Final, TypeVar

import msgspec

from kinesis_spout.model.clock import Clock
from kinesis_spout.model.errors import DeadLetterError
from kinesis_spout.model.record import DeadLetter, LetterId, LetterOutcome

T = TypeVar("T")

_LETTERS: Final = "dead-letters"


class LetterMark(msgspec.Struct, frozen=True, kw_only=True):
    """A letter is listed no more."""

    message_id: str
    died_at: float
    outcome: LetterOutcome = LetterOutcome.REDRIVEN

    @property
    def letter_id(self) -> LetterId:
        return self.message_id, self.died_at


def encoded(letter: DeadLetter) -> bytes:
    """Encode the letter as one line of JSON, without the line's end."""
    try:
        return msgspec.json.encode(letter)
    except UnicodeEncodeError:
        # An error text may hold lone surrogates. Losing them is better than losing the record.
        error = letter.error.encode("utf-8", "replace").decode()
        return msgspec.json.encode(msgspec.structs.replace(letter, error=error))


def encoded_mark(letter_id: LetterId, outcome: LetterOutcome) -> bytes:
    message_id, died_at = letter_id
    return msgspec.json.encode(LetterMark(message_id=message_id, died_at=died_at, outcome=outcome))


def decoded(where: str, line: bytes) -> DeadLetter:
    """Decode a letter.

    Raises:
        DeadLetterError: names its place, and never the content, which is the user's data.
    """
    return _decoded(DeadLetter, "a dead letter", where, line)


def decoded_mark(where: str, line: bytes) -> LetterMark:
    """Decode a mark. Raises like ``decoded``."""
    return _decoded(LetterMark, "the mark of a letter", where, line)


def _decoded(kind: type[T], what: str, where: str, line: bytes) -> T:
    try:
        return msgspec.json.decode(line, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DeadLetterError(
            f"{where}: expected {what} as JSON, got {len(line)} bytes that cannot be read as one ({error}); move "
            "the line or the file away to read the others"
        ) from error


def with_outcome(
    letters: Iterable[DeadLetter], marks: Iterable[LetterMark], outcome: LetterOutcome | None
) -> Iterator[DeadLetter]:
    """The letters that the marks give this outcome; None: those without a mark."""
    found: dict[LetterId, LetterOutcome] = {}
    for mark in marks:
        found[mark.letter_id] = mark.outcome.after(found.get(mark.letter_id))
    return (letter for letter in letters if found.get(letter.letter_id) is outcome)


def made_at(clock: Clock) -> str:
    """The time in a file's name: names sort by it."""
    return datetime.fromtimestamp(clock.time(), UTC).strftime("%Y%m%dT%H%M%S.%fZ")


class LinesSink(ABC):
    """A sink in files, which several processes may share.

    Letters are in ``dead-letters-*.jsonl``, marks in ``redriven-*.jsonl`` and ``dismissed-*.jsonl``.
    """

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

    def read(self, outcome: LetterOutcome | None = None) -> Iterable[DeadLetter]:
        """See the port. A bad line is an error that names ``file:line``."""
        return with_outcome(
            (decoded(where, line) for where, line in self.lines(_LETTERS)),
            (decoded_mark(where, line) for kind in LetterOutcome for where, line in self.lines(kind)),
            outcome,
        )

    def mark(self, letter_ids: Collection[LetterId], outcome: LetterOutcome) -> None:
        if letter_ids:
            self.append(outcome, (encoded_mark(each, outcome) for each in letter_ids))
