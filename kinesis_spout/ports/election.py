"""Which of several processes leads, as a port."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Elected:
    """What an election gives to the one that leads."""

    token: int
    """Larger than in every earlier term."""
    node: str
    """Which node stands for the term; it goes when the term is over."""
    asked_at: float
    """Monotonic: the term was known to last at this moment, or later."""


class Election(Protocol):
    """Where processes stand for election, one of which leads at a time. Used by one thread, but for ``cancel``."""

    @property
    def name(self) -> str:
        """What it is for."""
        ...

    @property
    def session_timeout_seconds(self) -> float:
        """How long a leader that is silent keeps its office."""
        ...

    def campaign(self) -> Elected | None:
        """Stand for election and wait, for about a session time-out. Give None if another leads, or at a cancel.

        Raises:
            StoreUnavailable: retriable.
        """
        ...

    def confirm(self, elected: Elected, wait_seconds: float) -> float | None:
        """Ask whether the term lasts: give the monotonic time before asking, or None if it is over.

        Raises:
            StoreUnavailable: no answer came in ``wait_seconds``.
        """
        ...

    def resign(self, elected: Elected) -> None:
        """End the term, and say that its last unit of work is done. While cut off: as soon as that is possible."""
        ...

    def occupy(self, elected: Elected) -> None:
        """Note, for the leader after this one, that units of work may be under way from now on.

        Raises:
            StoreUnavailable: retriable.
        """
        ...

    def is_occupied(self) -> bool:
        """Say whether a leader before has not said yet that its last unit of work is done.

        Raises:
            StoreUnavailable: retriable.
        """
        ...

    def cancel(self) -> None:
        """End a ``campaign`` that waits. May be called from any thread; later campaigns give None."""
        ...

    def close(self) -> None:
        """Leave. May be called twice."""
        ...
