"""How much of one shard may be open at a time."""

from dataclasses import dataclass
from typing import Final

CONGESTED_SHARE: Final = 0.75
"""Of a cap: above it new reads pause, retries go on (invariant 12)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """How much may be tracked per shard."""

    records: int = 20_000
    """Handed out and not finished."""
    holes: int = 2_000
    """Finished runs beyond the checkpoint, among the records read since the restart. What was restored is not
    counted: it is bounded already, and reading is what closes it."""

    def __post_init__(self) -> None:
        if self.records < 1 or self.holes < 1:
            raise ValueError(
                f"expected room for at least 1 record and 1 hole, got {self}: nothing could be read"
            )
