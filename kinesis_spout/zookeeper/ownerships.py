"""The shards that this session owns, under which epoch, and at which version of the checkpoint node.

**The fence.** The existence of an owner node (ephemeral) is not a fence: a node that was deleted and made
again has version 0 again, so that ``check(owner, version=0)`` cannot distinguish the old owner from the new.
The *version of the checkpoint node* never repeats: acquiring a shard writes the raised epoch into it, in the
same transaction that makes the owner node. So every write of an owner is conditional on the version that its
last write left, and the first write of a new owner makes every older condition false, for ever.

**In doubt.** A write whose answer was lost may have taken effect or not, or may still take effect. Its bytes
are remembered until re-reading tells; the bytes hold the epoch, so no other owner can have written them.

**Lost.** Ownership ends without a release when the session is lost, when the connection is down for longer
than the session lives, or when the owner node is not the one we made. Losing an ownership here never deletes
anything of another owner: deletions happen only in the very session that made the node.
"""

import logging
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from kazoo.exceptions import KazooException
from kazoo.protocol.states import EventType, WatchedEvent

from kinesis_spout.zookeeper.paths import Paths
from kinesis_spout.zookeeper.zookeeper_session import ZooKeeperSession

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardOwnership:
    epoch: int
    version: int
    """The version of the checkpoint node, after our last write that is known to have taken effect."""
    owner_czxid: int
    """Identifies our owner node: ZooKeeper never gives a creation id twice."""
    session_id: int
    in_doubt: bytes | None = None
    """A write that may have followed ``version``, or still may."""


