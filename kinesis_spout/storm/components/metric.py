"""What components report of themselves, by name."""

from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, Final, Self

import msgspec

_LARGEST: Final = 10**300
"""Of the numbers that are summed, so that no sum is more than a float can be."""
_MAX_BYTES: Final = 2_000
"""Of a value that is shown as it is; a longer one is shown as text, and cut."""


@dataclass(slots=True, kw_only=True)
class Metric:
    """What was reported under one name. Mutable; several add up."""

    count: int = 0
    """How often."""
    total: float = 0
    """The sum of the values that were numbers."""
    last: Any = None
    """The newest value, as JSON has it: it travels from task to task, whatever was reported."""

    def report(self, value: Any) -> None:
        """Take in a value. Never raises: a report fails no tuple."""
        self.count += 1
        number = _number(value)
        if number is None:
            self.last = _as_json(value)
        else:
            self.last = number
            self.total += number

    def add(self, other: Self) -> None:
        """Take in what was reported elsewhere, later."""
        if other.count:
            self.count += other.count
            self.total += other.total
            self.last = other.last

    def told(self) -> dict[str, Any]:
        """Give it as JSON has it."""
        return {"count": self.count, "total": self.total, "last": self.last}


def _number(value: Any) -> float | None:
    """Give a number that can be summed, as Python has it: also one of numpy; None for NaN and everything else."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    try:
        number = int(value) if isinstance(value, Integral) else float(value)
    except OverflowError:
        return None
    return number if abs(number) < _LARGEST else None


def _as_json(value: Any) -> Any:
    try:
        encoded = msgspec.json.encode(value, enc_hook=repr)
    except Exception:  # noqa: BLE001 - JSON has no such thing
        return _as_text(value)
    return msgspec.json.decode(encoded) if len(encoded) <= _MAX_BYTES else _as_text(value)


def _as_text(value: Any) -> str:
    try:
        return repr(value)[:_MAX_BYTES]
    except Exception:  # noqa: BLE001 - a user's __repr__ may raise anything
        return f"a {type(value).__name__}"
