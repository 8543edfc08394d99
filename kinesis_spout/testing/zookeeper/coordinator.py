"""The port ``Coordinator`` in memory: who is there, and who owns which shard."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kinesis_spout.testing.zookeeper.nodes import InMemoryNodes, StoreFault
from shard_state import Checkpoint
from shard_state.checkpoint.checkpoint import next_ownership

if TYPE_CHECKING:
    from kinesis_spout.zookeeper.progress.application import Application


@dataclass(frozen=True, slots=True, kw_only=True)
class Owned:
    """An ownership as the owner knows it: what the fence compares."""

    epoch: int
    version: int
    node: int


class InMemoryCoordinator:
    """The port ``Coordinator``, for one process of an ``InMemoryZooKeeper``."""

    def __init__(self, zookeeper: InMemoryNodes, member: str) -> None:
        self._zookeeper = zookeeper
        self._member = member
        self.owned: dict[str, Owned] = {}
        self.mark: Application | None = None
        """As this process found or made it, for the store and the coordinator."""
        self._lost: set[str] = set()
        self.is_heard = True
        """Set it to False for a ZooKeeper that has not answered for long."""
        self._refused: set[str] = set()
        self._says = b""
        self._shows_pause = False

    @property
    def member(self) -> str:
        return self._member

    def join(self, says: bytes = b"") -> None:
        with self._zookeeper.answering():
            self._zookeeper.check_mark(self.mark)
            self._says = says
            self._zookeeper.register(self._member, says)

    def say(self, says: bytes) -> None:
        with self._zookeeper.answering():
            self._says = says
            self._zookeeper.register(self._member, says)

    def members(self) -> list[str]:
        with self._zookeeper.answering():
            return sorted(self._zookeeper.member_names)

    def acquire(self, shard_id: str, fresh: Checkpoint, *, fences: bool = False) -> Checkpoint | None:
        """Become the owner, registering first if need be; one's own ownership is replaced by a new one."""
        zookeeper = self._zookeeper
        with zookeeper.lock:
            owner = zookeeper.owners.get(shard_id)
            zookeeper.check_available()
            if owner is not None and owner.member != self._member and not fences:
                self._refused.add(shard_id)
                return None
            zookeeper.check_mark(self.mark)
            node = zookeeper.shards.get(shard_id)
            stored = None if node is None else zookeeper.decode(shard_id)
            parents = [
                zookeeper.decode(parent) if parent in zookeeper.shards else None for parent in fresh.parents
            ]
            acquired = next_ownership(stored, fresh, parents)
            if zookeeper.next_fault() is StoreFault.ANSWER_LOST:
                # It took effect unnoticed; what is found of it is replaced, as after a session of our own.
                zookeeper.put(shard_id, acquired.encode())
                return self.acquire(shard_id, fresh, fences=fences)
            if self._member not in zookeeper.member_names:
                zookeeper.register(self._member, self._says)
            if owner is not None and owner.member != self._member:
                zookeeper.owner_lost(shard_id)
            zookeeper.owners[shard_id] = new_owner = zookeeper.new_owner(self._member)
            zookeeper.put(shard_id, acquired.encode())
            self._lost.discard(shard_id)
            self.owned[shard_id] = Owned(
                epoch=acquired.epoch, version=zookeeper.shards[shard_id].version, node=new_owner.node
            )
            return acquired

    def release(self, shard_ids: Iterable[str]) -> None:
        """Give shards up; while nothing is available they are released all the same."""
        with self._zookeeper.lock:
            for shard_id in shard_ids:
                owned = self.owned.pop(shard_id, None)
                owner = self._zookeeper.owners.get(shard_id)
                if owned is not None and owner is not None and owner.node == owned.node:
                    del self._zookeeper.owners[shard_id]
                    self._zookeeper.tell()

    def is_certain(self) -> bool:
        return self.is_heard and not self._lost

    def take_freed(self) -> frozenset[str]:
        with self._zookeeper.lock:
            freed = frozenset(self._refused - self._zookeeper.owners.keys())
            self._refused -= freed
            return freed

    def take_lost(self) -> frozenset[str]:
        with self._zookeeper.lock:
            lost = frozenset(self._lost)
            self._lost.clear()
            return lost

    def show_pause(self, notice: str) -> bool:
        """Show operators that this member has paused; True once one of them says to go on."""
        with self._zookeeper.answering():
            taken_away = self._shows_pause and self._member not in self._zookeeper.pauses
            self._shows_pause = not taken_away
            if not taken_away:
                self._zookeeper.pauses[self._member] = notice
            return taken_away

    def end_pause(self) -> None:
        with self._zookeeper.answering():
            self._shows_pause = False
            self._zookeeper.pauses.pop(self._member, None)

    def pauses(self) -> Mapping[str, str]:
        with self._zookeeper.answering():
            return dict(sorted(self._zookeeper.pauses.items()))

    def resume(self) -> list[str]:
        with self._zookeeper.answering():
            members = sorted(self._zookeeper.pauses)
            self._zookeeper.pauses.clear()
            return members

    def close(self) -> None:
        with self._zookeeper.lock:
            self._zookeeper.end_session(self._member)
            self.owned.clear()
            self._lost.clear()
            self._zookeeper.tell()

    def lose(self, shard_id: str) -> None:
        """Learn that a shard is ours no longer."""
        if self.owned.pop(shard_id, None) is not None:
            self._lost.add(shard_id)

    def lose_all(self) -> None:
        self._shows_pause = False
        for shard_id in list(self.owned):
            self.lose(shard_id)
