"""The place of a record in its shard.

Kinesis sequence numbers are decimal integers of up to 129 digits. They order as integers, never as text:
"9" < "10". A user record inside an aggregated record shares the sequence number of its carrier and is told
apart by its index, the sub-sequence number.

A plain record is the *whole* of its sequence number, which orders after every sub-sequence number of it:
a checkpoint at ``(123, sub 4)`` says "up to the fifth user record of 123", one at ``(123, whole)`` says
"all of 123, read on after it".

Two sentinels close the range: ``SHARD_START`` (before every record) and ``SHARD_END`` (the end of a closed
shard has been read and everything before it is finished).
"""

from typing import Final, NamedTuple

from shard_state.errors import InvalidSequenceNumber

WHOLE: Final = 1 << 62
"""The sub-sequence number of a record that is not part of an aggregate."""

_MAX_SUB_DIGITS: Final = len(str(WHOLE))

MAX_DIGITS: Final = 129
"""AWS: ``SequenceNumber`` matches ``0|([1-9]\\d{0,128})``."""


class SequenceNumber(NamedTuple):
    """The place of a record in its shard: the Kinesis sequence number, and the index inside an aggregate."""

    number: int
    sub: int = WHOLE

    @classmethod
    def parse(cls, text: str) -> "SequenceNumber":
        """Read ``"123"``, ``"123:4"``, ``"SHARD_START"`` or ``"SHARD_END"``.

        Raises:
            InvalidSequenceNumber: for anything else.
        """
        if text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS:
            return cls(int(text))
        sentinel = _SENTINELS_BY_NAME.get(text)
        if sentinel is not None:
            return sentinel
        number, colon, sub = text.partition(":")
        digits = number + sub
        fits = len(number) <= MAX_DIGITS and len(sub) <= _MAX_SUB_DIGITS
        if colon and number and sub and fits and digits.isascii() and digits.isdigit() and int(sub) < WHOLE:
            return cls(int(number), int(sub))
        raise InvalidSequenceNumber(
            f"expected a sequence number ('123', '123:4', 'SHARD_START' or 'SHARD_END'), got {text[:160]!r}"
        )

    @property
    def kinesis(self) -> str:
        """The text that the Kinesis API takes: the number without the sub-sequence number."""
        return str(self.number)

    @property
    def is_whole(self) -> bool:
        return self.sub == WHOLE

    def __str__(self) -> str:
        name = _NAMES_BY_SENTINEL.get(self)
        if name is not None:
            return name
        return str(self.number) if self.sub == WHOLE else f"{self.number}:{self.sub}"


SHARD_START: Final = SequenceNumber(-1)
SHARD_END: Final = SequenceNumber(10**MAX_DIGITS)

_SENTINELS_BY_NAME: Final = {"SHARD_START": SHARD_START, "SHARD_END": SHARD_END}
_NAMES_BY_SENTINEL: Final = {sentinel: name for name, sentinel in _SENTINELS_BY_NAME.items()}
