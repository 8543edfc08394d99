"""What processes of one application need from each other, as small protocols; the others are in ``ports``.

Each has one contract test suite in ``tests/contract``, for the fake in ``kinesis_spout.testing`` and for the real
thing. Every method is called from one thread at a time per object, unless it says otherwise.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from shard_state import Assignment, Checkpoint, GroupMember, Halt

DEFAULT_SESSION_TIMEOUT_SECONDS: Final = 6.0
"""How long a member may be silent before it loses its shards, unless a setting says otherwise."""

MAX_SESSION_TIMEOUT_SECONDS: Final = 120
"""The longest that may be set."""


class Coordinator(Protocol):
    """Decides which member owns a shard. Shares its session with the store, so that a write can be fenced."""

    @property
    def member(self) -> str:
        """The name of this process among the application's members."""
        ...

    def join(self, says: bytes = b"") -> None:
        """Register this process as a living member (ephemeral), with what it says of itself.

        It stays registered until it is closed: again after a lost session, with what it said last.
        """
        ...

    def say(self, says: bytes) -> None:
        """Replace what this member says of itself. Where it is not registered just now, it says so once it is.

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
        that every write of an earlier owner is refused from this moment. Where nothing is stored, ``fresh``
        is stored, with epoch 1; where parents are not stored, those of ``fresh`` are added
        (``shard_state.checkpoint.checkpoint.next_ownership``).

        Args:
            shard_id: which one.
            fresh: its checkpoint where nothing is stored.
            fences: whether to take the shard from another living member that owns it. That one's writes are
                refused from this moment, and it hears of it.

        Returns:
            The checkpoint to go on from, with the new epoch; None if somebody else owns the shard. Then
            ``take_freed`` names it as soon as that one has given it up, and the group says that there is news.

        Raises:
            CheckpointUnreadable, ProgressLost, StoreUnavailable: see the store's ``load``.
        """
        ...

    def release(self, shard_ids: Iterable[str]) -> None:
        """Give shards up; their last commit must have been made. Unowned ones are passed over."""
        ...

    def take_lost(self) -> frozenset[str]:
        """Name the shards whose ownership ended without a release since the last call (session lost).

        Never blocks, and may be called from any thread.
        """
        ...

    def take_freed(self) -> frozenset[str]:
        """Name the shards that ``acquire`` did not get, and that were given up since; each once.

        Never blocks, and may be called from any thread.
        """
        ...

    def show_pause(self, notice: str) -> bool:
        """Show operators that this member has paused, and why, until ``end_pause`` or the end of the session.

        Called again and again while it has.

        Returns:
            True, once, if an operator has taken the notice away: the member is to go on.

        Raises:
            StoreUnavailable: retriable.
        """
        ...

    def end_pause(self) -> None:
        """Show it no longer. Does nothing if nothing is shown.

        Raises:
            StoreUnavailable: retriable.
        """
        ...

    def pauses(self) -> Mapping[str, str]:
        """Give the notices of the members that have paused, for an operator.

        Raises:
            StoreUnavailable: retriable.
        """
        ...

    def resume(self) -> list[str]:
        """Take away all notices, for an operator, so that those members go on. Names them, in order.

        Raises:
            StoreUnavailable: some may be taken away; calling again is safe.
        """
        ...

    def close(self) -> None:
        """Give everything up and leave. May be called twice."""
        ...


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

    def halt(self, shard_id: str | None) -> None:
        """Pause a shard, for an operator, or the whole application (None), until ``end_halt``.

        It is stored, and outlives every member. Of what is paused already nothing changes.

        Raises:
            StoreUnavailable: retriable.
        """
        ...

    def end_halt(self, shard_id: str | None) -> Halt:
        """End the pause of a shard that is paused by itself, or (None) all pauses of operators; give what ended.

        Raises:
            StoreUnavailable: some may be ended; calling again is safe.
        """
        ...

    def halted(self) -> Halt:
        """Give what is paused by an operator. Asks nobody while nothing has changed.

        Raises:
            StoreUnavailable: retriable.
        """
        ...

    def close(self) -> None:
        """Lead no more, and stand no more. May be called twice."""
        ...


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
