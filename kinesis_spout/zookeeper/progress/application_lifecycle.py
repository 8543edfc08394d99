"""The life of an application: it begins and begins again; operators reset, forget and list applications.

**Beginning.** Every shard gets its checkpoint, and then the mark says that the application has begun. Several
processes may do this at once. Only the one that touched the mark's node last succeeds: each of its
transactions is conditional on that, so the others' are refused, and they look again. A crash in between
leaves a mark that shows it (empty at a first start, ``begun: false`` at a new one), and the next process to
open repeats the whole.

**Resetting and forgetting** need no ownership. Each change is conditional on what was read before it, so a
consumer that is just starting is noticed.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace

from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError, NotEmptyError

from kinesis_spout.model.errors import CheckpointUnreadable, ConsumerAlive, StoreError
from kinesis_spout.zookeeper.nodes import ChunkLimits, Nodes, StoredShard, chunked, operation_bytes
from kinesis_spout.zookeeper.paths import Paths, check_name
from kinesis_spout.zookeeper.progress.application import Application
from kinesis_spout.zookeeper.progress.attachments import empty, stored_attachments
from kinesis_spout.zookeeper.zookeeper_session import ZooKeeperSession
from shard_state import Checkpoint, Shard
from shard_state.errors import InvalidCheckpoint


class ProgressLifecycle:
    """Writes and removes the progress of an application as a whole."""

    def __init__(self, session: ZooKeeperSession, paths: Paths, nodes: Nodes, limits: ChunkLimits) -> None:
        self._session = session
        self._client = session.client
        self._paths = paths
        self._nodes = nodes
        self._limits = limits

    def begin(self, application: Application, shards: Collection[Shard], version: int) -> None:
        """Write every shard's checkpoint, then the mark, as the last to have touched the mark's node.

        Args:
            application: what it begins with; one that begins again has ``begun`` unset.
            shards: get a checkpoint at the start; those of others are removed.
            version: of the mark's node.

        Raises:
            BadVersionError, NodeExistsError, NoNodeError: another process does the same; look again.
            CheckpointUnreadable: this is no first start, but there is no mark.
        """
        meanwhile = b"" if application.begun else application.encode()
        claim = self._session.answer(
            self._client.set_async(self._paths.base, meanwhile, version=version)
        ).version
        stored = self._nodes.read_shards(self._nodes.shard_ids())
        if application.begun:
            self._refuse_owned(stored)
        changes: dict[str, bytes | None] = dict.fromkeys(map(self._paths.shard, stored))
        changes |= {
            self._paths.shard(check_name("shard_id", shard.shard_id)): Checkpoint.beginning_at(
                application.start.of_shard(shard.shard_id),
                parents=shard.parents,
                epoch=0 if application.begun else _next_epoch(stored.get(shard.shard_id)),
            ).encode()
            for shard in shards
        }
        self._change(
            changes,
            dict.fromkeys(map(self._paths.shard, stored), -1),
            claim=claim,
            why=f"the application begins at {application.start}",
        )
        mark = replace(application, begun=True).encode()
        self._session.answer(self._client.set_async(self._paths.base, mark, version=claim))

    def claim_again(self, application: Application, version: int) -> None:
        """Mark in the node that the application begins again, while no member is registered.

        Raises:
            NotEmptyError: a member is registered.
            BadVersionError, NoNodeError: the mark has changed meanwhile; look again.
        """
        transaction = self._client.transaction()
        transaction.set_data(self._paths.base, application.encode(), version)
        # ZooKeeper removes no node that has members in it, and a member that registers creates it again.
        transaction.delete(self._paths.members)
        self._session.committed(transaction.commit_async())

    def _refuse_owned(self, stored: Mapping[str, StoredShard]) -> None:
        for shard_id, shard in stored.items():
            if self._nodes.decode(shard_id, shard.data).epoch != 0:
                raise CheckpointUnreadable(
                    f"{self._paths.base} does not say that the application has begun, but "
                    f"{self._paths.shard(shard_id)} has been owned: the mark was lost, restore it from a backup, "
                    "or start afresh after `kinesis-spout checkpoints forget`"
                )

    def reset(self, checkpoints: Mapping[str, Checkpoint]) -> None:
        """Replace the stored progress, even if it cannot be read. Calling again is safe."""
        self._session.ready()
        self._refuse_while_alive()
        if not self._session.answer(self._client.exists_async(self._paths.shards)):
            raise StoreError(f"{self._paths.base}: this application has not begun; there is nothing to reset")
        stored = self._nodes.read_shards(checkpoints)
        changes = {
            self._paths.shard(check_name("shard_id", shard_id)): replace(
                checkpoint, epoch=_next_epoch(stored.get(shard_id))
            ).encode()
            for shard_id, checkpoint in checkpoints.items()
        }
        versions = {self._paths.shard(shard_id): shard.version for shard_id, shard in stored.items()}
        try:
            self._change(changes, versions, why="the progress that it belongs to is reset")
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
        """
        self._session.ready()
        self._refuse_while_alive()
        found = self._session.found(self._client.get_async(self._paths.base))
        if found is None:
            raise StoreError(
                f"{self._paths.base}: this application has not begun; there is nothing to forget"
            )
        try:
            self._remove(found[1].version)
        except (BadVersionError, NoNodeError, NotEmptyError) as error:
            raise ConsumerAlive(
                f"{self._paths.base}: something changed during the removal: a consumer has just started, or "
                "another process removes it too; stop it and try again"
            ) from error

    def _remove(self, version: int) -> None:
        """Remove the mark, while no member is registered; then the checkpoints, then the place."""
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
                self._paths.audit,
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
        self._change(dict.fromkeys(map(self._paths.shard, self._nodes.shard_ids())), {}, claim=claim)
        transaction = self._client.transaction()
        for path in parents:
            transaction.delete(path)
        transaction.delete(self._paths.base, claim)
        self._session.committed(transaction.commit_async())

    def _change(
        self,
        changes: Mapping[str, bytes | None],
        versions: Mapping[str, int],
        *,
        claim: int | None = None,
        why: str = "",
    ) -> None:
        """Write or remove checkpoints, in as many transactions as it takes.

        Args:
            changes: by path; None removes.
            versions: of the nodes that exist, required when they are written; -1 for any.
            claim: the version that the mark's node must have.
            why: the reason that is logged for emptying the attachments; without it they stay.
        """
        # First of all: what a failure in between leaves must not count records twice.
        attached = stored_attachments(self._session, self._paths, self._nodes) if why else []
        for chunk in chunked(
            sorted(changes), lambda path: operation_bytes(path, changes[path] or b""), self._limits
        ):
            transaction = self._client.transaction()
            if claim is not None:
                transaction.check(self._paths.base, claim)
            empty(transaction, self._paths, attached, why)
            attached = []
            for path in chunk:
                data = changes[path]
                if data is None:
                    transaction.delete(path)
                elif path in versions:
                    transaction.set_data(path, data, versions[path])
                else:
                    transaction.create(path, data)
            self._session.committed(transaction.commit_async())

    def _subtree(self, path: str) -> list[str]:
        """Return a node and all below it, children first; empty if it does not exist."""
        children = self._session.found(self._client.get_children_async(path))
        if children is None:
            return []
        return [below for child in children for below in self._subtree(f"{path}/{child}")] + [path]

    def _refuse_while_alive(self) -> None:
        members = self._session.children(self._paths.members)
        if members:
            raise ConsumerAlive(
                f"{self._paths.base}: expected no living consumer, found {', '.join(members)}: stop them first"
            )


