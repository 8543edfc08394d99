"""The owners of an application's shards: its members, their leader and its assignment."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

from shard_state import Assignment, Checkpoint, GroupMember, OperatorPause

DEFAULT_SESSION_TIMEOUT_SECONDS: Final = 6.0
"""The time for which a member may be silent before it loses its shards, unless a setting says otherwise."""

MAX_SESSION_TIMEOUT_SECONDS: Final = 120
"""The longest allowed setting."""


class Coordinator(Protocol):
    """Decides which member owns a shard. Shares its session with the store, so that a write can be fenced."""

    @property
    def member(self) -> str:
        """The name of this process among the application's members."""
        ...

    def join(self, says: bytes = b"") -> None:
        """Register this process as a living member (ephemeral), with its own description.

        It stays registered until it is closed: after a lost session again, with its last description.
        """
        ...

    def say(self, says: bytes) -> None:
        """Replace this member's description. If it is not registered just now, it will be registered with it.

        Raises:
            StoreUnavailable: retriable.
        """
        ...

    def members(self) -> list[str]:
        """Name the living members."""
        ...

    def acquire(self, shard_id: str, fresh: Checkpoint, *, fences: bool = False) -> Checkpoint | None:
        """Become the owner of a shard.

        Atomically makes the ephemeral owner node and raises the epoch in the shard's checkpoint by one, so
        that every write of an earlier owner is refused from this moment. If nothing is stored, ``fresh`` is
        stored, with epoch 1; if parents are not stored, those of ``fresh`` are added
        (``shard_state.checkpoint.checkpoint.next_ownership``).

        Args:
            shard_id: which one.
            fresh: its checkpoint if nothing is stored.
            fences: whether to take the shard from another living member that owns it. That member's writes
                are refused from this moment, and ``take_lost`` reports it there.

        Returns:
            The checkpoint to continue from, with the new epoch; None if another member owns the shard. Then
            ``take_freed`` names it as soon as that member has given it up, and the group reports a change.

        Raises:
            CheckpointUnreadable, ProgressLost, StoreUnavailable: see the store's ``load``.
        """
        ...

    def release(self, shard_ids: Iterable[str]) -> None:
        """Give shards up; their last commit must have been made. Unowned ones are ignored."""
        ...

    def take_lost(self) -> frozenset[str]:
        """Name the shards whose ownership ended without a release since the last call (session lost).

        Never blocks, and may be called from any thread.
        """
        ...

    def is_certain(self) -> bool:
        """Return whether no other member can own this one's shards now, unless one takes them by force.

        True if ZooKeeper has answered within two thirds of the session time-out, and ``take_lost`` is empty.
        Otherwise nothing may be handed out. Never blocks: questions to ZooKeeper are asked in the background.
        """
        ...

    def take_freed(self) -> frozenset[str]:
        """Name the shards that ``acquire`` did not get, and that were given up since; each once.

        Never blocks, and may be called from any thread.
        """
        ...

    def show_pause(self, notice: str) -> bool:
        """Show operators that this member has paused, and why, until ``end_pause`` or the end of the session.

        Called repeatedly while it has.

        Returns:
            True, once, if an operator has removed the notice: the member must resume.

        Raises:
            StoreUnavailable: retriable.
        """
        ...

    def end_pause(self) -> None:
        """Remove the notice. Does nothing if none is shown.

        Raises:
            StoreUnavailable: retriable.
        """
        ...

    def pauses(self) -> Mapping[str, str]:
        """Return the notices of the members that have paused, for an operator.

        Raises:
            StoreUnavailable: retriable.
        """
        ...

    def resume(self) -> list[str]:
        """Remove all notices, for an operator, so that those members resume. Names them, in order.

        Raises:
            StoreUnavailable: some may be removed; calling again is safe.
        """
        ...

    def close(self) -> None:
        """Give everything up and leave. May be called twice."""
        ...


AUDIT_ENTRIES: Final = 1_000
"""The number of audit entries of an application that are kept."""


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
        """Return whether this member leads. True holds for a part of the session time-out; writes are fenced."""
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

    def hold(self, work: str, holder: str) -> str | None:
        """Keep all other sessions from some work, over all applications of this place, until this session ends.

        Returns None if the work is ours now, or else the ``holder`` that another session gave.

        Raises:
            StoreUnavailable: it may be ours.
        """
        ...

    def still_holds(self, work: str) -> bool:
        """Ask whether work that was ours is ours still: another session may have it once ours was lost.

        Raises:
            StoreUnavailable: unknown.
        """
        ...

    def close(self) -> None:
        """End the leadership and the candidacy. May be called twice."""
        ...
