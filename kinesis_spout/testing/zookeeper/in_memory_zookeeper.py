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

from collections.abc import Callable

from kinesis_spout.model.errors import CheckpointUnreadable
from kinesis_spout.ports.membership import AUDIT_ENTRIES
from kinesis_spout.testing.zookeeper.checkpoint_store import InMemoryCheckpointStore
from kinesis_spout.testing.zookeeper.coordinator import InMemoryCoordinator
from kinesis_spout.testing.zookeeper.nodes import InMemoryNodes, Session
from shard_state import Assignment, GroupMember, OperatorPause
from shard_state.errors import InvalidStoredForm


class InMemoryGroup:
    """The port ``Group``, for one process of an ``InMemoryZooKeeper``. Mutable, thread-safe."""

    def __init__(self, zookeeper: InMemoryNodes, member: str) -> None:
        self._zookeeper = zookeeper
        self._member = member
        self._takes_part = False
        self._decoded: tuple[bytes, Assignment | None] = b"", None
        """The assignment that was read last."""
        self.changed: Callable[[], None] = _nothing

    def take_part(self, changed: Callable[[], None]) -> None:
        with self._zookeeper.lock:
            self.changed = changed
            self._takes_part = True

    def leads(self) -> bool:
        """Say whether this member leads: of those that take part it has done so for the longest time."""
        zookeeper = self._zookeeper
        with zookeeper.lock:
            if not self._takes_part or not zookeeper.is_available:
                return False
            self._return()
            if self._member not in zookeeper.candidates:
                zookeeper.candidates.append(self._member)
            return zookeeper.candidates[0] == self._member

    def _return(self) -> None:
        """Begin a new session where the last one has expired, as a living process does: it learns so."""
        zookeeper, member = self._zookeeper, self._member
        if self._takes_part and member in zookeeper.says and member not in zookeeper.member_names:
            zookeeper.sessions[member].lose_all()
            zookeeper.register(member)

    def leader(self) -> str | None:
        with self._zookeeper.answering():
            return next(iter(self._zookeeper.candidates), None)

    def members(self) -> list[GroupMember]:
        zookeeper = self._zookeeper
        with zookeeper.answering():
            return [
                GroupMember.decode(said, name=name, joined=joined, draining=name in zookeeper.drained)
                for name, (joined, said) in zookeeper.says.items()
                if name in zookeeper.member_names and said
            ]

    def assignment(self) -> Assignment | None:
        with self._zookeeper.answering():
            self._return()
            stored = self._zookeeper.assignment
        if stored != self._decoded[0]:
            try:
                self._decoded = stored, Assignment.decode(stored) if stored else None
            except InvalidStoredForm as error:
                raise CheckpointUnreadable(f"the assignment cannot be read: {error}") from error
        return self._decoded[1]

    def assign(self, assignment: Assignment) -> bool:
        with self._zookeeper.answering():
            if not self.leads():
                return False
            self._zookeeper.assignment = assignment.encode()
            self._zookeeper.tell()
            return True

    def drain(self, member: str) -> None:
        with self._zookeeper.answering():
            self._zookeeper.drained.add(member)
            self._zookeeper.tell()

    def end_drain(self, member: str) -> None:
        with self._zookeeper.answering():
            self._zookeeper.drained.discard(member)
            self._zookeeper.tell()

    def pause(self, shard_id: str | None) -> None:
        with self._zookeeper.answering():
            self._zookeeper.paused.add(shard_id)
            self._zookeeper.tell()

    def resume(self, shard_id: str | None) -> OperatorPause:
        with self._zookeeper.answering():
            paused = self._zookeeper.paused
            ended = paused.copy() if shard_id is None else paused & {shard_id}
            paused -= ended
            self._zookeeper.tell()
            return _operator_pause_of(ended)

    def paused(self) -> OperatorPause:
        with self._zookeeper.answering():
            return _operator_pause_of(self._zookeeper.paused)

    def write_audit(self, entry: bytes) -> bool:
        with self._zookeeper.answering():
            if self._zookeeper.begun is None and not self._zookeeper.says:
                return False
            self._zookeeper.audit = [*self._zookeeper.audit, entry][-AUDIT_ENTRIES:]
            return True

    def audit(self) -> list[bytes]:
        with self._zookeeper.answering():
            return list(self._zookeeper.audit)

    def hold(self, work: str, holder: str) -> str | None:
        with self._zookeeper.answering():
            member, said = self._zookeeper.held.setdefault(work, (self._member, holder))
            return None if member == self._member else said

    def still_holds(self, work: str) -> bool:
        with self._zookeeper.answering():
            return self._zookeeper.held.get(work, ("", ""))[0] == self._member

    def close(self) -> None:
        with self._zookeeper.lock:
            if self._takes_part:
                self._zookeeper.drained.discard(self._member)
            self._takes_part = False
            if self._member in self._zookeeper.candidates:
                self._zookeeper.candidates.remove(self._member)
            self._zookeeper.tell()


def _operator_pause_of(paused: set[str | None]) -> OperatorPause:
    return OperatorPause(
        everything=None in paused, shards=frozenset(name for name in paused if name is not None)
    )


def _nothing() -> None:
    pass


class InMemoryProcess:
    """One process's store, coordinator and group."""

    def __init__(self, zookeeper: InMemoryNodes, member: str) -> None:
        self.group = InMemoryGroup(zookeeper, member)
        self.coordinator = InMemoryCoordinator(zookeeper, member)
        self.store = InMemoryCheckpointStore(zookeeper, self.coordinator)

    def close(self) -> None:
        self.group.close()
        self.coordinator.close()


class InMemoryZooKeeper(InMemoryNodes):
    """Mutable: the place of one application on one stream, shared by its processes. Thread-safe."""

    def process(self, member: str | None = None) -> InMemoryProcess:
        """Connect another process, whose name nobody else has: the third one is ``process-3`` unless named."""
        with self.lock:
            member = member or f"process-{len(self.sessions) + 1}"
            process = InMemoryProcess(self, member)
            self.sessions[member] = Session(
                lose=process.coordinator.lose,
                lose_all=process.coordinator.lose_all,
                changed=lambda: process.group.changed(),  # noqa: PLW0108 - it is set later
            )
        return process
