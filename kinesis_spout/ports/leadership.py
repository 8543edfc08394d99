"""One leader of several processes: its election, and its term."""

from dataclasses import dataclass
from typing import Final, Protocol

from kinesis_spout.model.clock import Clock
from kinesis_spout.model.errors import StoreUnavailable


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
        """The name of its work."""
        ...

    @property
    def session_timeout_seconds(self) -> float:
        """The time for which a silent leader keeps its term."""
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


CERTAIN_SHARE: Final = 2 / 3
"""The share of the session time-out. The rest is for clocks that do not run alike, and for the end of a short
unit."""


class Term:
    """One term of a leader. Mutable; its methods may be called from any thread.

    ZooKeeper ends a session, and lets the next candidate lead, when it has heard nothing for the session
    time-out. A leader without a connection learns that only when it is connected again. So it relies on its
    own monotonic clock: from each moment at which it asked, and ZooKeeper answered that the term lasts, the
    term is certain for two thirds of the session time-out, and no longer.
    """

    def __init__(self, elected: Elected, election: Election, clock: Clock) -> None:
        self._elected = elected
        self._election = election
        self._clock = clock
        self._certain_seconds = CERTAIN_SHARE * election.session_timeout_seconds
        self._asked_at = elected.asked_at
        self._is_over = False

    @property
    def token(self) -> int:
        """A number larger than that of every earlier term: give it to a store that refuses smaller ones."""
        return self._elected.token

    @property
    def node(self) -> str:
        """The ZooKeeper node that lives as long as the term: a transaction that checks it is fenced."""
        return self._elected.node

    @property
    def is_certain(self) -> bool:
        """True if no other process can lead now. Makes no request: cheap enough before each effect."""
        return not self._is_over and self._clock.monotonic() < self._certain_until

    @property
    def _certain_until(self) -> float:
        return self._asked_at + self._certain_seconds

    def lasts(self) -> bool:
        """Return whether the term lasts; asks ZooKeeper when half of the certain time has passed.

        A unit of work may have taken longer than the certain time. If the node still exists, no other process
        has led meanwhile, and the term continues.
        """
        now = self._clock.monotonic()
        if self._is_over:
            return False
        if now < self._asked_at + self._certain_seconds / 2:
            return True
        wait_seconds = max(self._certain_until - now, self._certain_seconds / 2)
        try:
            asked_at = self._election.confirm(self._elected, wait_seconds)
        except StoreUnavailable:
            self._is_over = self._clock.monotonic() >= self._certain_until
        else:
            self._is_over = asked_at is None
            self._asked_at = self._asked_at if asked_at is None else asked_at
        return not self._is_over

    def end(self) -> None:
        """Make nothing certain any more: the leader has handed over."""
        self._is_over = True

    def __repr__(self) -> str:
        return f"Term(token={self.token}, is_certain={self.is_certain})"
