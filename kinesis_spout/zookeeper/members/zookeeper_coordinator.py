"""The members of an application, and the owner of each shard. ``ownerships`` explains the fence."""

import logging
import os
import re
import socket
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError
from kazoo.protocol.states import EventType, WatchedEvent

from kinesis_spout.model.errors import StoreError, StoreUnavailable
from kinesis_spout.zookeeper.nodes import Nodes, make_layout
from kinesis_spout.zookeeper.ownerships import Ownerships, ShardOwnership
from kinesis_spout.zookeeper.paths import Paths, check_name
from kinesis_spout.zookeeper.progress.store import ZooKeeperCheckpointStore
from kinesis_spout.zookeeper.zookeeper_session import ZooKeeperSession
from shard_state import Checkpoint
from shard_state.checkpoint.checkpoint import next_ownership

_log = logging.getLogger(__name__)
_PAUSE_SECONDS = 0.05
"""Between two looks at a node that must disappear."""


class PauseNotices:
    """The notice of one member that pauses, and an operator's view of all.

    An operator removes a notice to make its member resume. It is ephemeral, so none outlives its member; one
    that went with its session was not removed by an operator. Mutable; may raise ``StoreUnavailable``.
    """

    def __init__(self, session: ZooKeeperSession, paths: Paths, member: str) -> None:
        self._session = session
        self._client = session.client
        self._paths = paths
        self._nodes = Nodes(session, paths)
        self._path = paths.pause(member)
        self._shown: tuple[int, str] | None = None
        """Its session, and its text."""

    def show(self, notice: str) -> bool:
        session_id = self._session.ready()
        stat = self._session.found(self._client.exists_async(self._path))
        shown, data = self._shown, notice.encode()
        if stat is None:
            self._shown = None
            if shown is not None and shown[0] == session_id:
                return True
            self._create(data)
        elif stat.ephemeralOwner != session_id:
            # An older session of ours made it, which has not ended yet.
            self._session.delete(self._path)
            self._create(data)
        elif shown != (session_id, notice):
            self._session.found(self._client.set_async(self._path, data))
        self._shown = session_id, notice
        return False

    def _create(self, data: bytes) -> None:
        try:
            self._session.answer(self._client.create_async(self._path, data, ephemeral=True))
        except NodeExistsError:
            return  # of a request whose answer was lost
        except NoNodeError:
            # The application is from a version without notices.
            self._session.answer(self._client.ensure_path_async(self._paths.paused))
            self._session.answer(self._client.create_async(self._path, data, ephemeral=True))

    def end(self) -> None:
        if self._shown is not None:
            self._session.delete(self._path)
            self._shown = None

    def all(self) -> Mapping[str, str]:
        self._session.ready()
        found = self._nodes.present(self._session.children(self._paths.paused), self._paths.pause)
        return {member: data.decode() for member, (data, _) in found.items()}

    def take_away(self) -> list[str]:
        members = list(self.all())
        for member in members:
            self._session.delete(self._paths.pause(member))
        return members


def unique_member_name() -> str:
    """Make a name that no other process has: host, process, and a random part."""
    return f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"


def process_of(member: str) -> tuple[str, int] | None:
    """Return the host and the process id of a made-up name; None for a chosen one."""
    found = re.fullmatch(r"(.+)-([1-9]\d*)-[0-9a-f]{8}", member)
    return None if found is None else (found[1], int(found[2]))


