"""How dead letters are stored: a line of JSON each, and a line of JSON for each letter that was redriven.

A letter may be stored more than once (the port promises at least once), so a mark names the letter by what
it says, its message id and the time it died, and covers every copy.
"""

from collections.abc import Iterable, Iterator

import msgspec

from kinesis_spout.model.dead_letter import DeadLetter
from kinesis_spout.model.errors import DeadLetterError


class RedrivenMark(msgspec.Struct, frozen=True, kw_only=True):
    """Says that a letter was put back on its stream."""

    message_id: str
    died_at: float


def mark_of(letter: DeadLetter) -> RedrivenMark:
    """Give the mark that covers this letter and its copies."""
    return RedrivenMark(message_id=letter.message_id, died_at=letter.died_at)


def encoded(letter: DeadLetter) -> bytes:
    """Give the letter as one line of JSON, without the line's end."""
    try:
        return msgspec.json.encode(letter)
    except UnicodeEncodeError:
        # An error text may hold lone surrogates. Losing them is better than losing the record.
        error = letter.error.encode("utf-8", "replace").decode()
        return msgspec.json.encode(msgspec.structs.replace(letter, error=error))


def encoded_mark(mark: RedrivenMark) -> bytes:
    """Give the mark as one line of JSON, without the line's end."""
    return msgspec.json.encode(mark)


def decoded(where: str, line: bytes) -> DeadLetter:
    """Read a letter.

    Raises:
        DeadLetterError: names where it is, and never the content, which is the user's data.
    """
    try:
        return _letters.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DeadLetterError(f"{where}: expected a dead letter as JSON, got {_what(line, error)}") from error


def decoded_mark(where: str, line: bytes) -> RedrivenMark:
    """Read a mark. Raises like ``decoded``."""
    try:
        return _marks.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DeadLetterError(
            f"{where}: expected a redriven mark as JSON, got {_what(line, error)}"
        ) from error


def without_redriven(letters: Iterable[DeadLetter], marks: Iterable[RedrivenMark]) -> Iterator[DeadLetter]:
    """Leave out the letters that a mark covers."""
    redriven = frozenset(marks)
    return (letter for letter in letters if mark_of(letter) not in redriven)


def _what(line: bytes, error: Exception) -> str:
    unread = f"{len(line)} bytes that cannot be read as one ({error})"
    return f"{unread}; move the line or the file away to read the others"


_letters = msgspec.json.Decoder(DeadLetter)
_marks = msgspec.json.Decoder(RedrivenMark)
