"""What came and is no message: a stray ``print``, half a message, bytes that are no text."""

from dataclasses import dataclass
from typing import Final

MAX_JUNK_CHARACTERS: Final = 2000
"""Of one piece of junk; the rest is counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Junk:
    """Bytes that are no message, made readable."""

    text: str
    """What came; bytes that are not UTF-8 are replaced. At most ``MAX_JUNK_CHARACTERS`` of it."""
    reason: str
    """What was expected instead."""
    size_bytes: int
    """How much it was; of a frame that is too large, what had come when it was given up."""


def junk_of(data: bytes, reason: str) -> Junk:
    """Make junk of bytes."""
    text = data[: 4 * MAX_JUNK_CHARACTERS].decode(errors="replace")
    if len(text) > MAX_JUNK_CHARACTERS or len(data) > 4 * MAX_JUNK_CHARACTERS:
        text = f"{text[:MAX_JUNK_CHARACTERS]} … ({len(data)} bytes in all)"
    return Junk(text=text, reason=reason, size_bytes=len(data))
