"""What one coordinator counts."""

from dataclasses import dataclass


@dataclass(slots=True, kw_only=True)
class CoalescingCounts:
    """Since the start, of one coordinator in one process. Mutable.

    They add up: every request was accepted, waited or was declined; every one that waited was promoted, gave up,
    or waits; and every turn (accepted, promoted or continued) has completed, failed, expired, or is under way.
    """

    accepted: int = 0
    """Requests whose turn it was at once."""
    waited: int = 0
    """Requests that waited for the one before them."""
    declined: int = 0
    """Requests whose payload another one that waited took over."""
    promoted: int = 0
    """Of those that waited: whose turn came."""
    gave_up: int = 0
    """Of those that waited: whose time-out was over, or whose task was cancelled."""
    continued: int = 0
    """Turns that went on with what one that had given up had left."""
    completed: int = 0
    failed: int = 0
    """Turns that ended with an exception."""
    expired: int = 0
    """Turns that others took over, as their lease was over."""
    refused: int = 0
    """Ends that were reported by a turn that had expired."""
    handed_back: int = 0
    """Payloads that others had relied on, and nobody was there for: they were given to ``unhandled``."""

    @property
    def requested(self) -> int:
        """All requests."""
        return self.accepted + self.waited + self.declined
