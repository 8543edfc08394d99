"""An application's stored progress as an operator sees it, and when it can be trusted.

An embedded ZooKeeper that starts gives every session in its data its whole time again. So when the consumer
that ran the server was killed, its nodes are there once more. An operation that starts the server, and ends
it when it is done, would see them each time, and renew them each time. So it waits: a living consumer
connects again within that time and stays; the node of a dead one is gone after it.

The owner of a session chose how long it lasts, perhaps not as the operator's settings say. While a member's
process is known to have ended, the wait continues up to the longest time that can be chosen.
"""

import difflib
import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from kinesis_spout.model.clock import Clock
from kinesis_spout.model.errors import CheckpointUnreadable, ConsumerAlive
from kinesis_spout.operations.errors import NotBegun
from kinesis_spout.ports import MAX_SESSION_TIMEOUT_SECONDS, CheckpointStore, Coordinator, Group
from kinesis_spout.processes.liveness import has_ended
from kinesis_spout.settings import SpoutConfig
from shard_state import Checkpoint

if TYPE_CHECKING:
    from kinesis_spout.zookeeper import Application

_GRACE_SECONDS: Final = 2.0
"""ZooKeeper ends sessions at ticks, a little after their time."""
_LOOK_SECONDS: Final = 0.2


class Listener:
    """Hears what an operation says while it works. This one ignores it."""

    def note(self, text: str) -> None:
        """A remark that is not part of the result."""

    def waiting(self) -> AbstractContextManager[Callable[[str], None]]:
        return nullcontext(lambda _text: None)

    def progress(self, what: str, total: int | None = None) -> AbstractContextManager[Callable[[int], None]]:
        del what, total
        return nullcontext(lambda _count: None)


class OperatorStore(CheckpointStore, Protocol):
    """A ``CheckpointStore`` that an operator can look into. Both the real one and the fake are one."""

    def read_application(self) -> "Application | None":
        """Return the record of its beginning, or None if it has not begun."""
        ...

    def shard_ids(self) -> list[str]:
        """Every shard that has stored progress, readable or not, in order."""
        ...

    def read_shards(self) -> Mapping[str, tuple[Checkpoint | CheckpointUnreadable, float]]:
        """Every shard's checkpoint, or why it cannot be read, and when it was stored (seconds since the epoch)."""
        ...

    def owners(self) -> Mapping[str, str]: ...

    def forget(self) -> None:
        """Remove everything that is stored, while no member is registered; it has never begun then."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredProgress:
    store: OperatorStore
    coordinator: Coordinator
    group: Group
    applications: Callable[[], Sequence[tuple[str, str]]]
    """Names the applications that have begun in this place, each with its stream."""
    other: Callable[[str, str], "StoredProgress"]
    """Gives the progress of another application on a stream, over the same session."""

    def read_shards(self) -> tuple[dict[str, Checkpoint | None], dict[str, str], dict[str, float]]:
        """Every shard's stored progress; None for one that cannot be read, and why; when each was stored."""
        stored: dict[str, Checkpoint | None] = {}
        unreadable: dict[str, str] = {}
        stored_at: dict[str, float] = {}
        for shard_id, (read, stored_at[shard_id]) in sorted(self.store.read_shards().items()):
            if isinstance(read, CheckpointUnreadable):
                stored[shard_id], unreadable[shard_id] = None, str(read)
            else:
                stored[shard_id] = read
        return stored, unreadable, stored_at

    def refuse_while_alive(self, action: str) -> None:
        members = self.coordinator.members()
        if members:
            raise ConsumerAlive(
                f"cannot {action}: expected no living consumer, found {len(members)}: {', '.join(members)}"
            )

    def check_begun(self, config: SpoutConfig) -> None:
        if self.store.shard_ids() or self.store.read_application() is not None:
            return
        begun = [f"{app} on {stream}" for app, stream in self.applications()]
        if begun:
            name = f"{config.app} on {config.stream_name}"
            raise NotBegun(
                f"expected an application that has begun ({', '.join(begun)}), got {name}, which has not"
                f"{did_you_mean(name, begun)}"
            )


def did_you_mean(name: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f": did you mean {near[0]}?" if near else ""


def await_ghosts(
    progress: StoredProgress,
    lease_seconds: float,
    clock: Clock,
    listener: Listener,
    *,
    started_here: bool,
) -> None:
    """Return when no registered member can be dead, or all had the time to show that they live.

    A session lasts ``lease_seconds``, if known. On a server that this operation has ``started_here``
    every member can be dead, else only those whose process is known to have ended.
    """
    begun = clock.monotonic()
    members = _suspects(progress, started_here=started_here)
    if not members:
        return
    listener.note(
        f"waiting up to {lease_seconds + _GRACE_SECONDS:.0f} s (session_timeout_seconds) to see whether "
        f"{_text(members)} lives"
    )
    with listener.waiting() as show:
        while members:
            waited = clock.monotonic() - begun
            lease = MAX_SESSION_TIMEOUT_SECONDS if any(map(_has_ended, members)) else lease_seconds
            if waited >= lease + _GRACE_SECONDS:
                return
            show(f"waiting for the end of {_text(members)}: {waited:.0f} s")
            clock.sleep(_LOOK_SECONDS)
            members = _suspects(progress, started_here=started_here)


def _suspects(progress: StoredProgress, *, started_here: bool) -> Collection[str]:
    registered = {*progress.coordinator.members(), *progress.store.owners().values()}
    return {member for member in registered if started_here or _has_ended(member)}


def _text(members: Collection[str]) -> str:
    return ", ".join(
        f"{name} (its process has ended)" if _has_ended(name) else name for name in sorted(members)
    )


def _has_ended(member: str) -> bool:
    from kinesis_spout.zookeeper import process_of  # noqa: PLC0415 - --help does not wait for it

    process = process_of(member)
    if process is None or process[0] != socket.gethostname():
        return False
    return has_ended(process[1])
