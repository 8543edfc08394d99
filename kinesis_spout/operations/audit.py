"""The record of changes of an application (who, what, when, why): in the log, and in ZooKeeper.

An entry is written after its change, so none tells of a change that was refused. If it cannot be stored (the
application is not there any more, ZooKeeper does not answer), the change stays, and the log alone has the
entry.
"""

import getpass
import logging
import socket
from dataclasses import dataclass
from typing import Any, Final, Self

import msgspec

from kinesis_spout.model.clock import moment
from kinesis_spout.model.errors import StoreError
from kinesis_spout.operations.stored_progress import StoredProgress
from kinesis_spout.operations.world import World, begun_progress
from kinesis_spout.settings import SpoutConfig

_log = logging.getLogger(__name__)

VERSION: Final = 1
_MAX_CHARS: Final = 2_000
"""The longest text in an entry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """The person who makes a change, and the reason."""

    who: str
    why: str = ""
    door: str = "command line"

    @classmethod
    def here(cls) -> Self:
        """The user of this process, on this machine."""
        try:
            user = getpass.getuser()
        except (KeyError, OSError):  # no name for its number, as in many containers
            user = "unknown"
        return cls(who=f"{user}@{socket.gethostname()}")


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    version: int = VERSION
    at: float
    """Seconds since the epoch."""
    who: str
    door: str
    """Through which it was made: "command line" or "web page"."""
    what: str
    """``pause``, ``resume``, ``drain``, ``undrain``, ``reset``, ``forget``, ``redrive``, ``dismiss`` or
    ``stop``."""
    of: str
    """Shards, a member, or letters, as text."""
    why: str = ""

    def document(self) -> dict[str, Any]:
        told = msgspec.structs.asdict(self) | {"at": moment(self.at)}
        del told["version"]
        return told


class Audit:
    """Writes the entries of one operator's change, once it is made."""

    def __init__(self, world: World, config: SpoutConfig, by: Operator | None = None) -> None:
        self._world = world
        self._config = config
        self._by = by or Operator.here()

    def note(self, progress: StoredProgress | None, what: str, of: str) -> None:
        """Log and store an entry; without a session (``progress``) log it only."""
        by = self._by
        entry = AuditEntry(
            at=self._world.time(),
            who=_one_line(by.who),
            door=by.door,
            what=what,
            of=_one_line(of),
            why=_one_line(by.why),
        )
        place = f"{self._config.app} on {self._config.stream_name}"
        _log.info("%s: %s %s, by %s (%s): %s", place, what, entry.of, entry.who, entry.door, entry.why or "-")
        if progress is None:
            return
        try:
            problem = (
                "" if progress.group.write_audit(msgspec.json.encode(entry)) else f"{place} has not begun"
            )
        except StoreError as error:
            problem = str(error)
        if problem:
            self._world.listener.note(f"the audit entry of this change could not be stored: {problem}")


def _one_line(text: str) -> str:
    """Shorten a text, and replace what would forge lines of a log or move a terminal's cursor."""
    return "".join(each if each.isprintable() else " " for each in text[:_MAX_CHARS])


def read_audit(world: World, config: SpoutConfig) -> list[AuditEntry]:
    """The entries that are kept, oldest first. One that cannot be read is shown as such."""
    with begun_progress(world, config) as progress:
        return [_decoded(stored) for stored in progress.group.audit()]


def _decoded(stored: bytes) -> AuditEntry:
    try:
        entry = msgspec.json.decode(stored, type=AuditEntry)
    except (msgspec.DecodeError, UnicodeDecodeError):
        entry = None
    if entry is not None and entry.version <= VERSION:
        return entry
    return AuditEntry(at=0.0, who="?", door="?", what="unreadable entry", of=repr(stored[:200]))