class ZooKeeperCoordinator:
    """The port ``Coordinator`` on ZooKeeper.

    An owner is always a registered member: acquiring checks that, in the same transaction, and registers
    again after a new session replaced a lost one. Callers need not call ``join`` again.

    Get it from ``ZooKeeperBackend``, which gives the store the same session and ownerships. ``freed`` is
    called when another member gives up a shard that was wanted here. ``shares_session`` says that others use
    the session: then ``close`` does not end it, and removes what we made in it.
    """

    def __init__(
        self,
        session: ZooKeeperSession,
        paths: Paths,
        ownerships: Ownerships,
        store: ZooKeeperCheckpointStore,
        member: str,
        *,
        freed: Callable[[], None],
        shares_session: bool = False,
    ) -> None:
        self._session = session
        self._client = session.client
        self._paths = paths
        self._ownerships = ownerships
        self._store = store
        self.member = check_name("member", member)
        self._tell = freed
        self._freed: set[str] = set()
        """Added to on kazoo's thread."""
        self._notices = PauseNotices(session, paths, member)
        self._says = b""
        self._is_member = False
        """True if this process has joined: then its node must exist in every session."""
        self._joined = False
        """True if it exists now, to our knowledge."""
        self._closed = False
        self._shares_session = shares_session
        session.subscribe(self)

    def join(self, says: bytes = b"") -> None:
        """Register this process as a living member, waiting for an older session of its name to end."""
        self._says = says
        self._register()

    def _register(self) -> None:
        deadline = self._session.deadline()
        # If the progress was lost, nothing is created again.
        self._store.mark_version(self._store.ask_for_mark())
        make_layout(self._session, self._paths)
        path = self._paths.member(self.member)
        while True:
            session_id = self._session.await_connection(deadline)
            try:
                self._session.answer(self._client.create_async(path, self._says, ephemeral=True))
            except NodeExistsError as error:
                stat = self._session.answer(self._client.exists_async(path))
                if stat is not None and stat.ephemeralOwner != session_id:
                    if self._session.clock.monotonic() >= deadline:
                        raise StoreError(
                            f"the member name {self.member!r} is used by another living process; give each "
                            "process its own"
                        ) from error
                    self._session.clock.sleep(_PAUSE_SECONDS)
                    continue
                if stat is None:
                    continue
            self._is_member = self._joined = True
            return

    def say(self, says: bytes) -> None:
        self._says = says
        self._session.ready()
        # If there is no node, the one that makes it writes this.
        self._session.found(self._client.set_async(self._paths.member(self.member), says))

    def members(self) -> list[str]:
        self._session.ready()
        return self._session.children(self._paths.members)

    def acquire(self, shard_id: str, fresh: Checkpoint, *, fences: bool = False) -> Checkpoint | None:
        """Become the owner of a shard.

        An owner node of our own session is never another's: it is left from an acquisition whose answer was
        lost, or from an ownership given up while the connection was down, or is the one we hold. It is
        replaced, with a new epoch.
        """
        check_name("shard_id", shard_id)
        deadline = self._session.deadline()
        while True:
            session_id = self._session.await_connection(deadline)
            try:
                owner = self._session.answer(
                    self._client.exists_async(self._paths.owner(shard_id), watch=self._owner_changed)
                )
                if owner is not None and owner.ephemeralOwner != session_id and not fences:
                    return None
                if not self._joined:
                    self._register()
                acquired = self._acquire_once(shard_id, fresh, session_id, replaces=owner is not None)
            except StoreUnavailable:
                # Unknown whether it took effect. Reading the owner node again tells, once connected.
                if self._session.clock.monotonic() >= deadline:
                    raise
                continue
            if acquired is not None:
                return acquired
            if self._session.clock.monotonic() >= deadline:
                raise StoreUnavailable(
                    f"{shard_id} could not be acquired in time: other members keep changing it"
                )

    def _owner_changed(self, event: WatchedEvent) -> None:
        if event.type == EventType.DELETED:
            self._freed.add(event.path.rpartition("/")[2])
            self._tell()

    def _acquire_once(
        self, shard_id: str, fresh: Checkpoint, session_id: int, *, replaces: bool
    ) -> Checkpoint | None:
        """Try on the state as it is now; None if it changed meanwhile and must be read again."""
        asked = self._store.ask_for_mark()
        stored = self._store.read_shard(shard_id)
        mark_version = self._store.mark_version(asked)
        named = fresh.parents if stored is None else ()
        parents = [(self._store.read_shard(parent) or (None,))[0] for parent in named]
        acquired = next_ownership(None if stored is None else stored[0], fresh, parents)
        transaction = self._client.transaction()
        transaction.check(self._paths.member(self.member), -1)
        if mark_version is not None:
            transaction.check(self._paths.base, mark_version)
        if replaces:
            transaction.delete(self._paths.owner(shard_id))
        transaction.create(self._paths.owner(shard_id), self.member.encode(), ephemeral=True)
        if stored is None:
            transaction.create(self._paths.shard(shard_id), acquired.encode())
        else:
            transaction.set_data(self._paths.shard(shard_id), acquired.encode(), stored[1])
        request = transaction.commit_async()
        watch = self._ownerships.watch(shard_id)  # behind the transaction, without waiting for it
        try:
            self._session.committed(request)
        except (NoNodeError, NodeExistsError, BadVersionError):
            self._joined = False  # perhaps the member node is missing: join() finds out
            return None
        owner = self._session.answer(watch)
        ownership = ShardOwnership(
            epoch=acquired.epoch,
            version=0 if stored is None else stored[1] + 1,
            owner_czxid=0 if owner is None else owner.czxid,
            session_id=session_id,
        )
        ours = owner is not None and owner.ephemeralOwner == session_id
        return acquired if ours and self._ownerships.claim(shard_id, ownership) else None

    def release(self, shard_ids: Iterable[str]) -> None:
        """Give shards up; without a connection, when it is back. Or they end with the session."""
        given_up = self._ownerships.give_up(shard_ids)
        try:
            self._delete_owner_nodes(given_up)
        except StoreUnavailable as error:
            _log.warning("%s; %d shards are released when it is back", error, len(given_up))
        else:
            self._ownerships.released(given_up)

    def _delete_owner_nodes(self, released: dict[str, ShardOwnership]) -> None:
        """Delete the nodes that are still ours: the check protects one made since by another owner."""
        if not released:
            return
        self._session.ready()
        deletions = []
        for shard_id, (shard, owner) in Nodes(self._session, self._paths).read_owned(released).items():
            if owner is None or shard is None or owner.czxid != released[shard_id].owner_czxid:
                continue
            transaction = self._client.transaction()
            transaction.check(self._paths.shard(shard_id), shard.version)
            transaction.delete(self._paths.owner(shard_id))
            deletions.append(transaction.commit_async())
        for deletion in deletions:
            try:
                self._session.committed(deletion)
            except (NoNodeError, BadVersionError):
                continue  # another member's by now

    def take_lost(self) -> frozenset[str]:
        return self._ownerships.take_lost()

    def is_certain(self) -> bool:
        return self._ownerships.are_certain()

    def take_freed(self) -> frozenset[str]:
        freed = frozenset(tuple(self._freed))
        self._freed -= freed
        return freed

    def show_pause(self, notice: str) -> bool:
        return self._notices.show(notice)

    def end_pause(self) -> None:
        self._notices.end()

    def pauses(self) -> Mapping[str, str]:
        return self._notices.all()

    def resume(self) -> list[str]:
        return self._notices.take_away()

    def close(self) -> None:
        """Give everything up and end the session, which the store shares; but not one shared with others."""
        if self._shares_session:
            self._leave()
            return
        self._closed = True
        self._ownerships.forget_all()
        self._session.close()

    def _leave(self) -> None:
        """Remove our nodes, which would go with the session; without a connection, once there is one."""
        if self._closed:
            return
        self._closed = True
        try:
            self.release(self._ownerships.all())
            self._notices.end()
            self._session.delete(self._paths.member(self.member))
        except StoreError as error:
            _log.warning(
                "%s is given up when the connection to ZooKeeper is back: %s", self._paths.base, error
            )
            return
        self._session.unsubscribe(self._ownerships)
        self._session.unsubscribe(self)

    def session_connected(self, session_id: int) -> None:
        """Register again if a new session replaced the one we joined in.

        In the same session the node exists and nothing changes.
        """
        del session_id
        if not self._is_member:
            return
        if self._closed:
            self._client.delete_async(self._paths.member(self.member))
        else:
            self._make_member_node()

    def session_lost(self) -> None:
        """Do nothing: the member node goes with the session, and the next session makes it again."""

    # On kazoo's threads: nothing here waits for an answer.

    def _make_member_node(self) -> None:
        path = self._paths.member(self.member)
        self._client.create_async(path, self._says, ephemeral=True).rawlink(self._made_member_node)

    def _made_member_node(self, made: Any) -> None:
        """Check a node that existed before: a server that was away keeps an older session for a while."""
        if isinstance(made.exception, NodeExistsError):
            path = self._paths.member(self.member)
            self._client.exists_async(path, watch=self._member_node_changed).rawlink(self._seen_member_node)

    def _seen_member_node(self, seen: Any) -> None:
        if seen.successful() and seen.value is None and not self._closed:
            self._make_member_node()

    def _member_node_changed(self, event: WatchedEvent) -> None:
        if event.type == EventType.DELETED and not self._closed:
            self._make_member_node()
