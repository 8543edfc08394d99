"""The port ``CheckpointStore`` in memory: conditional writes under the fence, and what operators look at."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

from kinesis_spout.model.errors import CheckpointUnreadable, CommitTooLarge, StoreError
from kinesis_spout.ports import Attachment, CheckpointWrite, CommitResult
from kinesis_spout.testing.zookeeper.coordinator import InMemoryCoordinator
from kinesis_spout.testing.zookeeper.nodes import InMemoryNodes, StoreFault
from kinesis_spout.zookeeper.nodes import ChunkLimits
from kinesis_spout.zookeeper.progress.application import Application, check_named, refuse_latest
from shard_state import Checkpoint, Shard, StartPositions
from shard_state.errors import InvalidCheckpoint

_MAX_ATTACHED_BYTES: Final = ChunkLimits().max_indivisible_bytes


class InMemoryCheckpointStore:
    """The port ``CheckpointStore``, for one process of an ``InMemoryZooKeeper``."""

    def __init__(self, zookeeper: InMemoryNodes, coordinator: InMemoryCoordinator) -> None:
        self._zookeeper = zookeeper
        self._coordinator = coordinator
        self._attached: dict[str, int | None] = {}
        """The version of each attachment as it was read or written here."""

    def open(
        self, stream_created: float, start: StartPositions, shards: Collection[Shard], *, arn: str = ""
    ) -> StartPositions:
        refuse_latest(start)
        zookeeper = self._zookeeper
        with zookeeper.lock:
            zookeeper.next_fault()  # lost or not, what was begun is found by looking again
            if zookeeper.begun is not None:
                mark = self._coordinator.mark = zookeeper.mark()
                assert mark is not None, "it has begun"
                mark.check_stream(stream_created, "the in-memory ZooKeeper", arn)
                return mark.start
            for shard_id in zookeeper.shards:
                if zookeeper.decode(shard_id).epoch != 0:
                    raise CheckpointUnreadable(f"the mark is missing although {shard_id} has been owned")
            check_named(start, shards)
            self._begin(start, shards, {shard.shard_id: 0 for shard in shards})
            zookeeper.begun, zookeeper.stream_arn = (stream_created, start), arn
            self._coordinator.mark = zookeeper.mark()
            return start

    def begin_again(
        self, deployment: str, start: StartPositions, shards: Collection[Shard]
    ) -> StartPositions | None:
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
                self._begin(start, shards, epochs)
                zookeeper.begun = (mark.stream_created, start)
                zookeeper.deployments = mark.begins_again(deployment, start).deployments
            self._coordinator.mark = zookeeper.mark()
            return None if deployment in mark.deployments else mark.start

    def _begin(self, start: StartPositions, shards: Collection[Shard], epochs: Mapping[str, int]) -> None:
        zookeeper = self._zookeeper
        for shard_id in zookeeper.shards.keys() - epochs.keys():
            del zookeeper.shards[shard_id]
        zookeeper.empty_attached()
        for shard in shards:
            fresh = Checkpoint.beginning_at(
                start.of_shard(shard.shard_id), parents=shard.parents, epoch=epochs[shard.shard_id]
            )
            zookeeper.put(shard.shard_id, fresh.encode())

    def load(self) -> Mapping[str, Checkpoint]:
        with self._zookeeper.answering():
            self._zookeeper.check_mark(self._coordinator.mark)
            return {shard_id: self._zookeeper.decode(shard_id) for shard_id in self._zookeeper.shards}

    def check_begun(self) -> None:
        with self._zookeeper.answering():
            self._zookeeper.check_mark(self._coordinator.mark)

    def attached(self, name: str) -> bytes | None:
        self.check_begun()
        with self._zookeeper.lock:
            node = self._zookeeper.attached.get(name)
            self._attached[name] = None if node is None else node.version
            return node.data or None if node is not None else None

    def commit(self, writes: Sequence[CheckpointWrite], attachment: Attachment | None = None) -> CommitResult:
        """Store the writes under the fence. The later of two for one shard counts."""
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
        zookeeper = self._zookeeper
        with zookeeper.lock:
            zookeeper.next_fault()
            zookeeper.refuse_while_alive()
            zookeeper.empty_attached()
            for shard_id, checkpoint in checkpoints.items():
                zookeeper.put(shard_id, replace(checkpoint, epoch=self._next_epoch(shard_id)).encode())

    def forget(self) -> None:
        zookeeper = self._zookeeper
        with zookeeper.lock:
            zookeeper.next_fault()
            zookeeper.refuse_while_alive()
            if zookeeper.begun is None and not zookeeper.shards:
                raise StoreError("this application has not begun; there is nothing to forget")
            zookeeper.forget()

    # -- what operators look at

    def read_application(self) -> Application | None:
        """Say what the application began with, or None when it has not begun."""
        with self._zookeeper.answering():
            return self._zookeeper.mark()

    def shard_ids(self) -> list[str]:
        with self._zookeeper.answering():
            return sorted(self._zookeeper.shards)

    def read_shards(self) -> dict[str, tuple[Checkpoint | CheckpointUnreadable, float]]:
        with self._zookeeper.answering():
            return {
                shard_id: (self._readable(shard_id), node.at)
                for shard_id, node in sorted(self._zookeeper.shards.items())
            }

    def _readable(self, shard_id: str) -> Checkpoint | CheckpointUnreadable:
        try:
            return self._zookeeper.decode(shard_id)
        except CheckpointUnreadable as error:
            return error

    def owners(self) -> Mapping[str, str]:
        with self._zookeeper.answering():
            return {shard_id: owner.member for shard_id, owner in self._zookeeper.owners.items()}

    def _next_epoch(self, shard_id: str) -> int:
        node = self._zookeeper.shards.get(shard_id)
        if node is None:
            return 1
        try:
            return Checkpoint.decode(node.data).epoch + 1
        except InvalidCheckpoint:
            return node.version + 2
