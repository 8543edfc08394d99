"""Effect and progress in one transaction of an SQLite database: the port ``CheckpointStore`` over a user's tables.

ZooKeeper goes on deciding who owns a shard. What is finished is stored here, beside the effects:

* A handler does not write its effect. It *leaves* it, a function of the connection, together with its ack.
* A commit is one transaction. It does the effects of exactly those records that the new checkpoint calls finished
  and the stored one did not, and it stores the checkpoint with its hole map.
* The same transaction compares the epoch. Who lost a shard stores nothing of it, neither effects nor progress.

So after any crash a record has taken effect if, and only if, the stored checkpoint calls it finished. What was
acked and not committed has no effect yet, and comes again.
"""

import sqlite3
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, cast

from kinesis_spout import InvalidConfig, KinesisSpout, Ports, Record
from kinesis_spout.ports import (
    Attachment,
    CheckpointStore,
    CheckpointUnreadable,
    CheckpointWrite,
    CommitResult,
    Coordinator,
    StoreError,
    StoreUnavailable,
    StreamRecreated,
    is_same_creation,
)
from shard_state import Checkpoint, SequenceNumber, Shard, StartPositions
from shard_state.errors import InvalidCheckpoint

Effect = Callable[[sqlite3.Connection], object]
"""Writes what a record changes, in this database. It must neither begin nor end a transaction."""

_TABLE: Final = """
CREATE TABLE IF NOT EXISTS kinesis_progress (
    app TEXT, stream TEXT, shard TEXT, created REAL, epoch INTEGER, checkpoint BLOB,
    PRIMARY KEY (app, stream, shard)
)
"""
_UNBOUNDED: Final = 1 << 30
"""A checkpoint is never cut here, as it is in ZooKeeper: a hole that is left out would be an effect done twice."""


class SqliteProgress:
    """The progress of one process of an application on one stream, in a database of its own. Mutable; thread-safe.

        progress = SqliteProgress(Path("bank.db"), app="bank", stream="payments")
        spout = KinesisSpout(config=config, ports=progress.instead_of(open_ports(config)))
        with spout.open() as tuples:
            for message_id, record in tuples:
                progress.finish(tuples, message_id, record, lambda db: db.execute(...))

    Args:
        path: of the database. It gets one more table, ``kinesis_progress``.
        app: the application's name, as in the spout's settings.
        stream: the stream's name.
    """

    def __init__(self, path: Path, *, app: str, stream: str) -> None:
        self._place = app, stream
        self._lock = threading.RLock()
        self._left: defaultdict[str, dict[SequenceNumber, Effect]] = defaultdict(dict)
        """By shard: the effects of records that are acked and not committed."""
        self._created = 0.0
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=5.0)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.execute(_TABLE)

    def instead_of(self, ports: Ports) -> Ports:
        """Give ports whose progress is kept here. Who owns a shard is decided where it was."""

        def close() -> None:
            ports.close()
            self.close()

        store = _Store(self, ports.store)
        coordinator = cast("Coordinator", _Coordinator(self, ports.coordinator))
        return replace(ports, store=store, coordinator=coordinator, close=close)

    def finish(self, spout: KinesisSpout, message_id: str, record: Record, effect: Effect) -> bool:
        """Ack a tuple, and leave its effect for the commit that stores this.

        Returns:
            False if the record is finished already, or no longer ours: the effect is not done (again).

        Raises:
            InvalidConfig: the spout has another guarantee: its records are finished before they have an effect.
        """
        if spout.config.guarantee != "at_least_once":
            raise InvalidConfig(
                f"expected `guarantee=at_least_once` with effects in the transaction of the progress, got "
                f"{spout.config.guarantee!r}: leave the setting out"
            )
        with self._lock:
            left, sequence = self._left[record.shard_id], record.sequence
            is_first = left.setdefault(sequence, effect) is effect
            acked = spout.ack(message_id)
            if is_first and not acked:
                del left[sequence]
            return acked

    def close(self) -> None:
        """Close the connection; the spout does it, if it was given ``instead_of``. May be called twice."""
        self._db.close()

    # For the ports

    def check_created(self, stream_created: float) -> None:
        """Raise StreamRecreated if what is stored is of another stream with this name."""
        self._created = stream_created
        for (created,) in self._rows("created"):
            if not is_same_creation(created, stream_created):
                raise StreamRecreated(
                    f"expected the stream created at {created}, which the progress in the database is of, got one "
                    f"created at {stream_created}: delete its rows of kinesis_progress to begin with the new one"
                )

    def load(self) -> dict[str, Checkpoint]:
        """Read every shard's checkpoint."""
        return {shard_id: _decoded(shard_id, stored) for shard_id, stored in self._rows("shard, checkpoint")}

    def adopt(self, shard_id: str, acquired: Checkpoint) -> Checkpoint:
        """Take a shard over from what is stored here, under an epoch above every earlier one."""
        with self._transaction() as db:
            stored = self._read(db, shard_id)
            if stored is not None:
                acquired = replace(stored, epoch=max(acquired.epoch, stored.epoch + 1))
            db.execute(
                "INSERT OR REPLACE INTO kinesis_progress VALUES (?, ?, ?, ?, ?, ?)",
                (*self._place, shard_id, self._created, acquired.epoch, acquired.encode(_UNBOUNDED)),
            )
            self._left.pop(shard_id, None)  # left under an earlier ownership, and not stored: they come again
        return acquired

    def commit(self, writes: Sequence[CheckpointWrite]) -> CommitResult:
        """Do the effects that were left, and store the checkpoints: all in one transaction."""
        fenced: set[str] = set()
        done: list[tuple[str, SequenceNumber]] = []
        with self._lock:
            with self._transaction() as db:
                for write in writes:
                    stored = self._read(db, write.shard_id)
                    if stored is None or stored.epoch != write.checkpoint.epoch:
                        fenced.add(write.shard_id)
                    else:
                        done += self._store(db, write, stored)
            for shard_id, sequence in done:
                self._left[shard_id].pop(sequence, None)
            for shard_id in fenced:
                self._left.pop(shard_id, None)
        return CommitResult(
            committed=frozenset(write.shard_id for write in writes) - fenced, fenced=frozenset(fenced)
        )

    def _store(
        self, db: sqlite3.Connection, write: CheckpointWrite, stored: Checkpoint
    ) -> list[tuple[str, SequenceNumber]]:
        shard_id, checkpoint = write.shard_id, write.checkpoint
        finished = [sequence for sequence in self._left[shard_id] if _is_finished(checkpoint, sequence)]
        for sequence in finished:
            if not _is_finished(stored, sequence):
                _do(db, self._left[shard_id][sequence], f"{shard_id}:{sequence}")
        db.execute(
            "UPDATE kinesis_progress SET checkpoint = ? WHERE app = ? AND stream = ? AND shard = ? AND epoch = ?",
            (checkpoint.encode(_UNBOUNDED), *self._place, shard_id, checkpoint.epoch),
        )
        return [(shard_id, sequence) for sequence in finished]

    def _read(self, db: sqlite3.Connection, shard_id: str) -> Checkpoint | None:
        rows = db.execute(
            "SELECT checkpoint FROM kinesis_progress WHERE app = ? AND stream = ? AND shard = ?",
            (*self._place, shard_id),
        ).fetchall()
        return _decoded(shard_id, rows[0][0]) if rows else None

    def _rows(self, columns: str) -> list[Any]:
        with self._transaction() as db:
            return db.execute(
                f"SELECT {columns} FROM kinesis_progress WHERE app = ? AND stream = ?",  # noqa: S608 - named above
                self._place,
            ).fetchall()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        db = self._db
        with self._lock:
            try:
                db.execute("BEGIN IMMEDIATE")
                yield db
                db.execute("COMMIT")
            except sqlite3.OperationalError as error:  # locked by another writer, disk full
                raise StoreUnavailable(f"the database of the progress does not answer: {error}") from error
            finally:
                if db.in_transaction:
                    db.execute("ROLLBACK")


