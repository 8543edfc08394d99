"""What an operator does with stored progress: finds the applications; resets or forgets one that nobody runs."""

from collections.abc import Mapping
from dataclasses import replace

from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError, NotEmptyError

from kinesis_spout.model.errors import ConsumerAlive, StoreError
from kinesis_spout.zookeeper.progress.attachments import empty, stored_attachments
from kinesis_spout.zookeeper.session import ZooKeeperSession
from kinesis_spout.zookeeper.tree.chunks import ChunkLimits, chunked, operation_bytes
from kinesis_spout.zookeeper.tree.nodes import Nodes, StoredShard
from kinesis_spout.zookeeper.tree.paths import Paths, check_name
from shard_state import Checkpoint
from shard_state.errors import InvalidCheckpoint


class Administration:
    """Changes the progress without owning shards. Each change is conditional on what was read before it."""

    def __init__(self, session: ZooKeeperSession, paths: Paths, nodes: Nodes, limits: ChunkLimits) -> None:
        self._session = session
        self._client = session.client
        self._paths = paths
        self._nodes = nodes
        self._limits = limits

    def reset(self, checkpoints: Mapping[str, Checkpoint]) -> None:
        """Replace the stored progress (see the port), also where what is stored cannot be read.

        Raises:
            ConsumerAlive: names the members, or the shard that somebody acquired meanwhile.
            StoreError: the application has not begun; there is nothing to replace.
            StoreUnavailable: some chunks may have been written; calling again is safe.
        """
        self._session.await_connection(self._session.deadline())
        self._refuse_while_alive()
        if not self._session.answer(self._client.exists_async(self._paths.shards)):
            raise StoreError(f"{self._paths.base}: this application has not begun; there is nothing to reset")
        stored = self._nodes.read_shards(checkpoints)
        encoded = {
            check_name("shard_id", shard_id): replace(
                checkpoint, epoch=next_epoch(stored.get(shard_id))
            ).encode()
            for shard_id, checkpoint in checkpoints.items()
        }
        attached = stored_attachments(self._session, self._paths, self._nodes)
        for chunk in chunked(
            encoded.items(), lambda item: operation_bytes(self._paths.shard(item[0]), item[1]), self._limits
        ):
            transaction = self._client.transaction()
            # First of all: what is left by a failure in between must not count records twice.
            empty(transaction, self._paths, attached, "the progress that it belongs to is reset")
            attached = []
            for shard_id, data in chunk:
                if shard_id in stored:
                    transaction.set_data(self._paths.shard(shard_id), data, stored[shard_id].version)
                else:
                    transaction.create(self._paths.shard(shard_id), data)
            try:
                self._session.committed(transaction.commit_async())
            except (BadVersionError, NodeExistsError, NoNodeError) as error:
                raise ConsumerAlive(
                    f"{self._paths.base}: a checkpoint changed during the reset: a consumer has just started, or "
                    "another reset runs; stop it and try again"
                ) from error

    def forget(self) -> None:
        """Remove everything that is stored of the application on this stream; it then has never begun.

        The mark goes first: no consumer that starts from now on takes what is half removed for progress, and
        after a failure in between, calling again removes the rest. A consumer that is just starting is
        noticed, and left alone with what it stores.

        Raises:
            ConsumerAlive: names the members, or says that somebody has just started.
            StoreError: nothing is stored.
            StoreUnavailable: some or all of it may be removed; calling again is safe.
        """
        self._session.await_connection(self._session.deadline())
        self._refuse_while_alive()
        try:
            _, stat = self._session.answer(self._client.get_async(self._paths.base))
        except NoNodeError as error:
            raise StoreError(
                f"{self._paths.base}: this application has not begun; there is nothing to forget"
            ) from error
        try:
            self._remove(stat.version)
        except (BadVersionError, NoNodeError, NotEmptyError) as error:
            raise ConsumerAlive(
                f"{self._paths.base}: something changed during the removal: a consumer has just started, or "
                "somebody else removes it too; stop it and try again"
            ) from error

    def _remove(self, version: int) -> None:
        """Take back the mark, while no member is registered; then the checkpoints, then the place."""
        parents = [
            path
            for parent in (
                self._paths.leader,
                self._paths.draining,
                self._paths.assignment,
                self._paths.owners,
                self._paths.paused,
                self._paths.operator_pauses,
                self._paths.attached,
            )
            for path in self._subtree(parent)
        ]
        if self._session.answer(self._client.exists_async(self._paths.shards)):
            parents.append(self._paths.shards)
        transaction = self._client.transaction()
        transaction.set_data(self._paths.base, b"", version)
        if self._session.answer(self._client.exists_async(self._paths.members)):
            transaction.delete(self._paths.members)
        self._session.committed(transaction.commit_async())
        claim = version + 1
        shards = [self._paths.shard(shard_id) for shard_id in self._nodes.shard_ids()]
        for chunk in chunked(shards, lambda path: operation_bytes(path, b""), self._limits):
            transaction = self._client.transaction()
            transaction.check(self._paths.base, claim)
            for path in chunk:
                transaction.delete(path)
            self._session.committed(transaction.commit_async())
        transaction = self._client.transaction()
        for path in parents:
            transaction.delete(path)
        transaction.delete(self._paths.base, claim)
        self._session.committed(transaction.commit_async())

    def _subtree(self, path: str) -> list[str]:
        """Name a node and all below it, children first; nothing where there is no such node."""
        try:
            children = self._session.answer(self._client.get_children_async(path))
        except NoNodeError:
            return []
        return [below for child in children for below in self._subtree(f"{path}/{child}")] + [path]

    def _refuse_while_alive(self) -> None:
        members = sorted(self._nodes.children(self._paths.members))
        if members:
            raise ConsumerAlive(
                f"{self._paths.base}: expected no living consumer, found {', '.join(members)}: stop them first"
            )


