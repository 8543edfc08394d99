"""A ZooKeeper in memory: the store and the coordinator of several processes, with faults on demand.

It keeps the same promises as the real one, by the same means: each shard's node has a version, acquiring raises
epoch and version in one step, and a write is conditional on the version that the owner's last write left.

    zookeeper = InMemoryZooKeeper()
    one, two = zookeeper.process("one"), zookeeper.process("two")
    start = StartPositions(default=Position.trim_horizon())
    one.store.open(created, start, [Shard(shard_id="shardId-000000000000")])
    checkpoint = one.coordinator.acquire("shardId-000000000000", fresh)
    zookeeper.expire("one")             # as if "one" had slept for longer than its session
"""

import itertools
import threading
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

from kinesis_spout.errors import (
    CheckpointUnreadable,
    CommitTooLarge,
    ConsumerAlive,
    StoreError,
    StoreUnavailable,
    StreamRecreated,
)
from kinesis_spout.ports import Attachment, CheckpointWrite, CommitResult, is_same_creation
from kinesis_spout.testing.group import InMemoryGroup
from kinesis_spout.zookeeper.application import Application, check_named, progress_lost, refuse_latest
from kinesis_spout.zookeeper.tree.chunks import ChunkLimits
from shard_state import Checkpoint, Shard, StartPositions
from shard_state.checkpoint.checkpoint import next_ownership
from shard_state.errors import InvalidCheckpoint


class StoreFault(Enum):
    """What may go wrong with a request."""

    UNAVAILABLE = auto()
    """It is not sent; the caller gets StoreUnavailable."""
    ANSWER_LOST = auto()
    """It takes effect, and the answer is lost; the store finds out by reading again."""
    REQUEST_LOST = auto()
    """It takes no effect, and the answer is lost too; the store finds out, and sends it again."""


_MAX_ATTACHED_BYTES = ChunkLimits().max_indivisible_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class _Node:
    data: bytes
    version: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Owned:
    epoch: int
    version: int
    node: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Owner:
    member: str
    node: int
    """No two owner nodes share it: what the creation id is to ZooKeeper."""


