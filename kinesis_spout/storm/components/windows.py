"""What a windowed bolt is told and tells: how long its windows are, and what is in one."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kinesis_spout.model.errors import InvalidConfig

MICROSECONDS: Final = 1_000_000
"""In a second. Times are counted in whole ones, so that no rounding puts a tuple beside its window."""


@dataclass(frozen=True, slots=True)
class Count:
    """A length or a slide in tuples of one key."""

    tuples: int

    def __post_init__(self) -> None:
        if isinstance(self.tuples, bool) or not isinstance(self.tuples, int) or self.tuples < 1:
            raise InvalidConfig(f"expected Count of 1 tuple or more, got {self.tuples!r}")

    @property
    def units(self) -> int:
        """Tuples."""
        return self.tuples


@dataclass(frozen=True, slots=True)
class Seconds:
    """A length or a slide in time."""

    seconds: float

    def __post_init__(self) -> None:
        is_number = isinstance(self.seconds, (int, float)) and not isinstance(self.seconds, bool)
        if not is_number or not math.isfinite(self.seconds) or self.units < 1:
            raise InvalidConfig(f"expected Seconds of a microsecond or more, got {self.seconds!r}")

    @property
    def units(self) -> int:
        """Microseconds."""
        return round(self.seconds * MICROSECONDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A window of one key, complete."""

    tuples: Sequence[Mapping[str, Any]] = field(repr=False)
    """The values of its tuples by their fields' names, in the order in which the tuples came. They must not be
    changed: the next window may have the same ones."""
    start: float
    """Seconds since the epoch: where a window by time begins; of one by count the time of its first tuple."""
    end: float
    """Of a window by time the moment after it; of one by count the time of its last tuple."""
