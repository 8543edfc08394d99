"""A commit with an attachment: one transaction, of which all is stored or nothing.

Besides the writes' own fences it depends on every other shard that this session owns, and on the version of the
attachment that this process has read. One rule resolves what did not plainly succeed, as in ``store``: read again.
The attachment tells, because it is in every such transaction; the shards tell which of them is lost.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError

from kinesis_spout.model.errors import CommitTooLarge, StoreUnavailable
from kinesis_spout.ports import Attachment, CommitResult
from kinesis_spout.zookeeper.ownerships import Ownership, Ownerships
from kinesis_spout.zookeeper.progress.attachments import Attachments, Fate
from kinesis_spout.zookeeper.session import ZooKeeperSession
from kinesis_spout.zookeeper.tree.chunks import operation_bytes
from kinesis_spout.zookeeper.tree.paths import Paths

ResolveShards = Callable[[Mapping[str, Ownership]], Any]
"""Finds out what became of the writes in doubt of these shards, and which of them are lost."""


class WholeCommit:
    """Sends such transactions for a store."""

    def __init__(
        self,
        session: ZooKeeperSession,
        paths: Paths,
        ownerships: Ownerships,
        attachments: Attachments,
        *,
        resolve_shards: ResolveShards,
        max_bytes: int,
    ) -> None:
        self._session = session
        self._paths = paths
        self._ownerships = ownerships
        self._attachments = attachments
        self._resolve_shards = resolve_shards
        self._max_bytes = max_bytes

    def commit(self, encoded: Mapping[str, bytes], attachment: Attachment, deadline: float) -> CommitResult:
        """Store checkpoints, encoded, and the attachment.

        Args:
            encoded: of shards that were owned under their epochs a moment ago.
            attachment: what goes with them.
            deadline: by when to end, in monotonic time.

        Raises:
            CommitTooLarge: it is more than one transaction takes.
            StoreUnavailable: the outcome is unknown, and the next commit finds it out.
        """
        self._attachments.resolve(attachment.name)  # of an earlier commit
        while True:
            owned = self._ownerships.all()
            if not owned or encoded.keys() - owned.keys():
                return CommitResult(fenced=frozenset(encoded))
            self._check_size(owned, encoded, attachment)
            try:
                self._send(owned, encoded, attachment)
            except (NoNodeError, BadVersionError, NodeExistsError) as refused:
                failure: Exception = refused
            except StoreUnavailable as unknown:
                self._session.await_connection(deadline)
                failure = unknown
            else:
                return CommitResult(committed=frozenset(encoded), attached=True)
            fate = self._attachments.resolve(attachment.name)
            self._resolve_shards(
                {shard_id: replace(each, in_doubt=encoded.get(shard_id)) for shard_id, each in owned.items()}
            )
            if fate is Fate.APPLIED:
                return CommitResult(committed=frozenset(encoded), attached=True)
            if fate is Fate.REPLACED or self._ownerships.all().keys() != owned.keys():
                return CommitResult(fenced=frozenset(encoded))
            if self._session.clock.monotonic() >= deadline:
                raise StoreUnavailable(
                    f"committing {len(encoded)} shards with {attachment.name} found no end within "
                    f"{self._session.answer_timeout_seconds:g} s"
                ) from failure

    def _send(
        self, owned: Mapping[str, Ownership], encoded: Mapping[str, bytes], attachment: Attachment
    ) -> None:
        transaction = self._session.client.transaction()
        for shard_id, ownership in owned.items():
            transaction.check(self._paths.owner(shard_id), 0)
            if shard_id in encoded:
                transaction.set_data(self._paths.shard(shard_id), encoded[shard_id], ownership.version)
            else:
                transaction.check(self._paths.shard(shard_id), ownership.version)
        self._attachments.add(transaction, attachment)
        self._ownerships.sending(encoded)
        self._session.committed(transaction.commit_async())
        self._ownerships.written({shard_id: owned[shard_id] for shard_id in encoded})
        self._attachments.written(attachment.name)

    def _check_size(
        self, owned: Mapping[str, Ownership], encoded: Mapping[str, bytes], attachment: Attachment
    ) -> None:
        shards = sum(
            operation_bytes(self._paths.shard(shard_id), encoded.get(shard_id, b"")) for shard_id in owned
        )
        attached = operation_bytes(self._paths.attachment(attachment.name), attachment.data)
        if shards + attached > self._max_bytes:
            raise CommitTooLarge(
                f"expected {self._max_bytes:,} bytes at most in the transaction that stores {attachment.name} "
                f"with the progress, got {attached:,} bytes of it and {shards:,} of {len(owned)} shards: for a "
                "topology's state use fewer tasks in stateful bolts, or fewer shards; smaller max_holes make "
                "checkpoints smaller"
            )
