"""An application's nodes: how they are made, read, and written many at a time.

A request larger than the server's ``jute.maxbuffer`` (1 MiB by default) makes it drop the connection. So many
operations are divided into transactions that ZooKeeper accepts.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from kazoo.exceptions import NoAuthError, NodeExistsError
from kazoo.security import ACL

from kinesis_spout.model.errors import CheckpointUnreadable, StoreError
from kinesis_spout.zookeeper.paths import Paths
from kinesis_spout.zookeeper.zookeeper_session import ZooKeeperSession
from shard_state import Checkpoint
from shard_state.errors import InvalidCheckpoint

T = TypeVar("T")

_OPERATION_OVERHEAD_BYTES: Final = 96
"""The bytes of an operation besides its data and two paths: headers, versions, the ACL of a create."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredShard:
    """A checkpoint node as read: at most one of the two, bytes and version, without the other."""

    data: bytes
    version: int


class Nodes:
    """Reads the nodes of one application on one stream. Every method may raise ``StoreUnavailable``."""

    def __init__(self, session: ZooKeeperSession, paths: Paths) -> None:
        self._session = session
        self._paths = paths

    def shard_ids(self) -> list[str]:
        """Return the shards with stored checkpoints, in order."""
        return self._session.children(self._paths.shards)

    def read_shards(self, shard_ids: Iterable[str]) -> dict[str, StoredShard]:
        return {
            shard_id: StoredShard(data=data, version=stat.version)
            for shard_id, (data, stat) in self.present(shard_ids, self._paths.shard).items()
        }

    def read_owned(self, shard_ids: Iterable[str]) -> dict[str, tuple[StoredShard | None, Any]]:
        """Read shards, each with the state of its owner node; the answers are not older than the question.

        The shards come first: an acquisition after that raises their versions, one before it shows in the owner.
        """
        client, paths = self._session.client, self._paths
        sync = client.sync_async(paths.base)
        shards = {shard_id: client.get_async(paths.shard(shard_id)) for shard_id in shard_ids}
        owners = {shard_id: client.exists_async(paths.owner(shard_id)) for shard_id in shards}
        self._session.answer(sync)
        read = {}
        for shard_id, request in shards.items():
            found = self._session.found(request)
            stored = None if found is None else StoredShard(data=found[0], version=found[1].version)
            read[shard_id] = stored, self._session.answer(owners[shard_id])
        return read

    def present(self, names: Iterable[str], path: Callable[[str], str]) -> dict[str, Any]:
        """Read many nodes at once; leave out those that do not exist."""
        requests = {name: self._session.client.get_async(path(name)) for name in names}
        found = {name: self._session.found(request) for name, request in requests.items()}
        return {name: value for name, value in found.items() if value is not None}

    def decode(self, shard_id: str, data: bytes) -> Checkpoint:
        try:
            return Checkpoint.decode(data)
        except InvalidCheckpoint as error:
            raise CheckpointUnreadable(
                f"the checkpoint of {shard_id} at {self._paths.shard(shard_id)} cannot be read: {error}"
            ) from error


def make_layout(session: ZooKeeperSession, paths: Paths) -> None:
    """Create what is missing of the application's place; may be repeated, and run in several processes."""
    make_shared(session, [paths.root_node])
    own = (
        paths.app_node,
        paths.base,
        paths.shards,
        paths.members,
        paths.owners,
        paths.paused,
        paths.operator_pauses,
        paths.attached,
        paths.leader,
        paths.assignment,
        paths.draining,
    )
    _make(session, own, session.acls.own)


def make_shared(session: ZooKeeperSession, nodes: Iterable[str]) -> None:
    """Create missing nodes that applications share, perhaps with other credentials; parents first."""
    _make(session, nodes, session.acls.shared)


def _make(session: ZooKeeperSession, nodes: Iterable[str], acl: Sequence[ACL]) -> None:
    # Looked for first: ZooKeeper refuses a client that may not create a node even where it exists.
    looks = [(node, session.client.exists_async(node)) for node in nodes]
    missing = [node for node, look in looks if not _is_seen(session, look)]
    requests = [session.client.create_async(node, b"", acl=list(acl)) for node in missing]
    for request in requests:
        try:
            session.answer(request)
        except NodeExistsError:
            continue


def _is_seen(session: ZooKeeperSession, look: Any) -> bool:
    try:
        return session.answer(look) is not None
    except StoreError as error:
        if isinstance(error.__cause__, NoAuthError):
            return False  # creating it will show whether it exists
        raise


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkLimits:
    """The limits of one transaction. A larger operation goes alone."""

    max_bytes: int = 512 * 1024
    max_writes: int = 2_000
    max_indivisible_bytes: int = 960 * 1024
    """The limit of a transaction that cannot be divided: the server's limit, less a margin for estimates."""


def chunked(items: Iterable[T], size_bytes: Callable[[T], int], limits: ChunkLimits) -> Iterator[list[T]]:
    """Yield the items in order, in lists within the limits; none is empty."""
    chunk: list[T] = []
    total = 0
    for item in items:
        size = size_bytes(item)
        if chunk and (total + size > limits.max_bytes or len(chunk) >= limits.max_writes):
            yield chunk
            chunk, total = [], 0
        chunk.append(item)
        total += size
    if chunk:
        yield chunk


def operation_bytes(path: str, data: bytes) -> int:
    """Return the most bytes that an operation takes in a transaction."""
    return len(data) + 2 * len(path) + _OPERATION_OVERHEAD_BYTES
