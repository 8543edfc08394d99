"""How an application begins: every shard gets its checkpoint, and then the mark says that it has begun.

Several processes may do this at once. The one that touched the mark's node last goes on: each of its transactions
is conditional on that, so the others' are refused, and they look again. A crash in between leaves a mark that
says so (nothing at a first start, ``begun: false`` at a new one), and whoever opens next repeats the whole.
"""

from collections.abc import Collection
from dataclasses import replace

from kinesis_spout.model.errors import CheckpointUnreadable
from kinesis_spout.zookeeper.progress.administration import next_epoch
from kinesis_spout.zookeeper.progress.application import Application
from kinesis_spout.zookeeper.progress.attachments import empty, stored_attachments
from kinesis_spout.zookeeper.session import ZooKeeperSession
from kinesis_spout.zookeeper.tree.chunks import ChunkLimits, chunked, operation_bytes
from kinesis_spout.zookeeper.tree.nodes import Nodes, StoredShard
from kinesis_spout.zookeeper.tree.paths import Paths, check_name
from shard_state import Checkpoint, Shard


class Beginning:
    """Writes the checkpoints that an application begins with."""

    def __init__(self, session: ZooKeeperSession, paths: Paths, nodes: Nodes, limits: ChunkLimits) -> None:
        self._session = session
        self._client = session.client
        self._paths = paths
        self._nodes = nodes
        self._limits = limits

    def write(self, application: Application, shards: Collection[Shard], version: int) -> None:
        """Write every shard's checkpoint, then the mark, as the last to have touched the mark's node.

        Args:
            application: what it begins with; one that begins again has ``begun`` unset.
            shards: get a checkpoint at the start; those of others are removed.
            version: of the mark's node.

        Raises:
            BadVersionError, NodeExistsError, NoNodeError: another process does the same; look again.
            CheckpointUnreadable: this is no first start, but there is no mark.
            StoreUnavailable: retriable.
        """
        meanwhile = b"" if application.begun else application.encode()
        claim = self._session.answer(
            self._client.set_async(self._paths.base, meanwhile, version=version)
        ).version
        stored = self._nodes.read_shards(self._nodes.shard_ids())
        if application.begun:
            self._refuse_owned(stored)
        encoded = {
            self._paths.shard(check_name("shard_id", shard.shard_id)): Checkpoint.beginning_at(
                application.start.of_shard(shard.shard_id),
                parents=shard.parents,
                epoch=0 if application.begun else next_epoch(stored.get(shard.shard_id)),
            ).encode()
            for shard in shards
        }
        existing = {self._paths.shard(shard_id) for shard_id in stored}
        attached = stored_attachments(self._session, self._paths, self._nodes)
        paths = sorted(encoded.keys() | existing)
        for chunk in chunked(paths, lambda path: operation_bytes(path, encoded.get(path, b"")), self._limits):
            transaction = self._client.transaction()
            transaction.check(self._paths.base, claim)
            empty(transaction, self._paths, attached, f"the application begins at {application.start}")
            attached = []
            for path in chunk:
                if path not in encoded:
                    transaction.delete(path)
                elif path in existing:
                    transaction.set_data(path, encoded[path])
                else:
                    transaction.create(path, encoded[path])
            self._session.committed(transaction.commit_async())
        mark = replace(application, begun=True).encode()
        self._session.answer(self._client.set_async(self._paths.base, mark, version=claim))

    def claim_again(self, application: Application, version: int) -> None:
        """Say in the mark's node that the application begins again, while no member is registered.

        Args:
            application: what it begins with, ``begun`` unset.
            version: of the mark's node.

        Raises:
            NotEmptyError: a member is registered.
            BadVersionError, NoNodeError: the mark has changed meanwhile; look again.
            StoreUnavailable: retriable.
        """
        transaction = self._client.transaction()
        transaction.set_data(self._paths.base, application.encode(), version)
        # ZooKeeper removes no node that has members in it, and whoever registers makes it anew.
        transaction.delete(self._paths.members)
        self._session.committed(transaction.commit_async())

    def _refuse_owned(self, stored: dict[str, StoredShard]) -> None:
        for shard_id, shard in stored.items():
            if self._nodes.decode(shard_id, shard.data).epoch != 0:
                raise CheckpointUnreadable(
                    f"{self._paths.base} does not say that the application has begun, but "
                    f"{self._paths.shard(shard_id)} has been owned: the mark was lost, restore it from a backup, "
                    "or start afresh after `kinesis-spout checkpoints forget`"
                )
