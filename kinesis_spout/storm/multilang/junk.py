"""What came and is no message: a stray ``print``, half a message, bytes that are no text.

Most junk is harmless. Not so a damaged ``emit``: its tuple is lost, and the component, which knows nothing of it,
acks what the tuple came from. So junk tells whether an emit may be in it: whether it has a word that no other
message has. An anchored emit has two, of which damage at one place leaves one.
"""

import re
from dataclasses import dataclass
from typing import Final

MAX_JUNK_CHARACTERS: Final = 2000
"""Of one piece of junk; the rest is counted."""

_WORD_OF_EMIT: Final = re.compile(rb'"emit"|"anchors"|[\xa4\x04]emit|[\xa7\x07]anchors')
"""As JSON writes them, and as MessagePack does: as its shortest text, as longer text or as bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Junk:
    """Bytes that are no message, made readable."""

    text: str
    """What came; bytes that are not UTF-8 are replaced. At most ``MAX_JUNK_CHARACTERS`` of it."""
    reason: str
    """What was expected instead."""
    size_bytes: int
    """How much it was; of a frame that is too large, what had come when it was given up."""
    may_be_emit: bool = False
    """It may have been an emit, whose tuple is lost with it."""


def junk_of(data: bytes, reason: str) -> Junk:
    """Make junk of bytes."""
    text = data[: 4 * MAX_JUNK_CHARACTERS].decode(errors="replace")
    if len(text) > MAX_JUNK_CHARACTERS or len(data) > 4 * MAX_JUNK_CHARACTERS:
        text = f"{text[:MAX_JUNK_CHARACTERS]} … ({len(data)} bytes in all)"
    may_be_emit = _WORD_OF_EMIT.search(data) is not None
    return Junk(text=text, reason=reason, size_bytes=len(data), may_be_emit=may_be_emit)
