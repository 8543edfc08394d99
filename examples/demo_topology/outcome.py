"""What happened in the demo, and whether the counts are right."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Self


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """The SIGKILL of the driver."""

    pid: int
    unfinished: int
    """Sentences on the stream that were not acked, or whose acks were not stored: at most so many."""
    committed_words: int
    """What the state held that was stored at that moment."""
    resumed_seconds: float | None = None
    """From the kill until the next driver had acked a sentence; Spark's start is a part of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How the demo went."""

    engine: str
    sentences: int
    dead_lettered: int
    retried: int
    """Deliveries that failed and were tried again, as far as the drivers told."""
    acked_again: int
    """Sentences that the killed driver had acked, as far as it told, and the next one acked again."""
    failed_in_split: int
    failed_in_count: int
    """Tuples that the bolt failed after it had counted them."""
    killed_worker: int | None
    """Process id of the Python worker that was killed amid its work; None if none was."""
    kill: Kill | None
    counted: Mapping[str, int]
    """As the stored state has it."""
    recounted: Mapping[str, int]
    """The same, counted from the sentences."""
    seconds: float
    directory: str | None = None
    """What was kept for a look."""

    @property
    def wrong(self) -> dict[str, tuple[int, int]]:
        """The words whose counts differ: in the state, and recounted."""
        counted, recounted = Counter(self.counted), Counter(self.recounted)
        return {
            word: (counted[word], recounted[word])
            for word in sorted(counted.keys() | recounted.keys())
            if counted[word] != recounted[word]
        }

    @property
    def missing(self) -> list[str]:
        """The troubles that did not happen, although they were to."""
        happened = {
            "a sentence that failed in split": self.failed_in_split,
            "a sentence that failed after it was counted": self.failed_in_count,
            "a dead letter": self.dead_lettered,
            "a retry": self.retried,
            "a killed Python worker": self.killed_worker,
            "a driver killed with sentences unfinished": self.kill is not None and self.kill.unfinished,
        }
        return [name for name, proof in happened.items() if not proof]

    @property
    def exit_code(self) -> int:
        """0 if every count is right and every trouble happened, else 1."""
        return int(bool(self.wrong or self.missing))

    def kept_in(self, directory: str) -> Self:
        """Give it with the folder that was kept for a look."""
        return replace(self, directory=directory)

    def as_json(self) -> dict[str, Any]:
        """Give everything as plain values."""
        # A Counter is no mapping that asdict copies.
        plain = replace(self, counted=dict(self.counted), recounted=dict(self.recounted))
        return asdict(plain) | {"wrong": self.wrong, "missing": self.missing}
