"""Elects one of several processes as the leader, as a port."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Elected:
    """The term of an elected leader."""

    token: int
    """Larger than in every earlier term."""
    node: str
    """The node of the term; it is removed when the term is over."""
    asked_at: float
    """Monotonic: the term was known to last at this moment, or later."""


class Election(Protocol):
    """An election of one leader at a time among processes. Used by one thread, except for ``cancel``."""

    @property
    def name(self) -> str:
        """What it is for."""
        ...

    @property
    def session_timeout_seconds(self) -> float:
        """How long a silent leader keeps its term."""
        ...

    def campaign(self) -> Elected | None:
        """Stand for election and wait, about a session time-out. Returns None if another leads or at a cancel.

        Raises:
            StoreUnavailable: retriable.
        """
        ...

    def confirm(self, elected: Elected, wait_seconds: float) -> float | None:
        """Ask whether the term lasts: returns the monotonic time before asking, or None if it is over.

        Raises:
            StoreUnavailable: no answer came in ``wait_seconds``.
        """
        ...

    def resign(self, elected: Elected) -> None:
        """End the term, and note that its last unit of work is done; as soon as there is a connection."""
        ...

    def occupy(self, elected: Elected) -> None:
        """Note, for the leader after this one, that units of work may be under way from now on.

        Raises:
            StoreUnavailable: retriable.
        """
        ...

    def is_occupied(self) -> bool:
        """Return whether an earlier leader has not yet noted that its last unit of work is done.

        Raises:
            StoreUnavailable: retriable.
        """
        ...

    def cancel(self) -> None:
        """End a ``campaign`` that waits. May be called from any thread; later campaigns return None."""
        ...

    def close(self) -> None:
        """Leave. May be called twice."""
        ...
