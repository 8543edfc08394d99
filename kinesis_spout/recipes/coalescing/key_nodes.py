"""The nodes of a ``ZooKeeperQueueCoordinator``: reads and changes one key, and sees which processes live.

{place}/keys/{key}            a key that is not idle: a line of JSON, then the newest payload that waits
{place}/turns/{token}         the turn is not over
{place}/sessions/{session}    ephemeral: a process that works or waits lives

Every change of a key is one transaction that names the version it was read at: of two concurrent changes one
succeeds, and the other reads again. It also names the turn that was under way: a key that left and came back
counts its versions from 0 again. A *token* names its session, so a process that finds the session gone makes
the change that the dead process cannot make any more.
"""

import threading
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

import msgspec
from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError

from kinesis_spout.model.errors import StoreError, StoreUnavailable
from kinesis_spout.recipes.coalescing.line import Answer, Event, Line, Moved, State, end, withdraw
from kinesis_spout.zookeeper import ZooKeeperSession
from kinesis_spout.zookeeper.nodes import make_shared

TextLine = Line[str, bytes]
Watch = Callable[[Any], None]
T = TypeVar("T")

_VERSION = 1


class StoredLine(NamedTuple):
    line: Line[str, bytes]
    renewals: int = 0
    """The renewals of the current turn's lease: a waiting process sees by a change that it
    lives."""

    def encode(self) -> bytes:
        line = self.line
        head = _Head(
            version=_VERSION,
            state=line.state.name,
            worker=line.worker,
            waiting=line.waiting,
            declined=line.declined,
            renewals=self.renewals,
        )
        return msgspec.json.encode(head) + b"\n" + (line.newest or b"")

    @classmethod
    def decode(cls, data: bytes, path: str) -> "StoredLine":
        """Decode a node.

        Raises:
            StoreError: it is something else; names the node.
        """
        text, _, newest = data.partition(b"\n")
        try:
            head = msgspec.json.decode(text, type=_Head)
            if head.version > _VERSION:
                raise StoreError(
                    f"{path}: expected a coalescing key of version {_VERSION} at most, got version "
                    f"{head.version}: it was written by a newer kinesis-spout; upgrade this one"
                )
            state = State[head.state]
        except (msgspec.DecodeError, KeyError) as error:
            raise StoreError(
                f"{path} cannot be read as a coalescing key: expected what this version writes, got {len(data)} "
                "bytes of something else: delete the node, or update the older of the programs that use it"
            ) from error
        waits = None if state is State.PROCESS and not newest else newest
        return cls(Line(state, head.worker, head.waiting, waits, head.declined), head.renewals)


class _Head(msgspec.Struct, kw_only=True):
    version: int
    state: str
    worker: str
    waiting: str | None
    declined: int
    renewals: int


class Changed(NamedTuple):
    """A change of a key that was made; with REFUSE, nothing was."""

    before: TextLine | None
    after: TextLine | None
    answer: Answer
    expired: bool = False
    """True if a turn was found whose process had died."""


class _Read(NamedTuple):
    stored: StoredLine | None
    version: int