class _Store:
    """The port ``CheckpointStore``: where reading begins is ZooKeeper's, what is finished is the database's."""

    def __init__(self, progress: SqliteProgress, beginnings: CheckpointStore) -> None:
        self._progress = progress
        self._beginnings = beginnings

    def open(
        self, stream_created: float, start: StartPositions, shards: Collection[Shard], *, arn: str = ""
    ) -> StartPositions:
        """Begin, or check that what has begun is of this stream."""
        begun = self._beginnings.open(stream_created, start, shards, arn=arn)
        self._progress.check_created(stream_created)
        return begun

    def begin_again(
        self, deployment: str, start: StartPositions, shards: Collection[Shard]
    ) -> StartPositions | None:
        """Refuse: the effects stay, so records that come again would take effect twice."""
        del start, shards
        raise _refused(f"start_again={deployment!r}")

    def load(self) -> Mapping[str, Checkpoint]:
        """Read every checkpoint: as it began, or how far it is by now."""
        return {**self._beginnings.load(), **self._progress.load()}

    def check_begun(self) -> None:
        """Make sure that what has begun is still there."""
        self._beginnings.check_begun()

    def attached(self, name: str) -> bytes | None:
        """Read what a topology keeps beside the progress: nothing."""
        return self._beginnings.attached(name)

    def commit(self, writes: Sequence[CheckpointWrite], attachment: Attachment | None = None) -> CommitResult:
        """Store the checkpoints with their effects."""
        if attachment is not None:
            raise _refused(f"the state of a topology ({attachment.name})")
        return self._progress.commit(writes)

    def reset(self, checkpoints: Mapping[str, Checkpoint]) -> None:
        """Refuse, for the reason of ``begin_again``."""
        del checkpoints
        raise _refused("a reset")


class _Coordinator:
    """The port ``Coordinator``: ZooKeeper's, but for where an owner goes on from."""

    def __init__(self, progress: SqliteProgress, owners: Coordinator) -> None:
        self._progress = progress
        self._owners = owners

    def acquire(self, shard_id: str, fresh: Checkpoint, *, fences: bool = False) -> Checkpoint | None:
        """Become the owner of a shard, in ZooKeeper and then in the database."""
        acquired = self._owners.acquire(shard_id, fresh, fences=fences)
        return None if acquired is None else self._progress.adopt(shard_id, acquired)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._owners, name)


def _refused(what: str) -> InvalidConfig:
    return InvalidConfig(
        f"expected progress that is stored with its effects, got {what}: take the effects out of the database "
        "first, and the rows of kinesis_progress with them"
    )


def _do(db: sqlite3.Connection, effect: Effect, record: str) -> None:
    try:
        effect(db)
    except Exception as error:
        raise StoreError(
            f"expected the effect of {record} to be written, got {error!r}: nothing of this commit is stored. An "
            "effect must not fail: check in the handler what may be wrong with a record"
        ) from error


def _is_finished(checkpoint: Checkpoint, sequence: SequenceNumber) -> bool:
    return sequence <= checkpoint.base or any(after < sequence <= last for after, last in checkpoint.holes)


def _decoded(shard_id: str, stored: bytes) -> Checkpoint:
    try:
        return Checkpoint.decode(stored)
    except InvalidCheckpoint as error:
        raise CheckpointUnreadable(f"the checkpoint of {shard_id} cannot be read: {error}") from error