class InMemoryZooKeeper:
    """Mutable: the place of one application on one stream, shared by its processes. Thread-safe."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.begun: tuple[float, StartPositions] | None = None
        self.deployments: tuple[str, ...] = ()
        """Those that began again."""
        self.shards: dict[str, _Node] = {}
        self.attached: dict[str, _Node] = {}
        self.owners: dict[str, _Owner] = {}
        self.member_names: set[str] = set()
        self.says: dict[str, tuple[int, bytes]] = {}
        """When each member joined, in the order of this, and what it says of itself."""
        self.candidates: list[str] = []
        """Those that stand for the leadership; the first one leads."""
        self.assignment = b""
        self.drained: set[str] = set()
        self.halted: set[str | None] = set()
        """None stands for everything."""
        self.pauses: dict[str, str] = {}
        """The notices of the members that have paused."""
        self._node_ids = itertools.count(1)
        self._faults: deque[StoreFault] = deque()
        self._unavailable = False
        self._processes: dict[str, InMemoryProcess] = {}

    def process(self, member: str | None = None) -> "InMemoryProcess":
        """Connect another process, whose name nobody else has: the third one is ``process-3`` unless named."""
        with self.lock:
            member = member or f"process-{len(self._processes) + 1}"
            process = self._processes[member] = InMemoryProcess(self, member)
        return process

    def expire(self, member: str) -> None:
        """End the session of a process: its owner and member nodes are gone, and it will learn so."""
        with self.lock:
            self.end_session(member)
            self._processes[member].coordinator.lose_all()
            self.tell()

    def fail_next(self, *faults: StoreFault) -> None:
        """Let the next requests that change something meet these faults, one each."""
        with self.lock:
            self._faults.extend(faults)

    def set_available(self, available: bool) -> None:  # noqa: FBT001 - says the same as its name
        """Let every request fail with StoreUnavailable, or no longer."""
        with self.lock:
            self._unavailable = not available

    def put(self, shard_id: str, data: bytes) -> None:
        """Write a shard's node from outside, unfenced, as an operator with a ZooKeeper client might."""
        with self.lock:
            before = self.shards.get(shard_id)
            self.shards[shard_id] = _Node(data=data, version=0 if before is None else before.version + 1)

    def attach(self, name: str, data: bytes) -> None:
        """Write an attachment, from outside or as what has been checked before."""
        with self.lock:
            before = self.attached.get(name)
            self.attached[name] = _Node(data=data, version=0 if before is None else before.version + 1)

    def empty_attached(self) -> None:
        """Remove the content of the attachments; their versions go on."""
        for name in self.attached:
            self.attach(name, b"")

    def remove_owner(self, shard_id: str) -> None:
        """Delete an owner node from outside; its owner learns so."""
        with self.lock:
            owner = self.owners.pop(shard_id)
            self._processes[owner.member].coordinator.lose(shard_id)
            self.tell()

    def lose_data(self) -> None:
        """Lose everything, as a ZooKeeper whose disks are gone: sessions, nodes, the mark. It serves on, empty."""
        with self.lock:
            for member in self._processes:
                self.expire(member)
            self.shards.clear()
            self.attached.clear()
            self.begun, self.deployments = None, ()
            self.assignment = b""

    def forget_begun(self) -> None:
        """Undo the mark, as if the process had crashed between the shards' nodes and the mark."""
        with self.lock:
            self.begun = None

    # -- for the ports

    @property
    def is_available(self) -> bool:
        """Whether requests are answered."""
        return not self._unavailable

    def register(self, member: str, says: bytes | None = None) -> None:
        """Make a member node, or write it; None leaves what it says as it is."""
        joined, said = self.says.get(member, (0, b""))
        if member not in self.member_names:
            self.member_names.add(member)
            self.says.pop(member, None)
            joined = next(self._node_ids)
        self.says[member] = joined, said if says is None else says
        self.tell()

    def tell(self) -> None:
        """Tell every process that something has changed."""
        for process in self._processes.values():
            process.group.changed()

    def owner_lost(self, shard_id: str) -> None:
        """Let the owner of a shard, if there is one, learn that it is somebody else's."""
        owner = self.owners.pop(shard_id, None)
        if owner is not None:
            self._processes[owner.member].coordinator.lose(shard_id)

    def check_available(self) -> None:
        """Raise StoreUnavailable if that is what was asked for."""
        if self._unavailable:
            raise StoreUnavailable("the in-memory ZooKeeper was made unavailable")

    def next_fault(self) -> StoreFault | None:
        """Take the fault that the request now being made meets.

        Raises:
            StoreUnavailable: it meets that one, or everything is unavailable.
        """
        self.check_available()
        fault = self._faults.popleft() if self._faults else None
        if fault is StoreFault.UNAVAILABLE:
            raise StoreUnavailable("the in-memory ZooKeeper was told to be unavailable for one request")
        return fault

    def new_owner(self, member: str) -> _Owner:
        """Make an owner node's identity."""
        return _Owner(member=member, node=next(self._node_ids))

    def refuse_while_alive(self) -> None:
        """Raise ConsumerAlive if a member is registered."""
        if self.member_names:
            raise ConsumerAlive(f"expected no living consumer, found {', '.join(sorted(self.member_names))}")

    def end_session(self, member: str) -> None:
        """Remove the ephemeral nodes of a member."""
        self.member_names.discard(member)
        if member in self.candidates:
            self.candidates.remove(member)
        self.pauses.pop(member, None)
        for shard_id in [shard_id for shard_id, owner in self.owners.items() if owner.member == member]:
            del self.owners[shard_id]

    def mark(self) -> Application | None:
        """Say what the application began with, or None when it has not begun."""
        if self.begun is None:
            return None
        created, start = self.begun
        return Application(stream_created=created, start=start, deployments=self.deployments)

    def check_mark(self, mark: Application | None) -> None:
        """Raise ProgressLost if the mark of a process that opened, and so has one, is no longer the one here."""
        found = self.mark()
        if mark is not None and found != mark:
            what = None if found is None else found.encode()
            raise progress_lost("the in-memory ZooKeeper", mark.encode(), what)

    def decode(self, shard_id: str) -> Checkpoint:
        """Read a shard's node.

        Raises:
            CheckpointUnreadable: names the shard.
        """
        try:
            return Checkpoint.decode(self.shards[shard_id].data)
        except InvalidCheckpoint as error:
            raise CheckpointUnreadable(f"the checkpoint of {shard_id} cannot be read: {error}") from error


