"""Which process owns a shard, as a port."""

from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from shard_state import Checkpoint

DEFAULT_SESSION_TIMEOUT_SECONDS: Final = 6.0
"""How long a member may be silent before it loses its shards, unless a setting says otherwise."""

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
