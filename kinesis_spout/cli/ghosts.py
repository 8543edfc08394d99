"""Waits until an embedded ZooKeeper has noticed that the consumers that were killed are dead.

A server that starts gives every session it finds in its data its whole time again. So after a consumer was killed
that was the server's last user, its nodes are there once more. A command that starts the server, and ends it with
its own end, would see them each time, and renew them each time. So it waits here. A living consumer connects
again within that time and stays; the node of a dead one is gone after it.

How long a session lasts its owner chose, perhaps not as this command's settings say. While a member's process is
known to have ended, the wait goes on up to the longest that can be chosen.
"""

import socket
from collections.abc import Collection
from typing import Final

from kinesis_spout.cli.output import note
from kinesis_spout.cli.progress import waiting
from kinesis_spout.cli.stored_progress import StoredProgress
from kinesis_spout.model.clock import Clock
from kinesis_spout.ports import MAX_SESSION_TIMEOUT_SECONDS
from kinesis_spout.processes.liveness import has_ended

_GRACE_SECONDS: Final = 2.0
"""ZooKeeper ends sessions at ticks, a little after their time."""
_LOOK_SECONDS: Final = 0.2


def await_ghosts(progress: StoredProgress, lease_seconds: float, clock: Clock, *, started_here: bool) -> None:
    """Return when nobody is registered who may be dead, or had the time to show that they live.

    Args:
        progress: on an embedded server.
        lease_seconds: how long a session lasts, as far as known.
        started_here: whether this command has started the server: then everyone may be dead, else only those
            whose process is known to have ended.
        clock: for the time and the wait.

    Raises:
        StoreUnavailable: retriable.
    """
    begun = clock.monotonic()
    members = _suspects(progress, started_here=started_here)
    if not members:
        return
    note(
        f"waiting up to {lease_seconds + _GRACE_SECONDS:.0f} s (session_timeout_seconds) to see whether "
        f"{_text(members)} lives"
    )
    with waiting() as show:
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
    """Say whether a member's process is known to have ended: it ran on this host, and its id is free."""
    from kinesis_spout.zookeeper import process_of  # noqa: PLC0415 - --help does not wait for it

    process = process_of(member)
    if process is None or process[0] != socket.gethostname():
        return False
    return has_ended(process[1])