class InMemoryCoordinator:
    """The port ``Coordinator``, for one process of an ``InMemoryZooKeeper``."""

    def __init__(self, zookeeper: InMemoryZooKeeper, member: str) -> None:
        self._zookeeper = zookeeper
        self._member = member
        self.owned: dict[str, _Owned] = {}
        self.mark: Application | None = None
        """As this process found or made it, for the store and the coordinator."""
        self._lost: set[str] = set()
        self._refused: set[str] = set()
        self._says = b""
        self._shows_pause = False

    @property
    def member(self) -> str:
        """The name of this process."""
        return self._member

    def join(self, says: bytes = b"") -> None:
        """Register."""
        with self._zookeeper.lock:
            self._zookeeper.check_available()
            self._zookeeper.check_mark(self.mark)
            self._says = says
            self._zookeeper.register(self._member, says)

    def say(self, says: bytes) -> None:
        """Say something else of this member."""
        with self._zookeeper.lock:
            self._zookeeper.check_available()
            self._says = says
            self._zookeeper.register(self._member, says)

    def members(self) -> list[str]:
        """Name the living members, in order."""
        with self._zookeeper.lock:
            self._zookeeper.check_available()
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
            if zookeeper.next_fault() is StoreFault.ANSWER_LOST:
                # It took effect unnoticed; what is found of it is replaced, as after a session of our own.
                zookeeper.put(shard_id, next_ownership(stored, fresh).encode())
                return self.acquire(shard_id, fresh, fences=fences)
            acquired = next_ownership(stored, fresh)
            if self._member not in zookeeper.member_names:
                zookeeper.register(self._member, self._says)
            if owner is not None and owner.member != self._member:
                zookeeper.owner_lost(shard_id)
            zookeeper.owners[shard_id] = new_owner = zookeeper.new_owner(self._member)
            zookeeper.put(shard_id, acquired.encode())
            self._lost.discard(shard_id)
            self.owned[shard_id] = _Owned(
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

    def take_freed(self) -> frozenset[str]:
        """Name the shards that this member did not get, and that nobody owns any more."""
        with self._zookeeper.lock:
            freed = frozenset(self._refused - self._zookeeper.owners.keys())
            self._refused -= freed
            return freed

    def take_lost(self) -> frozenset[str]:
        """Name the shards lost since the last call."""
        with self._zookeeper.lock:
            lost = frozenset(self._lost)
            self._lost.clear()
            return lost

    def show_pause(self, notice: str) -> bool:
        """Show operators that this member has paused; True once one of them says to go on."""
        with self._zookeeper.lock:
            self._zookeeper.check_available()
            taken_away = self._shows_pause and self._member not in self._zookeeper.pauses
            self._shows_pause = not taken_away
            if not taken_away:
                self._zookeeper.pauses[self._member] = notice
            return taken_away

    def end_pause(self) -> None:
        """Show it no longer."""
        with self._zookeeper.lock:
            self._zookeeper.check_available()
            self._shows_pause = False
            self._zookeeper.pauses.pop(self._member, None)

    def pauses(self) -> Mapping[str, str]:
        """Give the notices of the members that have paused."""
        with self._zookeeper.lock:
            self._zookeeper.check_available()
            return dict(sorted(self._zookeeper.pauses.items()))

    def resume(self) -> list[str]:
        """Tell the members that have paused to go on."""
        with self._zookeeper.lock:
            self._zookeeper.check_available()
            members = sorted(self._zookeeper.pauses)
            self._zookeeper.pauses.clear()
            return members

    def close(self) -> None:
        """Leave."""
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
        """Learn that the session is over."""
        self._shows_pause = False
        for shard_id in list(self.owned):
            self.lose(shard_id)


class InMemoryCheckpointStore:
    """The port ``CheckpointStore``, for one process of an ``InMemoryZooKeeper``."""

    def __init__(self, zookeeper: InMemoryZooKeeper, coordinator: InMemoryCoordinator) -> None:
        self._zookeeper = zookeeper
        self._coordinator = coordinator
        self._attached: dict[str, int | None] = {}
        """The version of each attachment as it was read or written here."""

    def open(self, stream_created: float, start: StartPositions, shards: Collection[Shard]) -> StartPositions:
        """Begin, or check that what has begun is the right thing."""
        refuse_latest(start)
        zookeeper = self._zookeeper
        with zookeeper.lock:
            zookeeper.next_fault()  # lost or not, what was begun is found by looking again
            if zookeeper.begun is not None:
                created, begun_start = zookeeper.begun
                if not is_same_creation(created, stream_created):
                    raise StreamRecreated(
                        f"the stored progress is on a stream created at {created}, this one was created at "
                        f"{stream_created}: remove it with `kinesis-spout checkpoints forget`"
                    )
                self._coordinator.mark = zookeeper.mark()
                return begun_start
            for shard_id in zookeeper.shards:
                if zookeeper.decode(shard_id).epoch != 0:
                    raise CheckpointUnreadable(f"the mark is missing although {shard_id} has been owned")
            check_named(start, shards)
            for shard_id in zookeeper.shards.keys() - {shard.shard_id for shard in shards}:
                del zookeeper.shards[shard_id]
            zookeeper.empty_attached()
            for shard in shards:
                position = start.of_shard(shard.shard_id)
                fresh = Checkpoint.beginning_at(position, parents=shard.parents)
                zookeeper.put(shard.shard_id, fresh.encode())
            zookeeper.begun = (stream_created, start)
            self._coordinator.mark = zookeeper.mark()
            return start

    def begin_again(
        self, deployment: str, start: StartPositions, shards: Collection[Shard]
    ) -> StartPositions | None:
        """Begin again, once for each deployment."""
        zookeeper = self._zookeeper
        with zookeeper.lock:
            mark = zookeeper.mark()
            assert mark is not None, "open comes first"
            refuse_latest(start)
            if deployment not in mark.deployments:
                check_named(start, shards)
                zookeeper.next_fault()
                zookeeper.refuse_while_alive()
                epochs = {shard.shard_id: self._next_epoch(shard.shard_id) for shard in shards}
                for shard_id in zookeeper.shards.keys() - epochs.keys():
                    del zookeeper.shards[shard_id]
                zookeeper.empty_attached()
                for shard in shards:
                    fresh = Checkpoint.beginning_at(
                        start.of_shard(shard.shard_id), parents=shard.parents, epoch=epochs[shard.shard_id]
                    )
                    zookeeper.put(shard.shard_id, fresh.encode())
                zookeeper.begun = (mark.stream_created, start)
                zookeeper.deployments = mark.begins_again(deployment, start).deployments
            self._coordinator.mark = zookeeper.mark()
            return None if deployment in mark.deployments else mark.start

    def load(self) -> Mapping[str, Checkpoint]:
        """Read every checkpoint."""
        with self._zookeeper.lock:
            self._zookeeper.check_available()
            self._zookeeper.check_mark(self._coordinator.mark)
            return {shard_id: self._zookeeper.decode(shard_id) for shard_id in self._zookeeper.shards}

    def check_begun(self) -> None:
        """Make sure that the mark is there."""
        with self._zookeeper.lock:
            self._zookeeper.check_available()
            self._zookeeper.check_mark(self._coordinator.mark)

    def attached(self, name: str) -> bytes | None:
        """Read an attachment, which entitles to write it."""
        self.check_begun()
        with self._zookeeper.lock:
            node = self._zookeeper.attached.get(name)
            self._attached[name] = None if node is None else node.version
            return node.data or None if node is not None else None

    def commit(self, writes: Sequence[CheckpointWrite], attachment: Attachment | None = None) -> CommitResult:
        """Store the writes under the fence. Of two for one shard the later counts."""
        with self._zookeeper.lock:
            fault = self._zookeeper.next_fault()
            while fault is StoreFault.REQUEST_LOST:  # reading again shows the old versions: send it again
                fault = self._zookeeper.next_fault()
            latest = {write.shard_id: write.checkpoint for write in writes}
            if attachment is not None:
                return self._commit_whole(latest, attachment)
            committed = {
                shard_id for shard_id, checkpoint in latest.items() if self._write(shard_id, checkpoint)
            }
            # ANSWER_LOST needs nothing more: reading again shows what _write has just told.
            return CommitResult(committed=frozenset(committed), fenced=frozenset(latest.keys() - committed))

    def _commit_whole(self, latest: Mapping[str, Checkpoint], attachment: Attachment) -> CommitResult:
        """Store all of it, or nothing."""
        assert attachment.name in self._attached, "an attachment is read before it is written"
        size_bytes = sum(len(each.encode()) for each in latest.values()) + len(attachment.data)
        if size_bytes > _MAX_ATTACHED_BYTES:
            raise CommitTooLarge(f"expected {_MAX_ATTACHED_BYTES:,} bytes at most, got {size_bytes:,}")
        owned = sorted(self._coordinator.owned)
        still_owned = [shard_id for shard_id in owned if self._still_owns(shard_id)]
        node = self._zookeeper.attached.get(attachment.name)
        known = self._attached[attachment.name]
        if (
            not owned
            or still_owned != owned
            or known != (None if node is None else node.version)
            or not all(self._is_entitled(shard_id, each) for shard_id, each in latest.items())
        ):
            return CommitResult(fenced=frozenset(latest))
        for shard_id, checkpoint in latest.items():
            self._write(shard_id, checkpoint)
        self._zookeeper.attach(attachment.name, attachment.data)
        self._attached[attachment.name] = self._zookeeper.attached[attachment.name].version
        return CommitResult(committed=frozenset(latest), attached=True)

    def _is_entitled(self, shard_id: str, checkpoint: Checkpoint) -> bool:
        owned = self._coordinator.owned.get(shard_id)
        return owned is not None and owned.epoch == checkpoint.epoch

    def _still_owns(self, shard_id: str) -> bool:
        """Tell whether an owned shard is still ours; else it is lost."""
        owned = self._coordinator.owned[shard_id]
        owner = self._zookeeper.owners.get(shard_id)
        node = self._zookeeper.shards.get(shard_id)
        if owner is None or owner.node != owned.node or node is None or node.version != owned.version:
            self._coordinator.lose(shard_id)
            return False
        return True

    def _write(self, shard_id: str, checkpoint: Checkpoint) -> bool:
        if not self._is_entitled(shard_id, checkpoint) or not self._still_owns(shard_id):
            return False
        owned = self._coordinator.owned[shard_id]
        self._zookeeper.put(shard_id, checkpoint.encode())
        self._coordinator.owned[shard_id] = replace(owned, version=owned.version + 1)
        return True

    def reset(self, checkpoints: Mapping[str, Checkpoint]) -> None:
        """Replace the stored progress."""
        zookeeper = self._zookeeper
        with zookeeper.lock:
            zookeeper.next_fault()
            zookeeper.refuse_while_alive()
            zookeeper.empty_attached()
            for shard_id, checkpoint in checkpoints.items():
                zookeeper.put(shard_id, replace(checkpoint, epoch=self._next_epoch(shard_id)).encode())

    def forget(self) -> None:
        """Remove everything that is stored; the application has never begun then."""
        zookeeper = self._zookeeper
        with zookeeper.lock:
            zookeeper.next_fault()
            zookeeper.refuse_while_alive()
            if zookeeper.begun is None and not zookeeper.shards:
                raise StoreError("this application has not begun; there is nothing to forget")
            zookeeper.begun = None
            zookeeper.deployments = ()
            zookeeper.shards.clear()
            zookeeper.attached.clear()
            zookeeper.assignment = b""
            zookeeper.drained.clear()
            zookeeper.halted.clear()

    # -- what operators look at

    def read_application(self) -> Application | None:
        """Say what the application began with, or None when it has not begun."""
        with self._zookeeper.lock:
            self._zookeeper.check_available()
            return self._zookeeper.mark()

    def shard_ids(self) -> list[str]:
        """Name every shard that something is stored of, readable or not, in order."""
        with self._zookeeper.lock:
            self._zookeeper.check_available()
            return sorted(self._zookeeper.shards)

    def read_shard(self, shard_id: str) -> tuple[Checkpoint, int] | None:
        """Give one shard's checkpoint and the version of its node, or None where nothing is stored."""
        with self._zookeeper.lock:
            self._zookeeper.check_available()
            node = self._zookeeper.shards.get(shard_id)
            return None if node is None else (self._zookeeper.decode(shard_id), node.version)

    def owners(self) -> Mapping[str, str]:
        """Name the member that owns each owned shard."""
        with self._zookeeper.lock:
            self._zookeeper.check_available()
            return {shard_id: owner.member for shard_id, owner in self._zookeeper.owners.items()}

    def _next_epoch(self, shard_id: str) -> int:
        node = self._zookeeper.shards.get(shard_id)
        if node is None:
            return 1
        try:
            return Checkpoint.decode(node.data).epoch + 1
        except InvalidCheckpoint:
            return node.version + 2


class InMemoryProcess:
    """One process's store, coordinator and group."""

    def __init__(self, zookeeper: InMemoryZooKeeper, member: str) -> None:
        self.group = InMemoryGroup(zookeeper, member)
        self.coordinator = InMemoryCoordinator(zookeeper, member)
        self.store = InMemoryCheckpointStore(zookeeper, self.coordinator)

    def close(self) -> None:
        """Leave."""
        self.group.close()
        self.coordinator.close()
