"""What happened to one application's nodes: who owned which shard, when, and every checkpoint that was stored."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from kinesis_spout.zookeeper.members.zookeeper_coordinator import process_of
from kinesis_spout.zookeeper.paths import Paths
from shard_state import Checkpoint
from tests.fault.suite.judgement.transaction_log import NodeDeleted, NodeWritten, SessionEnded, Transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCheckpoint:
    """A write of a checkpoint that ZooKeeper accepted."""

    zxid: int
    time: float
    shard: str
    session: int
    owner_session: int | None
    """Whose owner node there was at that moment."""
    checkpoint: Checkpoint
    size_bytes: int
    acquires: bool
    """Whether it raised the epoch: the first write of an ownership."""

    @property
    def epoch(self) -> int:
        return self.checkpoint.epoch


@dataclass(slots=True, kw_only=True)
class Ownership:
    """Mutable: ``end`` comes later."""

    shard: str
    session: int
    pid: int
    """Of the member's process, on this machine; 0 where its name does not say."""
    begin: float
    end: float | None = None


@dataclass(slots=True)
class ZooKeeperHistory:
    """Mutable: takes in transactions as they come."""

    paths: Paths
    checkpoints: list[StoredCheckpoint] = field(default_factory=list)
    ownerships: list[Ownership] = field(default_factory=list)
    pids: dict[int, int] = field(default_factory=dict)
    """The process of each session that ever was a member."""
    latest: dict[str, StoredCheckpoint] = field(default_factory=dict)
    """By shard."""
    largest_node: tuple[int, str] = (0, "")
    last_zxid: int = 0
    _ephemeral: dict[str, int] = field(default_factory=dict)
    """The session of each ephemeral node that there is."""
    _owned: dict[str, Ownership] = field(default_factory=dict)

    def take(self, transactions: Iterable[Transaction]) -> None:
        for transaction in transactions:
            if transaction.zxid <= self.last_zxid:
                continue
            self.last_zxid = transaction.zxid
            for change in transaction.changes:
                match change:
                    case NodeWritten():
                        self._written(transaction, change)
                    case NodeDeleted(path=path):
                        self._deleted(path, transaction.time)
                    case SessionEnded():
                        self._session_ended(transaction)

    def owned_by(self, pid: int) -> list[str]:
        """Name the shards that a process owns now."""
        return [shard for shard, owned in self._owned.items() if owned.pid == pid]

    def member_pids(self) -> list[int]:
        """Give the processes that are members now."""
        return [
            self.pids[session]
            for path, session in self._ephemeral.items()
            if path.startswith(f"{self.paths.members}/") and session in self.pids
        ]

    def leader_pid(self) -> int | None:
        """Give the process of the candidate whose node is the oldest, if there is an election."""
        candidates = [
            (_sequence_of(path), session)
            for path, session in self._ephemeral.items()
            if path.startswith(f"{self.paths.leader}/")
        ]
        return self.pids.get(min(candidates)[1]) if candidates else None

    def _written(self, transaction: Transaction, node: NodeWritten) -> None:
        path = node.path
        if not path.startswith(self.paths.base):
            return
        self.largest_node = max(self.largest_node, (len(node.data), path))
        if node.ephemeral:
            self._ephemeral[path] = transaction.session
        if path.startswith(f"{self.paths.members}/"):
            process = process_of(path.rpartition("/")[2])
            if process is not None:
                self.pids[transaction.session] = process[1]
        elif path.startswith(f"{self.paths.owners}/"):
            owned = Ownership(
                shard=path.rpartition("/")[2],
                session=transaction.session,
                pid=self.pids.get(transaction.session, 0),
                begin=transaction.time,
            )
            self._owned[owned.shard] = owned
            self.ownerships.append(owned)
        elif path.startswith(f"{self.paths.shards}/"):
            self._stored(transaction, path.rpartition("/")[2], node.data)

    def _stored(self, transaction: Transaction, shard: str, data: bytes) -> None:
        checkpoint = Checkpoint.decode(data)
        before, owned = self.latest.get(shard), self._owned.get(shard)
        stored = StoredCheckpoint(
            zxid=transaction.zxid,
            time=transaction.time,
            shard=shard,
            session=transaction.session,
            owner_session=None if owned is None else owned.session,
            checkpoint=checkpoint,
            size_bytes=len(data),
            acquires=checkpoint.epoch > (0 if before is None else before.epoch),
        )
        self.checkpoints.append(stored)
        self.latest[shard] = stored

    def _deleted(self, path: str, now: float) -> None:
        self._ephemeral.pop(path, None)
        if path.startswith(f"{self.paths.owners}/"):
            owned = self._owned.pop(path.rpartition("/")[2], None)
            if owned is not None:
                owned.end = now

    def _session_ended(self, transaction: Transaction) -> None:
        for path in [path for path, session in self._ephemeral.items() if session == transaction.session]:
            self._deleted(path, transaction.time)


def _sequence_of(path: str) -> int:
    digits = re.search(r"(\d+)$", path)
    return int(digits[1]) if digits else 0