class Ownerships:
    """Mutable: the table of owned shards, shared by the store and the coordinator. Thread-safe."""

    def __init__(self, session: ZooKeeperSession, paths: Paths) -> None:
        self._session = session
        self._paths = paths
        self._lock = threading.Lock()
        self._owned: dict[str, ShardOwnership] = {}
        self._lost: set[str] = set()
        self._abandoned: dict[str, ShardOwnership] = {}
        """Given up while the connection was down; their nodes go with the session, or at reconnection."""
        self._session_id: int | None = None
        session.subscribe(self)

    def claim(self, shard_id: str, ownership: ShardOwnership) -> bool:
        """Enter a shard just acquired, unless the session that acquired it is already lost."""
        with self._lock:
            if ownership.session_id != self._session_id:
                return False
            self._owned[shard_id] = ownership
            self._lost.discard(shard_id)
            self._abandoned.pop(shard_id, None)
            return True

    def get(self, shard_id: str) -> ShardOwnership | None:
        with self._lock:
            return self._owned.get(shard_id)

    def all(self) -> dict[str, ShardOwnership]:
        with self._lock:
            return dict(self._owned)

    def in_doubt(self) -> dict[str, ShardOwnership]:
        """Return the owned shards with a write whose outcome is not known."""
        with self._lock:
            return {shard_id: owned for shard_id, owned in self._owned.items() if owned.in_doubt is not None}

    def sending(self, writes: Mapping[str, bytes]) -> None:
        with self._lock:
            for shard_id, encoded in writes.items():
                owned = self._owned.get(shard_id)
                if owned is not None:
                    self._owned[shard_id] = replace(owned, in_doubt=encoded)

    def written(self, owned_by_shard: Mapping[str, ShardOwnership]) -> None:
        """Note that the write in doubt after each of these took effect."""
        self._settle(owned_by_shard, versions=1)

    def not_written(self, owned_by_shard: Mapping[str, ShardOwnership]) -> None:
        """Note that the write in doubt after each of these did not take effect, and never will."""
        self._settle(owned_by_shard, versions=0)

    def _settle(self, owned_by_shard: Mapping[str, ShardOwnership], versions: int) -> None:
        with self._lock:
            for shard_id, before in owned_by_shard.items():
                owned = self._owned.get(shard_id)
                if owned is not None and owned.owner_czxid == before.owner_czxid:
                    self._owned[shard_id] = replace(owned, version=before.version + versions, in_doubt=None)

    def lose(self, shard_id: str, owner_czxid: int) -> None:
        """Note that the ownership that began with this owner node is over."""
        with self._lock:
            owned = self._owned.get(shard_id)
            if owned is not None and owned.owner_czxid == owner_czxid:
                del self._owned[shard_id]
                self._lost.add(shard_id)

    def give_up(self, shard_ids: Iterable[str]) -> dict[str, ShardOwnership]:
        """Drop ownerships on purpose: they are not reported as lost.

        Unless ``released`` is called, their nodes are deleted when the connection comes back.
        """
        with self._lock:
            dropped = {}
            for shard_id in shard_ids:
                owned = self._owned.pop(shard_id, None)
                if owned is not None:
                    dropped[shard_id] = owned
            self._abandoned.update(dropped)
            return dropped

    def released(self, shard_ids: Iterable[str]) -> None:
        """Note that the nodes of what was given up are gone."""
        with self._lock:
            for shard_id in shard_ids:
                self._abandoned.pop(shard_id, None)

    def forget_all(self) -> None:
        """Drop everything: the session is about to end on purpose."""
        with self._lock:
            self._owned.clear()
            self._abandoned.clear()
            self._lost.clear()

    def take_lost(self) -> frozenset[str]:
        """Return what was lost since the last call. Never blocks."""
        self.notice_silence()
        with self._lock:
            lost = frozenset(self._lost)
            self._lost.clear()
            return lost

    def are_certain(self) -> bool:
        """Return whether no other member can own any of them now, nor has taken one without our knowledge."""
        return not self._lost and self._session.is_certain()

    def notice_silence(self) -> None:
        """Give everything up, as lost, after a silence longer than the session lives."""
        if not self._session.silent_too_long:
            return
        with self._lock:
            self._abandoned.update(self._owned)
            self._lost.update(self._owned)
            self._owned.clear()

    def watch(self, shard_id: str) -> Any:
        """Request the state of the owner node, and watch it."""
        return self._session.client.exists_async(self._paths.owner(shard_id), watch=self._node_changed)

    def session_connected(self, session_id: int) -> None:
        """Release what was abandoned in this very session; set the watches that the lost connection took."""
        with self._lock:
            self._session_id = session_id
            abandoned = {
                shard_id: owned
                for shard_id, owned in self._abandoned.items()
                if owned.session_id == session_id
            }
            self._abandoned.clear()
            owned_shards = list(self._owned)
        for shard_id, owned in abandoned.items():
            self._let_go(shard_id, owned)
        for shard_id in owned_shards:
            self._verify(shard_id)

    def session_lost(self) -> None:
        """Lose everything: the server has removed our owner nodes."""
        with self._lock:
            self._session_id = None
            self._lost.update(self._owned)
            self._owned.clear()
            self._abandoned.clear()

    def _let_go(self, shard_id: str, owned: ShardOwnership) -> None:
        """Delete the owner node if it is still the one we made.

        An earlier deletion may have taken effect, and another member may own the shard since. The version is
        requested first: an acquisition after that raises it, and one before it shows in the owner node.
        """
        shard = self._session.client.exists_async(self._paths.shard(shard_id))
        owner = self._session.client.exists_async(self._paths.owner(shard_id))
        owner.rawlink(partial(self._delete_if_ours, shard_id, owned, shard))

    def _delete_if_ours(self, shard_id: str, owned: ShardOwnership, shard: Any, owner: Any) -> None:
        if not (shard.successful() and owner.successful()):
            with self._lock:
                if shard_id not in self._owned and owned.session_id == self._session_id:
                    self._abandoned.setdefault(shard_id, owned)  # for the next session_connected
            return
        if owner.value is None or shard.value is None or owner.value.czxid != owned.owner_czxid:
            return
        transaction = self._session.client.transaction()
        transaction.check(self._paths.shard(shard_id), shard.value.version)
        transaction.delete(self._paths.owner(shard_id))
        transaction.commit_async()

    def _node_changed(self, event: WatchedEvent) -> None:
        if event.type != EventType.NONE:  # NONE is about the connection, which session_connected handles
            self._verify(event.path.rpartition("/")[2])

    def _verify(self, shard_id: str) -> None:
        owned = self.get(shard_id)
        if owned is not None:
            self.watch(shard_id).rawlink(partial(self._verified, shard_id, owned))

    def _verified(self, shard_id: str, owned: ShardOwnership, request: Any) -> None:
        if not request.successful():
            # The connection went away again: the next session_connected or session_lost decides.
            if not isinstance(request.exception, KazooException):
                _log.error("checking the owner of %s failed", shard_id, exc_info=request.exception)
            return
        stat = request.value
        if stat is None or stat.czxid != owned.owner_czxid:
            self.lose(shard_id, owned.owner_czxid)
