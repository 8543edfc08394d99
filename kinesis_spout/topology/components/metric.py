"""What components report of themselves, by name."""

from dataclasses import dataclass
from typing import Any, Self

import msgspec


@dataclass(slots=True, kw_only=True)
class Metric:
    """What was reported under one name. Mutable; several add up."""

    count: int = 0
    """How often."""
    total: float = 0
    """The sum of the values that were numbers."""
    last: Any = None
    """The newest value."""

    def report(self, value: Any) -> None:
        """Take in a value."""
        self.count += 1
        self.last = value
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            self.total += value

    def add(self, other: Self) -> None:
        """Take in what was reported elsewhere, later."""
        if other.count:
            self.count += other.count
            self.total += other.total
            self.last = other.last

    def told(self) -> dict[str, Any]:
        """Give it as JSON has it; a last value that JSON does not know as its text."""
        return {
            "count": self.count,
            "total": self.total,
            "last": msgspec.to_builtins(self.last, str_keys=True, enc_hook=repr),
        }
