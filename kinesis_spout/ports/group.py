"""The members of an application, their leader and its assignment, as a port."""

from collections.abc import Callable
from typing import Final, Protocol

from shard_state import Assignment, GroupMember, OperatorPause

AUDIT_ENTRIES: Final = 1_000
"""How many audit entries of an application are kept."""


class Group(Protocol):
    """The members of an application, their leader, and its assignment of shards to members."""

    def take_part(self, changed: Callable[[], None]) -> None:
        """Watch the group, and stand for its leadership, until ``close``. Called once, after joining.

        Args:
            changed: called on any thread when something may be new: the members, the assignment, the leader,
                or a shard that another member has given up. It must not block.
        """
        ...

    def leads(self) -> bool:
        """Whether this member leads. True holds for a part of the session time-out; writes are fenced."""
        ...

    def leader(self) -> str | None:
        """Name the member that leads, for an operator; None without a leader.

        Raises:
            StoreUnavailable: retriable.
        """
        ...

    def members(self) -> list[GroupMember]:
        """Return the living members, in the order in which they joined.

        Raises:
            StoreUnavailable: retriable.
        """
        ...

    def assignment(self) -> Assignment | None:
        """Return the assignment in force; None before the first. Makes no request while nothing has changed.

        Raises:
            CheckpointUnreadable: it cannot be read.
            StoreUnavailable: retriable.
        """
        ...

    def assign(self, assignment: Assignment) -> bool:
        """Put an assignment in force. Returns False, and writes nothing, if this member does not lead.

        Raises:
            StoreUnavailable: retriable; it may be in force.
        """
        ...

    def drain(self, member: str) -> None:
        """Have a member give up all it owns, for an operator, until ``end_drain``.

        Raises:
            StoreUnavailable: retriable.
        """
        ...

    def end_drain(self, member: str) -> None:
        """Let a member have shards again. Does nothing for one that is not drained.

        Raises:
            StoreUnavailable: retriable.
        """
        ...

    def pause(self, shard_id: str | None) -> None:
        """Pause a shard, for an operator, or the whole application (None), until ``resume``.

        It is stored, and outlives every member. A pause that exists stays unchanged.

        Raises:
            StoreUnavailable: retriable.
        """
        ...

    def resume(self, shard_id: str | None) -> OperatorPause:
        """End the pause of one shard, or (None) all pauses of operators; returns what ended.

        Raises:
            StoreUnavailable: some may be ended; calling again is safe.
        """
        ...

    def paused(self) -> OperatorPause:
        """Return what operators have paused. Makes no request while nothing has changed.

        Raises:
            StoreUnavailable: retriable.
        """
        ...

    def write_audit(self, entry: bytes) -> bool:
        """Store what an operator changed, after all earlier entries; the last ``AUDIT_ENTRIES`` are kept.

        Returns False, and stores nothing, where the application has no place.

        Raises:
            StoreUnavailable: it may be stored.
        """
        ...

    def audit(self) -> list[bytes]:
        """Return the stored entries, oldest first.

        Raises:
            StoreUnavailable: retriable.
        """
        ...

    def close(self) -> None:
        """End the leadership and the candidacy. May be called twice."""
        ...