def next_epoch(stored: StoredShard | None) -> int:
    """Give an epoch above every one the shard ever had.

    Where the checkpoint cannot be read the node's version bounds it: a node begins at version 0 with epoch 0 or
    1, and a write raises the version by one and the epoch by at most one.
    """
    if stored is None:
        return 1
    try:
        return Checkpoint.decode(stored.data).epoch + 1
    except InvalidCheckpoint:
        return stored.version + 2


def begun_applications(session: ZooKeeperSession, root: str) -> list[tuple[str, str]]:
    """Name every application below ``root`` that has begun, with each of its streams, in order.

    Raises:
        StoreUnavailable: retriable.
    """
    session.await_connection(session.deadline())
    return [
        (app, stream)
        for app in _children(session, f"/{root}")
        for stream in _children(session, f"/{root}/{app}")
        if _has_begun(session, Paths(root=root, app=app, stream=stream))
    ]


def begun_streams(session: ZooKeeperSession, root: str, app: str) -> tuple[float | None, frozenset[str]]:
    """Say when an application first began, in seconds since the epoch, and name the streams on which it has.

    The time is that of the node of all its streams, by ZooKeeper's clock; None where it has begun on none.

    Raises:
        StoreUnavailable: retriable.
    """
    session.await_connection(session.deadline())
    node = session.answer(session.client.exists_async(f"/{root}/{app}"))
    begun = frozenset(
        stream
        for stream in _children(session, f"/{root}/{app}")
        if _has_begun(session, Paths(root=root, app=app, stream=stream))
    )
    return (None if node is None or not begun else node.ctime / 1000), begun


def _children(session: ZooKeeperSession, path: str) -> list[str]:
    try:
        return sorted(session.answer(session.client.get_children_async(path)))
    except NoNodeError:
        return []


def _has_begun(session: ZooKeeperSession, paths: Paths) -> bool:
    try:
        mark, _ = session.answer(session.client.get_async(paths.base))
    except NoNodeError:
        return False
    return bool(mark)
