"""The members of an application, its leader, and the assignment that the leader writes.

Nodes that were read are kept until ZooKeeper reports a change, so that a group at rest costs no requests. The
leader is elected as in ``zookeeper_election``. The transaction that writes the assignment checks the node of
its term, so that only the leader's is ever written.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final

from kazoo.exceptions import NodeExistsError, NoNodeError
from kazoo.protocol.states import EventType, WatchedEvent

from kinesis_spout.model.errors import CheckpointUnreadable, KinesisSpoutError, StoreUnavailable
from kinesis_spout.model.logs import package_version
from kinesis_spout.ports.leadership import Term
from kinesis_spout.ports.membership import AUDIT_ENTRIES
from kinesis_spout.zookeeper.members.zookeeper_election import ZooKeeperElection
from kinesis_spout.zookeeper.nodes import make_shared
from kinesis_spout.zookeeper.paths import Paths, check_name, held_work
from kinesis_spout.zookeeper.zookeeper_session import ZooKeeperSession
from shard_state import Assignment, GroupMember, OperatorPause
from shard_state.errors import InvalidStoredForm

_EVERYTHING: Final = "~all"
"""The node by which an operator pauses the whole application; no shard can have this name."""
_CAMPAIGN_SECONDS: Final = 60.0
"""The time for which a member queues for the leadership before it starts again, which takes three requests."""
_PAUSE_SECONDS: Final = 0.2
"""Between two attempts to reach ZooKeeper."""
_END_SECONDS: Final = 5.0
"""The time for which ``close`` waits for the candidacy to end; the rest goes with the session."""


_decoded_member: Final = lru_cache(maxsize=1024)(GroupMember.decode)
"""The leader looks twice a second, and members hardly ever say something new."""


class ZooKeeperGroup:
    """The port ``Group`` on ZooKeeper. Mutable, thread-safe. Get it from ``ZooKeeperBackend``."""

    def __init__(self, session: ZooKeeperSession, paths: Paths, member: str) -> None:
        self._session = session
        self._client = session.client
        self._paths = paths
        self._member = member
        name = f"the consumers of {paths.app} on {paths.stream}"
        self._election = ZooKeeperElection(
            name, paths.leader, session, member, close=_nothing, campaign_seconds=_CAMPAIGN_SECONDS
        )
        self._lock = threading.Lock()
        """Guards the two below."""
        self._read: dict[str, Any] = {}
        """The content of each node that was read and has not changed since."""
        self._changes = 0
        self._decoded: tuple[bytes, Assignment | None] = b"", None
        """The assignment that was read last."""
        self._changed: Callable[[], None] = _nothing
        self._candidate: threading.Thread | None = None
        self._closing = threading.Event()
        self._term: Term | None = None
        self._term_over = threading.Event()
        self._refused: KinesisSpoutError | None = None
        """The error that ended the candidacy for good."""
        session.subscribe(self)

    def take_part(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._candidate = threading.Thread(target=self._stand, name="kinesis-spout-candidate", daemon=True)
        self._candidate.start()

    def wake(self) -> None:
        self._changed()

    # -- the leadership

    def leads(self) -> bool:
        """Return whether this member leads. Raises what ended its candidacy for good."""
        if self._refused is not None:
            raise self._refused
        term = self._term
        if term is None:
            return False
        if term.lasts():
            return True
        self._term_over.set()
        return False

    def _stand(self) -> None:
        while not self._closing.is_set():
            try:
                elected = self._election.campaign() if self._has_place() else None
            except StoreUnavailable:
                self._closing.wait(_PAUSE_SECONDS)
                continue
            except KinesisSpoutError as refused:
                self._refused = refused
                self._changed()
                return
            if elected is None:
                self._closing.wait(_PAUSE_SECONDS)
                continue
            self._term_over.clear()
            self._term = Term(elected, self._election, self._session.clock)
            self._changed()
            if not self._closing.is_set():
                self._term_over.wait()
            self._term = None
            self._election.resign(elected)

    def leader(self) -> str | None:
        self._session.ready()
        return self._election.leader()

    def _has_place(self) -> bool:
        """Return whether the application's nodes exist: a candidacy must not create lost ones again."""
        self._session.ready()
        return self._session.answer(self._client.exists_async(self._paths.leader)) is not None

    # -- what the leader reads and writes

    def members(self) -> list[GroupMember]:
        self._session.ready()
        names = self._children(self._paths.members)
        draining = set(self._children(self._paths.draining))
        said = self._data([self._paths.member(name) for name in names])
        members = []
        for name in names:
            path = self._paths.member(name)
            found = said.get(path)
            if found is None or not found[0]:
                continue
            try:
                members.append(
                    _decoded_member(found[0], name=name, joined=found[1].czxid, draining=name in draining)
                )
            except InvalidStoredForm as error:
                raise CheckpointUnreadable(f"{path} cannot be read: {error}") from error
        return sorted(members, key=lambda member: member.joined)

    def assignment(self) -> Assignment | None:
        path = self._paths.assignment
        found = self._data([path]).get(path)
        stored = b"" if found is None else found[0]
        if stored != self._decoded[0]:
            try:
                self._decoded = stored, Assignment.decode(stored) if stored else None
            except InvalidStoredForm as error:
                raise CheckpointUnreadable(
                    f"{path} cannot be read by kinesis-spout {package_version()}: {error}"
                ) from error
        return self._decoded[1]

    def assign(self, assignment: Assignment) -> bool:
        term = self._term
        if term is None:
            return False
        self._session.ready()
        transaction = self._client.transaction()
        transaction.check(term.node, -1)
        transaction.set_data(self._paths.assignment, assignment.encode())
        try:
            self._session.committed(transaction.commit_async())
        except NoNodeError:
            self._term_over.set()
            return False
        finally:
            self._forget(self._paths.assignment)
        return True

    # -- operators

    def drain(self, member: str) -> None:
        check_name("member", member)
        self._session.ready()
        with suppress(NodeExistsError):
            self._session.answer(self._client.create_async(self._paths.drain(member), b""))

    def end_drain(self, member: str) -> None:
        check_name("member", member)
        self._session.ready()
        self._session.delete(self._paths.drain(member))

    def pause(self, shard_id: str | None) -> None:
        self._session.ready()
        path = self._operator_pause(shard_id)
        with suppress(NodeExistsError):
            try:
                self._session.answer(self._client.create_async(path, b""))
            except NoNodeError:
                # The application is from a version without such pauses.
                self._session.answer(self._client.ensure_path_async(self._paths.operator_pauses))
                self._session.answer(self._client.create_async(path, b""))

    def resume(self, shard_id: str | None) -> OperatorPause:
        self._session.ready()
        ended = []
        for name in self._session.children(self._paths.operator_pauses) if shard_id is None else [shard_id]:
            with suppress(NoNodeError):
                self._session.answer(self._client.delete_async(self._operator_pause(name)))
                ended.append(name)
        return _operator_pause_of(ended)

    def paused(self) -> OperatorPause:
        return _operator_pause_of(self._children(self._paths.operator_pauses))

    def write_audit(self, entry: bytes) -> bool:
        self._session.ready()
        try:
            self._session.answer(self._client.create_async(self._paths.audit_entry, entry, sequence=True))
        except NoNodeError:
            # The first entry; or the application has no place, and gets none for an entry alone.
            try:
                self._session.answer(self._client.create_async(self._paths.audit, b""))
            except NodeExistsError:
                pass
            except NoNodeError:
                return False
            self._session.answer(self._client.create_async(self._paths.audit_entry, entry, sequence=True))
        for name in self._session.children(self._paths.audit)[:-AUDIT_ENTRIES]:
            self._session.delete(f"{self._paths.audit}/{name}")
        return True

    def audit(self) -> list[bytes]:
        self._session.ready()
        names = self._session.children(self._paths.audit)
        asked = [self._client.get_async(f"{self._paths.audit}/{name}") for name in names]
        found = [self._session.found(request) for request in asked]
        return [data for data, _ in filter(None, found)]

    def hold(self, work: str, holder: str) -> str | None:
        *parents, node = held_work(self._paths.root, work)
        self._session.ready()
        make_shared(self._session, parents)
        while True:
            with suppress(NodeExistsError):
                create = self._client.create_async(node, holder.encode(), ephemeral=True)
                self._session.answer(create)
                return None
            found = self._session.found(self._client.get_async(node))
            if found is not None:
                said, stat = found
                return None if stat.ephemeralOwner == self._session.session_id else str(said.decode())

    def still_holds(self, work: str) -> bool:
        node = held_work(self._paths.root, work)[-1]
        session_id = self._session.ready()
        self._client.sync_async(node)  # the server may be behind the others
        stat = self._session.answer(self._client.exists_async(node))
        return stat is not None and bool(stat.ephemeralOwner == session_id)

    def _operator_pause(self, shard_id: str | None) -> str:
        name = _EVERYTHING if shard_id is None else check_name("shard_id", shard_id)
        return self._paths.operator_pause(name)

    def close(self) -> None:
        """End the term, the candidacy, and the member's drain."""
        if self._candidate is not None and not self._closing.is_set():
            # Without waiting: only this process has this name, so what is left of it does no harm.
            self._client.delete_async(self._paths.drain(self._member))
        self._closing.set()
        self._election.cancel()
        self._term_over.set()
        if self._candidate is not None:
            self._candidate.join(_END_SECONDS)
        self._session.unsubscribe(self)

    # -- the session

    def session_connected(self, session_id: int) -> None:
        """Read everything again: watches went with the connection."""
        del session_id
        with self._lock:
            self._changes += 1
            self._read.clear()
        self._changed()

    def session_lost(self) -> None:
        self._term_over.set()
        self._changed()

    # -- reading

    def _children(self, path: str) -> list[str]:
        names: list[str] = self._kept([path], self._client.get_children_async).get(path, [])
        return names

    def _data(self, paths: Iterable[str]) -> Mapping[str, Any]:
        return self._kept(paths, self._client.get_async)

    def _kept(self, paths: Iterable[str], ask: Callable[..., Any]) -> dict[str, Any]:
        """Return what is known of nodes, by path; ask for the others, all at once."""
        with self._lock:
            before = self._changes
            known = {path: self._read.get(path) for path in paths}
        asked = {path: ask(path, watch=self._node_changed) for path, value in known.items() if value is None}
        for path, request in asked.items():
            try:
                known[path] = self._session.answer(request)
            except NoNodeError:
                continue
        with self._lock:
            # A node that changed meanwhile may have been read before.
            if self._changes == before:
                self._read.update({path: known[path] for path in asked if known[path] is not None})
        return {path: value for path, value in known.items() if value is not None}

    def _node_changed(self, event: WatchedEvent) -> None:
        if event.type != EventType.NONE:  # NONE is about the connection, which session_connected handles
            self._forget(event.path)
            self._changed()

    def _forget(self, path: str) -> None:
        with self._lock:
            self._changes += 1
            self._read.pop(path, None)


def _operator_pause_of(names: list[str]) -> OperatorPause:
    return OperatorPause(everything=_EVERYTHING in names, shards=frozenset(names) - {_EVERYTHING})


def _nothing() -> None:
    pass
