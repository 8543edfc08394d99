"""The nodes of a ZooKeeper in memory: what is stored of one application, and who is there.

The ports of a process use them, one module each. ``in_memory_zookeeper`` puts them together.
"""

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, auto

from kinesis_spout.model.errors import CheckpointUnreadable, ConsumerAlive, StoreUnavailable
from kinesis_spout.zookeeper.progress.application import Application, progress_lost
from shard_state import Checkpoint, StartPositions
from shard_state.errors import InvalidCheckpoint


class StoreFault(Enum):
    """A fault that a request can meet."""

    UNAVAILABLE = auto()
    """It is not sent; the caller gets StoreUnavailable."""
    ANSWER_LOST = auto()
    """It takes effect, and the answer is lost; the store finds out by reading again."""
    REQUEST_LOST = auto()
    """It takes no effect, and the answer is lost too; the store finds out, and sends it again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """The content of one place."""

    data: bytes
    at: float
    """When it was written; seconds since the epoch."""
    version: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The owner node of a shard."""

    member: str
    node: int
    """No two owner nodes share it: what the creation id is to ZooKeeper."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """The calls by which a process learns what happens to its nodes."""

    lose: Callable[[str], None]
    """A shard is another's."""
    lose_all: Callable[[], None]
    """The session is over."""
    changed: Callable[[], None]
    """Something has changed."""


class InMemoryNodes:
    """Mutable: the nodes of one application on one stream, and the sessions of its processes. Thread-safe."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self.lock = threading.RLock()
        self._now = now
        """The time as ZooKeeper has it."""
        self.begun: tuple[float, StartPositions] | None = None
        self.stream_arn = ""
        self.deployments: tuple[str, ...] = ()
        """Those that began again."""
        self.shards: dict[str, Node] = {}
        self.attached: dict[str, Node] = {}
        self.owners: dict[str, Owner] = {}
        self.member_names: set[str] = set()
        self.says: dict[str, tuple[int, bytes]] = {}
        """When each member joined, in the order of this, and what it says of itself."""
        self.candidates: list[str] = []
        """Those that stand for the leadership; the first one leads."""
        self.assignment = b""
        self.drained: set[str] = set()
        self.paused: set[str | None] = set()
        """None stands for everything."""
        self.audit: list[bytes] = []
        """The changes by operators."""
        self.held: dict[str, tuple[str, str]] = {}
        """By work that one process does alone: that process, and what it said of itself."""
        self.pauses: dict[str, str] = {}
        """The notices of the members that have paused."""
        self._node_ids = itertools.count(1)
        self._faults: deque[StoreFault] = deque()
        self._unavailable = False
        self.sessions: dict[str, Session] = {}

    def expire(self, member: str) -> None:
        """End the session of a process: its owner and member nodes are gone, and it will learn so."""
        with self.lock:
            self.end_session(member)
            self.sessions[member].lose_all()
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
            self.shards[shard_id] = self._written(data, self.shards.get(shard_id))

    def attach(self, name: str, data: bytes) -> None:
        """Write an attachment, from outside or as what has been checked before."""
        with self.lock:
            self.attached[name] = self._written(data, self.attached.get(name))

    def _written(self, data: bytes, before: Node | None) -> Node:
        return Node(data=data, at=self._now(), version=0 if before is None else before.version + 1)

    def empty_attached(self) -> None:
        """Remove the content of the attachments; their versions go on."""
        for name in self.attached:
            self.attach(name, b"")

    def remove_owner(self, shard_id: str) -> None:
        """Delete an owner node from outside; its owner learns so. Raises KeyError: nobody owns the shard."""
        with self.lock:
            owner = self.owners.pop(shard_id)
            self.sessions[owner.member].lose(shard_id)
            self.tell()

    def lose_data(self) -> None:
        """Lose everything, as a ZooKeeper whose disks are gone: sessions, nodes, the mark. It serves on, empty."""
        with self.lock:
            for member in self.sessions:
                self.expire(member)
            self.forget()

    def forget(self) -> None:
        """Remove everything that is stored; living processes remove their own nodes."""
        self.begun, self.deployments = None, ()
        self.shards.clear()
        self.attached.clear()
        self.assignment = b""
        self.drained.clear()
        self.paused.clear()
        self.audit.clear()

    def forget_begun(self) -> None:
        """Undo the mark, as if the process had crashed between the shards' nodes and the mark."""
        with self.lock:
            self.begun = None

    # -- for the ports

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Hold the lock over a request; StoreUnavailable if that is what was asked for."""
        with self.lock:
            self.check_available()
            yield

    @property
    def is_available(self) -> bool:
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
        for session in self.sessions.values():
            session.changed()

    def owner_lost(self, shard_id: str) -> None:
        """Let the owner of a shard, if there is one, learn that it is somebody else's."""
        owner = self.owners.pop(shard_id, None)
        if owner is not None:
            self.sessions[owner.member].lose(shard_id)

    def check_available(self) -> None:
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

    def new_owner(self, member: str) -> Owner:
        return Owner(member=member, node=next(self._node_ids))

    def refuse_while_alive(self) -> None:
        if self.member_names:
            raise ConsumerAlive(f"expected no living consumer, found {', '.join(sorted(self.member_names))}")

    def end_session(self, member: str) -> None:
        """Remove the ephemeral nodes of a member."""
        self.member_names.discard(member)
        if member in self.candidates:
            self.candidates.remove(member)
        self.pauses.pop(member, None)
        for work in [work for work, (holder, _) in self.held.items() if holder == member]:
            del self.held[work]
        for shard_id in [shard_id for shard_id, owner in self.owners.items() if owner.member == member]:
            del self.owners[shard_id]

    def mark(self) -> Application | None:
        """Say what the application began with, or None when it has not begun."""
        if self.begun is None:
            return None
        created, start = self.begun
        return Application(
            stream_created=created, stream_arn=self.stream_arn, start=start, deployments=self.deployments
        )

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
