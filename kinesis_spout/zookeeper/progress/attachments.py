"""Attachments, stored with the checkpoints in one transaction: their place, and the versions known here.

**The fence of an attachment** is the version of its node: only a process that has read it can replace it. The
node is never deleted while the application lives (an empty one means that nothing is stored), or a version
could repeat.

One rule resolves a write that did not plainly succeed, as in ``store``: read again.
"""

import logging
import threading
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any

from kinesis_spout.ports import Attachment
from kinesis_spout.zookeeper.nodes import Nodes
from kinesis_spout.zookeeper.paths import Paths, check_name
from kinesis_spout.zookeeper.zookeeper_session import ZooKeeperSession

_log = logging.getLogger(__name__)


class WriteOutcome(Enum):
    """The outcome of a write of an attachment."""

    APPLIED = auto()
    NOT_APPLIED = auto()
    REPLACED = auto()
    """Another member has written it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    version: int | None
    """The node's, as read or written by us; None where there was none."""
    in_doubt: bytes | None = None
    """A write that may have followed, or still may."""

    @property
    def next_version(self) -> int:
        return 0 if self.version is None else self.version + 1


class Attachments:
    """Mutable: what this process knows of the attachments of one application. Thread-safe."""

    def __init__(self, session: ZooKeeperSession, paths: Paths) -> None:
        self._session = session
        self._client = session.client
        self._paths = paths
        self._lock = threading.Lock()
        self._known: dict[str, _Known] = {}

    def read(self, name: str) -> bytes | None:
        """Read one, and remember its version; None if nothing is stored."""
        found = self._found(name)
        with self._lock:
            self._known[name] = _Known(version=None if found is None else found[1].version)
        return found[0] or None if found is not None else None

    def add(self, transaction: Any, attachment: Attachment) -> None:
        """Add an attachment to a transaction, conditional on the version that this process knows."""
        path = self._paths.attachment(attachment.name)
        with self._lock:
            known = self._known[attachment.name]
            self._known[attachment.name] = replace(known, in_doubt=attachment.data)
        if known.version is None:
            transaction.create(path, attachment.data)
        else:
            transaction.set_data(path, attachment.data, known.version)

    def written(self, name: str) -> None:
        """Note that the write in doubt took effect."""
        with self._lock:
            known = self._known[name]
            if known.in_doubt is not None:
                self._known[name] = _Known(version=known.next_version)

    def resolve(self, name: str) -> WriteOutcome:
        """Find the outcome of the write in doubt, if there is one; the answer is not older than the question.

        If it raises, the write is still in doubt: ask again.
        """
        with self._lock:
            known = self._known.get(name)
        assert known is not None, f"{name}: an attachment is read before it is written"
        if known.in_doubt is None:
            return WriteOutcome.NOT_APPLIED
        found = self._found(name)
        version = None if found is None else found[1].version
        if found is not None and version == known.next_version and found[0] == known.in_doubt:
            fate, now_known = WriteOutcome.APPLIED, _Known(version=version)
        else:
            fate = WriteOutcome.NOT_APPLIED if version == known.version else WriteOutcome.REPLACED
            now_known = replace(known, in_doubt=None)
        with self._lock:
            if self._known[name] == known:
                self._known[name] = now_known
        return fate

    def _found(self, name: str) -> Any:
        path = self._paths.attachment(check_name("name", name))
        sync = self._client.sync_async(self._paths.base)
        asked = self._client.get_async(path)
        self._session.answer(sync)
        return self._session.found(asked)


def stored_attachments(session: ZooKeeperSession, paths: Paths, nodes: Nodes) -> list[str]:
    """Return the attachments that are not empty."""
    found = nodes.present(session.children(paths.attached), paths.attachment)
    return sorted(name for name, (data, _) in found.items() if data)


def empty(transaction: Any, paths: Paths, names: list[str], why: str) -> None:
    """Add the removal of attachments' content to a transaction, and log it."""
    for name in names:
        _log.warning("%s is removed: %s", paths.attachment(name), why)
        transaction.set_data(paths.attachment(name), b"")
