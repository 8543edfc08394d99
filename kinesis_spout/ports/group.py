"""Who is there, who leads, and what the leader has assigned to whom, as a port."""

from collections.abc import Callable
from typing import Protocol

from shard_state import Assignment, GroupMember, OperatorPause


class Group(Protocol):
    """The members of an application, the one that leads them, and what it has assigned to whom."""

    def take_part(self, changed: Callable[[], None]) -> None:
        """Look at the group, and stand for its leadership, until ``close``. Called once, after joining.

        Args:
            changed: is called, on any thread, when there may be something new: the members, the assignment, who
                leads, or a shard that another member has given up. It must not block.
        """
        ...

    def leads(self) -> bool:
        """Say whether this member leads. True is certain for a part of the session time-out; writes are fenced."""
        ...

    def leader(self) -> str | None:
        """Name the member that leads, for an operator; None while nobody does.

        Raises:
            StoreUnavailable: retriable.
        """
        ...

    def members(self) -> list[GroupMember]:
        """Give the living members, in the order in which they joined.

        Raises:
            StoreUnavailable: retriable.
        """
        ...

    def assignment(self) -> Assignment | None:
        """Give the assignment in force; None before the first. Asks nobody while nothing has changed.

        Raises:
            CheckpointUnreadable: it cannot be read.
            StoreUnavailable: retriable.
        """
        ...

    def assign(self, assignment: Assignment) -> bool:
        """Put an assignment in force, if this member leads. False, and nothing is written, if it does not.

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

        It is stored, and outlives every member. Of what is paused already nothing changes.

        Raises:
            StoreUnavailable: retriable.
        """
        ...

    def resume(self, shard_id: str | None) -> OperatorPause:
        """End the pause of a shard that is paused by itself, or (None) all pauses of operators; give what ended.

        Raises:
            StoreUnavailable: some may be ended; calling again is safe.
        """
        ...

    def paused(self) -> OperatorPause:
        """Give what is paused by an operator. Asks nobody while nothing has changed.

        Raises:
            StoreUnavailable: retriable.
        """
        ...

    def close(self) -> None:
        """Lead no more, and stand no more. May be called twice."""
        ...
