"""The text of a checkpoint's hole map: what is finished beyond the base, and how often the rest was delivered.

The text is a row of marks. Each moves on from the one before it (the first from the *origin*, the number of the
base) by a distance in base 36, counted in *units*, and says what holds up to and including the record there:

    +d      the records up to there are finished: this is the end of a hole
    -d      they are not
    -d:n    they are not, and the record there was delivered n times (n is decimal)
    +d.s    a mark at the user record with index s (base 36) of an aggregate, instead of a whole record

So ``+k-1:2+9`` with the unit 1 after the base 100 says: 101 to 120 are finished, 121 is not and was delivered
twice, 122 to 130 are finished. The unit is the greatest common divisor of all distances: the sequence numbers of
one shard are far apart, and their last bits are the same. A text may be cut between any two marks; what is left
says less, and nothing else.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd
from typing import Final

from shard_state.sequence_number import SHARD_END, SHARD_START, WHOLE, SequenceNumber

Hole = tuple[SequenceNumber, SequenceNumber]
"""A run of finished records: (after, last]."""

Attempts = tuple[SequenceNumber, int]
"""An unfinished record, and how often it was delivered."""

_Mark = tuple[SequenceNumber, bool, int | None]
"""Up to where, whether all up to there is finished, and how often the record there was delivered, if counted."""

_MARK: Final = re.compile(r"([-+])([0-9a-z]+)(?:\.([0-9a-z]+))?(?::([0-9]+))?")

_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
_PAIRS: Final = tuple(high + low for high in _DIGITS for low in _DIGITS)


@dataclass(frozen=True, slots=True, kw_only=True)
class HoleMapText:
    """A hole map in marks, not yet joined."""

    origin: int
    """From where the first mark counts."""
    unit: int
    marks: tuple[str, ...]

    def cut_to(self, length: int) -> str:
        """Join as many marks as fit into ``length`` characters: those nearest to the base."""
        total = 0
        for kept, mark in enumerate(self.marks):
            total += len(mark)
            if total > length:
                return "".join(self.marks[:kept])
        return "".join(self.marks)


def written(base: SequenceNumber, holes: Sequence[Hole], attempts: Sequence[Attempts]) -> HoleMapText:
    """Write a hole map.

    Raises:
        ValueError: see ``check``.
    """
    marks = _marks(base, holes, attempts)
    # Before any record is finished the base is no number: count from the first mark then.
    origin = marks[0][0].number if base == SHARD_START and marks else base.number
    unit = gcd(*(sequence.number - origin for sequence, _, _ in marks)) or 1
    texts: list[str] = []
    before = origin
    for (number, sub), finished, count in marks:
        step = _base36((number - before) // unit)
        at = step if sub == WHOLE else f"{step}.{_base36(sub)}"
        texts.append(f"+{at}" if finished else f"-{at}" if count is None else f"-{at}:{count}")
        before = number
    return HoleMapText(origin=origin, unit=unit, marks=tuple(texts))


def read(
    text: str, *, base: SequenceNumber, origin: int, unit: int
) -> tuple[tuple[Hole, ...], tuple[Attempts, ...]]:
    """Read the holes and the attempts back.

    Raises:
        ValueError: it is no text that ``written`` gives.
    """
    holes: list[Hole] = []
    attempts: list[Attempts] = []
    reached, number, end = base, origin, 0
    for mark in _MARK.finditer(text):
        sign, step, sub, count = mark.groups()
        number += int(step, 36) * unit
        sequence = SequenceNumber(number, WHOLE if sub is None else int(sub, 36))
        if mark.start() != end or sequence <= reached or (sign == "+" and count is not None):
            break
        if sign == "+":
            holes.append((reached, sequence))
        elif count is not None:
            attempts.append((sequence, int(count)))
        reached, end = sequence, mark.end()
    if end != len(text):
        raise ValueError(f"expected a hole map (marks as in '+k-1:2'), got {text[end : end + 40]!r}")
    check(base, holes, attempts)
    return tuple(holes), tuple(attempts)


def check(base: SequenceNumber, holes: Sequence[Hole], attempts: Sequence[Attempts]) -> None:
    """Make sure that holes and attempts make up a hole map.

    Raises:
        ValueError: they are not in order beyond the base, or overlap, or a count is less than 1.
    """
    _marks(base, holes, attempts)


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
    for mark in marks:
        sequence, _, count = mark
        if not _follows(sequence, reached) or (count is not None and count < 1):
            raise ValueError(
                f"expected holes and attempts (1 or more) in order beyond {base}, got {mark} after {reached}"
            )
        reached = sequence
    return marks


def _follows(sequence: SequenceNumber, reached: SequenceNumber) -> bool:
    return reached < sequence < SHARD_END and 0 <= sequence.sub <= WHOLE


def _base36(value: int) -> str:
    text = ""
    while value >= len(_PAIRS):
        value, pair = divmod(value, len(_PAIRS))
        text = _PAIRS[pair] + text
    return (_PAIRS[value] if value >= len(_DIGITS) else _DIGITS[value]) + text
