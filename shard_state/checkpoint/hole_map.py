"""The text of a checkpoint's hole map: what is finished beyond the base, and how often the rest was delivered.

The text is a row of marks. Each moves on from the one before it (the first from the *origin*, the number of the
base) by a distance in hexadecimal, counted in *units*, and says what holds up to and including the record there:

    +d      the records up to there are finished: this is the end of a hole
    -d      they are not
    -d:n    they are not, and the record there was delivered n times (n is decimal)
    +d.s    a mark at the user record with index s (hexadecimal) of an aggregate, instead of a whole record

For example, ``+14-1:2+9`` with the unit 1 after the base 100 says: 101 to 120 are finished, 121 is not and
was delivered twice, 122 to 130 are finished. The unit is the largest power of two that divides all distances:
the sequence numbers of one shard are far apart, and their last bits are the same. A text may be cut between
any two marks; the rest says less, and nothing else.

A long text is stored *packed*: compressed (zlib), in base64. A sequence number is a counter and a time, so most
digits of a distance are zeros, and thousands of holes take a few bytes each.
"""

import base64
import re
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from shard_state.sequence_number import SHARD_END, SHARD_START, WHOLE, SequenceNumber

Hole = tuple[SequenceNumber, SequenceNumber]
"""A run of finished records: (after, last]."""

Attempts = tuple[SequenceNumber, int]
"""An unfinished record, and how often it was delivered."""

_Mark = tuple[SequenceNumber, bool, int | None]
"""Up to where, whether all up to there is finished, and how often the record there was delivered, if counted."""

_MARK: Final = re.compile(r"([-+])([0-9a-f]+)(?:\.([0-9a-f]+))?(?::([0-9]+))?")

_PLAIN_LENGTH: Final = 1_024
"""The longest text that is not packed: a person can read it."""
_MAX_LENGTH: Final = 64 * 1024 * 1024
"""The most bytes of an unpacked text; far more than any hole map has."""
_QUICK: Final = 1
"""The compression: more of it takes several times as long, for a few percent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HoleMapText:
    """A hole map in marks, not yet joined."""

    origin: int
    """From where the first mark counts."""
    unit: int
    marks: tuple[str, ...]

    def fields(self, length: int) -> dict[str, str]:
        """Give the field that holds the text: all marks, or as many of those nearest to the base as fit.

        Args:
            length: how many characters it may take, its name and punctuation included.
        """
        whole = _field(self.marks)
        if _length(whole) <= length:
            return whole
        kept = bisect_right(
            range(1, len(self.marks)), length, key=lambda count: _length(_field(self.marks[:count]))
        )
        return _field(self.marks[:kept])


def _field(marks: Sequence[str]) -> dict[str, str]:
    text = "".join(marks)
    if len(text) <= _PLAIN_LENGTH:
        return {"map": text}
    return {"packed": base64.b64encode(zlib.compress(text.encode(), _QUICK)).decode()}


def _length(field: Mapping[str, str]) -> int:
    return sum(len(f',"{name}":"{value}"') for name, value in field.items())


def unpacked(packed: str) -> str:
    """Give the text that was packed.

    Raises:
        ValueError: nothing that ``HoleMapText`` packs.
    """
    decompress = zlib.decompressobj()
    try:
        text = decompress.decompress(base64.b64decode(packed, validate=True), _MAX_LENGTH)
    except zlib.error as error:
        raise ValueError(f"expected a packed hole map, got {packed[:40]!r}: {error}") from error
    if not decompress.eof or decompress.unused_data:
        raise ValueError(f"expected a packed hole map, got {packed[:40]!r}, which ends elsewhere")
    return text.decode()


def written(base: SequenceNumber, holes: Sequence[Hole], attempts: Sequence[Attempts]) -> HoleMapText:
    """Write a hole map.

    Raises:
        ValueError: holes and attempts are not in order beyond the base, or overlap, or a count is less than 1.
    """
    marks = _marks(base, holes, attempts)
    # Before any record is finished the base is no number: count from the first mark then.
    origin = marks[0][0].number if base == SHARD_START and marks else base.number
    steps: list[int] = []
    before, bits = origin, 0
    for (number, _), _, _ in marks:
        step = number - before
        steps.append(step)
        bits |= step
        before = number
    shift = max(0, (bits & -bits).bit_length() - 1)
    texts: list[str] = []
    for step, ((_, sub), finished, count) in zip(steps, marks, strict=True):
        text = f"+{step >> shift:x}" if finished else f"-{step >> shift:x}"
        if sub != WHOLE:
            text += f".{sub:x}"
        texts.append(text if count is None else f"{text}:{count}")
    return HoleMapText(origin=origin, unit=1 << shift, marks=tuple(texts))


def read(
    text: str, *, base: SequenceNumber, origin: int, unit: int
) -> tuple[tuple[Hole, ...], tuple[Attempts, ...]]:
    """Read the holes and the attempts back.

    Args:
        text: not packed.
        base: of the checkpoint.
        origin: from where the first mark counts.
        unit: of distances.

    Raises:
        ValueError: it is no text that ``written`` gives.
    """
    holes: list[Hole] = []
    attempts: list[Attempts] = []
    reached, number, end = base, origin, 0
    for mark in _MARK.finditer(text):
        sign, step, sub, count = mark.groups()
        number += int(step, 16) * unit
        sequence = SequenceNumber(number, WHOLE if sub is None else int(sub, 16))
        if mark.start() != end or sequence <= reached or (sign == "+" and count is not None):
            break
        if sign == "+":
            holes.append((reached, sequence))
        elif count is not None:
            attempts.append((sequence, int(count)))
        reached, end = sequence, mark.end()
    if end != len(text):
        raise ValueError(f"expected a hole map (marks as in '+14-1:2'), got {text[end : end + 40]!r}")
    _marks(base, holes, attempts)  # raises if they make up no map
    return tuple(holes), tuple(attempts)


def within(holes: Sequence[Hole], sequence: SequenceNumber, lowest: int = 0) -> bool:
    """Tell whether a record lies in one of the holes, from ``lowest`` on."""
    at = bisect_left(holes, sequence, lowest, key=lambda hole: hole[1])
    return at < len(holes) and holes[at][0] < sequence


def _marks(base: SequenceNumber, holes: Sequence[Hole], attempts: Sequence[Attempts]) -> list[_Mark]:
    marks: list[_Mark] = []
    reached, at = base, 0
    for after, last in holes:
        while at < len(attempts) and attempts[at][0] <= after:
            reached = attempts[at][0]
            marks.append((reached, False, attempts[at][1]))
            at += 1
        if after != reached:
            marks.append((after, False, None))
        marks.append((last, True, None))
        reached = last
    marks.extend((sequence, False, count) for sequence, count in attempts[at:])
    reached = base
    for sequence, _, count in marks:
        if sequence <= reached or not 0 <= sequence[1] <= WHOLE or (count is not None and count < 1):
            raise _not_in_order(base, (sequence, count), reached)
        reached = sequence
    if marks and reached >= SHARD_END:
        raise _not_in_order(base, SHARD_END, reached)
    return marks


def _not_in_order(base: SequenceNumber, mark: object, reached: SequenceNumber) -> ValueError:
    return ValueError(
        f"expected holes and attempts (1 or more) in order beyond {base}, got {mark} after {reached}"
    )