class KeyNodes:
    """Thread-safe, below the last node of ``place``. Every method may raise ``StoreUnavailable``."""

    def __init__(self, place: tuple[str, ...], session: ZooKeeperSession) -> None:
        self._session = session
        self._client = session.client
        self._keys, self._turns, self._sessions = (
            f"{place[-1]}/{name}" for name in ("keys", "turns", "sessions")
        )
        self._watching: dict[str, dict[Watch, None]] = {}
        """The watches of each node. Kazoo gets one watch of each node: it would keep every other."""
        self._watches = threading.Lock()
        make_shared(session, (*place, self._keys, self._turns, self._sessions))

    def count(self) -> int:
        return len(self._session.answer(self._client.get_children_async(self._keys)))

    def new_token(self) -> str:
        """Make an admission's token, and the session's node, which shows others that the process lives."""
        session_id = self._session.await_connection(self._session.deadline())
        session = f"{session_id & (1 << 64) - 1:x}"
        node, acl = f"{self._sessions}/{session}", list(self._session.acls.shared)
        with suppress(NodeExistsError):  # by an earlier request
            self._session.answer(self._client.create_async(node, b"", acl=acl, ephemeral=True))
        return f"{session}-{uuid.uuid4().hex}"

    def lives(self, token: str, watch: Watch | None = None) -> bool:
        """Return whether the process of an admission lives; ``watch`` is called when that changes."""
        node = f"{self._sessions}/{token.partition('-')[0]}"
        told = None if watch is None else self._told_by(node, watch)
        return self._asked(lambda: self._session.answer(self._client.exists_async(node, told))) is not None

    def forget(self, watch: Watch) -> None:
        with self._watches:
            for node in [
                node for node, watches in self._watching.items() if watches.pop(watch, self) is None
            ]:
                if not self._watching[node]:
                    del self._watching[node]

    def _told_by(self, node: str, watch: Watch) -> Watch:
        with self._watches:
            self._watching.setdefault(node, {})[watch] = None
        return self._tell

    def _tell(self, event: Any) -> None:
        with self._watches:
            watches = (
                self._watching.pop(event.path, {})
                if event.path
                else {watch: None for each in self._watching.values() for watch in each}
            )
        for watch in watches:
            watch(event)

    def read(self, key: str, watch: Watch | None = None) -> StoredLine | None:
        """Return the state of a key; None: it is idle. ``watch`` is called when that changes."""
        return self._asked(lambda: self._read(key, watch).stored)

    def renew(self, key: str, token: str) -> bool:
        """Give a sign of life of the turn at a key; False if it is another's turn."""
        while True:
            read = self._read(key)
            if read.stored is None or read.stored.line.worker != token:
                return False
            with suppress(BadVersionError, NoNodeError):
                self._write(key, read, read.stored._replace(renewals=read.stored.renewals + 1))
                return True

    def change(self, key: str, token: str, move: Callable[[TextLine | None], Moved[str, bytes]]) -> Changed:
        """Change a key, after the changes for processes that have died.

        Waits for a broken connection as long as one answer may take. A write whose answer was lost is looked
        for: its token is found, or that of a turn that ended is gone.
        """
        deadline = self._session.deadline()
        in_doubt: Changed | None = None
        while True:
            try:
                read = self._read(key)
                line = None if read.stored is None else self._without_dead(read.stored.line, token)
                if in_doubt is not None and _is_made(in_doubt, line, token):
                    return in_doubt
                after, answer = move(line)
                expired = read.stored is not None and (line is None or line.worker != read.stored.line.worker)
                change = Changed(line, after, answer, expired)
                in_doubt = change
                self._write(key, read, None if after is None else _stored(read.stored, after))
            except (BadVersionError, NoNodeError, NodeExistsError):
                in_doubt = None
            except StoreUnavailable:
                self._session.await_connection(deadline)
            else:
                return change

    def _write(self, key: str, read: _Read, after: StoredLine | None) -> None:
        before, path, acl = read.stored, self._path(key), list(self._session.acls.shared)
        if before == after:
            return
        transaction = self._client.transaction()
        goes_on = before is not None and after is not None and before.line.worker == after.line.worker
        if before is not None and goes_on:
            transaction.check(self._turn(before), -1)
        elif before is not None:
            transaction.delete(self._turn(before))
        if after is None:
            transaction.delete(path, version=read.version)
        elif before is None:
            transaction.create(path, after.encode(), acl=acl)
        else:
            transaction.set_data(path, after.encode(), version=read.version)
        if after is not None and not goes_on:
            transaction.create(self._turn(after), b"", acl=acl)
        self._session.committed(transaction.commit_async())

    def _turn(self, stored: StoredLine) -> str:
        return f"{self._turns}/{stored.line.worker}"

    def _without_dead(self, line: TextLine, token: str) -> TextLine | None:
        """Make the changes that dead processes cannot make."""
        if line.waiting not in {None, token} and not self.lives(str(line.waiting)):
            line = withdraw(line, str(line.waiting), is_dead=True).line or line
        if line.worker != token and not self.lives(line.worker):
            return end(line, line.worker, Event.EXPIRED).line
        return line

    def _path(self, key: str) -> str:
        # Not "." or "..", which ZooKeeper refuses.
        return f"{self._keys}/-{quote(key, safe='')}"

    def _asked(self, ask: Callable[[], T]) -> T:
        deadline = self._session.deadline()
        while True:
            try:
                return ask()
            except StoreUnavailable:
                self._session.await_connection(deadline)

    def _read(self, key: str, watch: Watch | None = None) -> _Read:
        path = self._path(key)
        told = None if watch is None else self._told_by(path, watch)
        try:
            data, stat = self._session.answer(self._client.get_async(path, told))
        except NoNodeError:
            return _Read(None, -1)
        return _Read(StoredLine.decode(data, path), stat.version)


def _stored(before: StoredLine | None, line: TextLine) -> StoredLine:
    """Return what is stored of a line; a turn that continues keeps its renewals."""
    if before is None or before.line.worker != line.worker:
        return StoredLine(line)
    return StoredLine(line, before.renewals)


def _is_made(change: Changed, found: TextLine | None, token: str) -> bool:
    """Return whether a change whose answer was lost was made, judged by the key's state."""
    if change.answer in {Answer.ACCEPT, Answer.WAIT, Answer.GO_ON}:
        return found is not None and token in {found.worker, found.waiting}
    if change.answer is Answer.DECLINE:
        return found is not None and change.after is not None and found.newest == change.after.newest
    return found is None or token not in {found.worker, found.waiting}
