"""Checkpoints in ZooKeeper, written under the fence that ``ownerships`` explains.

One rule resolves every write that did not plainly succeed (refused, or without an answer): read the nodes
again (after a ``sync``, so that the answer is not older than the question).

    our exact bytes, one version further     it took effect
    the version as it was, our owner node    it did not: send it again
    anything else                            a newer owner has been here: fenced

A commit with an attachment is one transaction, which is stored as a whole or not at all. Besides the fences of its
writes it depends on every other shard that this session owns, and on the version of the attachment that this
process has read. The attachment tells whether it took effect, because it is in every such transaction; the shards
tell which of them is lost.

A ZooKeeper may lose its data while a consumer runs. The consumer then sees a new session that finds nothing,
as on a first start, and beginning again would silently skip or repeat records. So this process remembers the
mark that it began with, and whatever reads progress first makes sure that the mark still exists.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError, NotEmptyError

from kinesis_spout.model.errors import CheckpointUnreadable, CommitTooLarge, ConsumerAlive, StoreUnavailable
from kinesis_spout.ports import Attachment, CheckpointWrite, CommitResult
from kinesis_spout.zookeeper.nodes import ChunkLimits, Nodes, chunked, make_layout, operation_bytes
from kinesis_spout.zookeeper.ownerships import Ownerships, ShardOwnership
from kinesis_spout.zookeeper.paths import Paths
from kinesis_spout.zookeeper.progress.application import (
    Application,
    check_named,
    progress_lost,
    refuse_latest,
)
from kinesis_spout.zookeeper.progress.application_lifecycle import ProgressLifecycle
from kinesis_spout.zookeeper.progress.attachments import Attachments, WriteOutcome
from kinesis_spout.zookeeper.zookeeper_session import ZooKeeperSession
from shard_state import Checkpoint, Shard, StartPositions

_PAUSE_SECONDS = 0.05
"""Before looking again at something that another process is just changing."""


class ZooKeeperCheckpointStore:
    """The port ``CheckpointStore`` on ZooKeeper.

    Get it from ``ZooKeeperBackend``, which gives the coordinator the same session and ownerships.
    """

    def __init__(
        self,
        session: ZooKeeperSession,
        paths: Paths,
        ownerships: Ownerships,
        limits: ChunkLimits | None = None,
    ) -> None:
        self._session = session
        self._client = session.client
        self._paths = paths
        self._ownerships = ownerships
        self._limits = limits or ChunkLimits()
        self._nodes = Nodes(session, paths)
        self._lifecycle = ProgressLifecycle(session, paths, self._nodes, self._limits)
        self._attachments = Attachments(session, paths)
        self._mark: bytes | None = None
        """As ``open`` found or made it."""

    # -- beginning

    def open(
        self, stream_created: float, start: StartPositions, shards: Collection[Shard], *, arn: str = ""
    ) -> StartPositions:
        refuse_latest(start)
        deadline = self._session.deadline()
        self._session.await_connection(deadline)
        make_layout(self._session, self._paths)
        while True:
            data, stat = self._session.answer(self._client.get_async(self._paths.base))
            application = Application(stream_created=stream_created, stream_arn=arn, start=start)
            if data:
                application = Application.decode(data, self._paths.base)
                application.check_stream(stream_created, self._paths.base, arn)
                if application.begun:
                    self._mark = data
                    return application.start
                if application.start == start:
                    application = replace(application, start=start)  # the mark has no ``since``
            else:
                check_named(start, shards)
            try:
                self._lifecycle.begin(application, shards, stat.version)
            except (BadVersionError, NodeExistsError, NoNodeError) as error:
                if self._session.clock.monotonic() >= deadline:
                    raise StoreUnavailable(
                        f"{self._paths.base}: other processes kept beginning this application"
                    ) from error
                self._session.clock.sleep(_PAUSE_SECONDS)

    def begin_again(
        self, deployment: str, start: StartPositions, shards: Collection[Shard]
    ) -> StartPositions | None:
        """Begin again at ``start``, once for each deployment."""
        refuse_latest(start)
        deadline = self._session.deadline()
        self._session.await_connection(deadline)
        while True:
            data, stat = self._session.answer(self._client.get_async(self._paths.base))
            mark = Application.decode(data, self._paths.base)
            if deployment in mark.deployments:
                self.open(mark.stream_created, start, shards)
                return None
            check_named(start, shards)
            try:
                self._lifecycle.claim_again(mark.begins_again(deployment, start), stat.version)
            except (BadVersionError, NoNodeError):
                pass  # another process has begun again, or does so now
            except NotEmptyError as error:
                if self._session.clock.monotonic() >= deadline:
                    members = self._session.children(self._paths.members)
                    raise ConsumerAlive(
                        f"{self._paths.base}: expected no living consumer when deployment {deployment!r} begins "
                        f"again at {start}, found {', '.join(members)}: stop those of the older "
                        "deployment first; one that was killed counts until its session has ended"
                    ) from error
                self._session.clock.sleep(_PAUSE_SECONDS)
            else:
                self.open(mark.stream_created, start, shards)
                return mark.start

    # -- reading

    def read_application(self) -> Application | None:
        """Return what the application began with; None when it has not begun."""
        self._session.ready()
        found = self._session.found(self._client.get_async(self._paths.base))
        return Application.decode(found[0], self._paths.base) if found and found[0] else None

    def ask_for_mark(self) -> Any:
        """Send the question whose answer ``mark_version`` judges."""
        return self._client.get_async(self._paths.base)

    def mark_version(self, asked: Any) -> int | None:
        """Make sure that the mark is the one that ``open`` found or made; else raise ``ProgressLost``.

        Returns the version of its node, for transactions that depend on it; None if ``open`` was not called.
        """
        found = self._session.found(asked)
        if self._mark is None:
            return None
        if found is None or found[0] != self._mark:
            # A new session may have come to a server that is behind: its answer after a sync counts.
            self._session.answer(self._client.sync_async(self._paths.base))
            found = self._session.found(self.ask_for_mark())
        if found is None or found[0] != self._mark:
            raise progress_lost(self._paths.base, self._mark, found and found[0])
        return int(found[1].version)

    def load(self) -> Mapping[str, Checkpoint]:
        self.check_begun()
        return {
            shard_id: self._nodes.decode(shard_id, shard.data)
            for shard_id, shard in self._nodes.read_shards(self._nodes.shard_ids()).items()
        }

    def check_begun(self) -> None:
        self._session.ready()
        self.mark_version(self.ask_for_mark())

    def shard_ids(self) -> list[str]:
        self._session.ready()
        return self._nodes.shard_ids()

    def read_shards(self) -> dict[str, tuple[Checkpoint | CheckpointUnreadable, float]]:
        self._session.ready()
        found = self._nodes.present(self._nodes.shard_ids(), self._paths.shard)
        return {
            shard_id: (self._readable(shard_id, data), stat.last_modified)
            for shard_id, (data, stat) in found.items()
        }

    def _readable(self, shard_id: str, data: bytes) -> Checkpoint | CheckpointUnreadable:
        try:
            return self._nodes.decode(shard_id, data)
        except CheckpointUnreadable as error:
            return error

    def read_shard(self, shard_id: str) -> tuple[Checkpoint, int] | None:
        """Return one shard's checkpoint and the version of its node; None if nothing is stored."""
        shard = self._nodes.read_shards([shard_id]).get(shard_id)
        return None if shard is None else (self._nodes.decode(shard_id, shard.data), shard.version)

    def owners(self) -> Mapping[str, str]:
        self._session.ready()
        nodes = self._nodes.present(self._session.children(self._paths.owners), self._paths.owner)
        return {shard_id: data.decode() for shard_id, (data, _) in nodes.items()}

    def attached(self, name: str) -> bytes | None:
        self.check_begun()
        return self._attachments.read(name)

    # -- committing

    def commit(self, writes: Sequence[CheckpointWrite], attachment: Attachment | None = None) -> CommitResult:
        """Store the writes under the fence. The later of two for one shard counts."""
        deadline = self._session.deadline()
        self._ownerships.notice_silence()
        self._session.await_connection(deadline)
        self._resolve(self._ownerships.in_doubt())

        fenced: set[str] = set()
        pending: dict[str, bytes] = {}
        for write in writes:
            owned = self._ownerships.get(write.shard_id)
            if owned is None or owned.epoch != write.checkpoint.epoch:
                fenced.add(write.shard_id)
            else:
                pending[write.shard_id] = write.checkpoint.encode()
        if attachment is not None:
            if fenced:
                return CommitResult(fenced=frozenset(fenced | pending.keys()))
            return self._commit_whole(pending, attachment, deadline)
        committed: set[str] = set()
        for chunk in chunked(
            pending.items(), lambda item: operation_bytes(self._paths.shard(item[0]), item[1]), self._limits
        ):
            committed |= self._commit_chunk(dict(chunk), deadline)
        return CommitResult(
            committed=frozenset(committed), fenced=frozenset(fenced | (pending.keys() - committed))
        )

    def _commit_chunk(self, pending: dict[str, bytes], deadline: float) -> set[str]:
        """Write until nothing is left that could still succeed; returns the shards that were written."""
        committed: set[str] = set()
        while True:
            current = {shard_id: self._ownerships.get(shard_id) for shard_id in pending}
            owned = {shard_id: ownership for shard_id, ownership in current.items() if ownership is not None}
            if not owned:
                return committed
            try:
                self._send(owned, pending)
            except (NoNodeError, BadVersionError) as refused:
                failure: Exception = refused
            except StoreUnavailable as unknown:
                self._session.await_connection(deadline)
                failure = unknown
            else:
                return committed | owned.keys()
            committed |= self._resolve(
                {shard_id: replace(owned[shard_id], in_doubt=pending[shard_id]) for shard_id in owned}
            )
            pending = {shard_id: pending[shard_id] for shard_id in owned if shard_id not in committed}
            if pending:
                self._check_deadline(deadline, f"{len(pending)} shards", failure)

    def _commit_whole(
        self, pending: Mapping[str, bytes], attachment: Attachment, deadline: float
    ) -> CommitResult:
        """Store checkpoints, whose shards were owned a moment ago, and the attachment: all or nothing.

        If it raises, the next commit finds out what took effect.
        """
        self._attachments.resolve(attachment.name)  # of an earlier commit
        while True:
            owned = self._ownerships.all()
            if not owned or pending.keys() - owned.keys():
                return CommitResult(fenced=frozenset(pending))
            self._check_size(owned, pending, attachment)
            try:
                self._send(owned, pending, attachment)
            except (NoNodeError, BadVersionError, NodeExistsError) as refused:
                failure: Exception = refused
            except StoreUnavailable as unknown:
                self._session.await_connection(deadline)
                failure = unknown
            else:
                return CommitResult(committed=frozenset(pending), attached=True)
            outcome = self._attachments.resolve(attachment.name)
            self._resolve(
                {shard_id: replace(each, in_doubt=pending.get(shard_id)) for shard_id, each in owned.items()}
            )
            if outcome is WriteOutcome.APPLIED:
                return CommitResult(committed=frozenset(pending), attached=True)
            if outcome is WriteOutcome.REPLACED or self._ownerships.all().keys() != owned.keys():
                return CommitResult(fenced=frozenset(pending))
            self._check_deadline(deadline, f"{len(pending)} shards and {attachment.name}", failure)

    def _check_size(
        self, owned: Mapping[str, ShardOwnership], encoded: Mapping[str, bytes], attachment: Attachment
    ) -> None:
        shards = sum(
            operation_bytes(self._paths.shard(shard_id), encoded.get(shard_id, b"")) for shard_id in owned
        )
        attached = operation_bytes(self._paths.attachment(attachment.name), attachment.data)
        most = self._limits.max_indivisible_bytes
        if shards + attached > most:
            raise CommitTooLarge(
                f"expected {most:,} bytes at most in the transaction that stores {attachment.name} "
                f"with the progress, got {attached:,} bytes of it and {shards:,} of {len(owned)} shards: for a "
                "topology's state use fewer tasks in stateful bolts, or fewer shards; smaller max_holes make "
                "checkpoints smaller"
            )

    def _check_deadline(self, deadline: float, what: str, failure: Exception) -> None:
        if self._session.clock.monotonic() >= deadline:
            raise StoreUnavailable(
                f"{what} could not be committed within {self._session.answer_timeout_seconds:g} s"
            ) from failure

    def _send(
        self,
        owned: Mapping[str, ShardOwnership],
        encoded: Mapping[str, bytes],
        attachment: Attachment | None = None,
    ) -> None:
        """Write checkpoints of owned shards in one transaction, which all of these shards must still allow."""
        transaction = self._client.transaction()
        for shard_id, ownership in owned.items():
            transaction.check(self._paths.owner(shard_id), 0)
            if shard_id in encoded:
                transaction.set_data(self._paths.shard(shard_id), encoded[shard_id], ownership.version)
            else:
                transaction.check(self._paths.shard(shard_id), ownership.version)
        if attachment is not None:
            self._attachments.add(transaction, attachment)
        written = {shard_id: each for shard_id, each in owned.items() if shard_id in encoded}
        self._ownerships.sending({shard_id: encoded[shard_id] for shard_id in written})
        self._session.committed(transaction.commit_async())
        self._ownerships.written(written)
        if attachment is not None:
            self._attachments.written(attachment.name)

    def _resolve(self, doubtful: Mapping[str, ShardOwnership]) -> set[str]:
        """Find the outcomes of the writes in doubt; returns the shards whose write took effect.

        The read is queued behind the write, in the same session, so no write in doubt can follow it. If the
        read fails they are still in doubt, and the next commit asks again.
        """
        if not doubtful:
            return set()
        read = self._nodes.read_owned(doubtful)
        applied: dict[str, ShardOwnership] = {}
        not_applied: dict[str, ShardOwnership] = {}
        lost: dict[str, ShardOwnership] = {}
        for shard_id, owned in doubtful.items():
            stored, owner = read[shard_id]
            still_owner = owner is not None and owner.czxid == owned.owner_czxid
            version = None if stored is None else stored.version
            if version == owned.version + 1 and stored is not None and stored.data == owned.in_doubt:
                applied[shard_id] = owned
                if not still_owner:
                    lost[shard_id] = owned
            elif version == owned.version and still_owner:
                not_applied[shard_id] = owned
            else:
                lost[shard_id] = owned
                if still_owner:  # another process wrote without owning: let go, so that any may acquire
                    self._client.delete_async(self._paths.owner(shard_id))
        self._ownerships.written(applied)
        self._ownerships.not_written(not_applied)
        for shard_id, owned in lost.items():
            self._ownerships.lose(shard_id, owned.owner_czxid)
        return set(applied)

    # -- operators

    def reset(self, checkpoints: Mapping[str, Checkpoint]) -> None:
        self._lifecycle.reset(checkpoints)

    def forget(self) -> None:
        self._lifecycle.forget()