def _next_epoch(stored: StoredShard | None) -> int:
    """Return an epoch above every one the shard ever had.

    If the checkpoint cannot be read, the node's version bounds it: a node begins at version 0 with epoch 0 or
    1, and a write raises the version by one and the epoch by at most one.
    """
    if stored is None:
        return 1
    try:
        return Checkpoint.decode(stored.data).epoch + 1
    except InvalidCheckpoint:
        return stored.version + 2


def begun_applications(session: ZooKeeperSession, root: str) -> list[tuple[str, str]]:
    """Return every application below ``root`` that has begun, with each of its streams, in order."""
    session.ready()
    return [
        (app, stream)
        for app in session.children(f"/{root}")
        for stream in session.children(f"/{root}/{app}")
        if _has_begun(session, Paths(root=root, app=app, stream=stream))
    ]


def begun_streams(session: ZooKeeperSession, root: str, app: str) -> tuple[float | None, frozenset[str]]:
    """Return when an application first began, in seconds since the epoch, and the streams on which it has.

    The time is that of its node, by ZooKeeper's clock; None if it has begun on no stream.
    """
    session.ready()
    node = session.answer(session.client.exists_async(f"/{root}/{app}"))
    begun = frozenset(
        stream
        for stream in session.children(f"/{root}/{app}")
        if _has_begun(session, Paths(root=root, app=app, stream=stream))
    )
    return (None if node is None or not begun else node.ctime / 1000), begun


def _has_begun(session: ZooKeeperSession, paths: Paths) -> bool:
    found = session.found(session.client.get_async(paths.base))
    return found is not None and bool(found[0])
