"""Reads an application's nodes; one that does not exist is an answer, no error."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from kazoo.exceptions import NoNodeError

from kinesis_spout.model.errors import CheckpointUnreadable
from kinesis_spout.zookeeper.session import ZooKeeperSession
from kinesis_spout.zookeeper.tree.paths import Paths
from shard_state import Checkpoint
from shard_state.errors import InvalidCheckpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredShard:
    """A checkpoint node as read: at most one of the two, bytes and version, without the other."""

    data: bytes
    version: int


class Nodes:
    """The nodes of one application on one stream. Every method may raise ``StoreUnavailable``."""

    def __init__(self, session: ZooKeeperSession, paths: Paths) -> None:
        self._session = session
        self._client = session.client
        self._paths = paths

    def shard_ids(self) -> list[str]:
        """Name the shards that something is stored of, in no order."""
        return self.children(self._paths.shards)

    def children(self, path: str) -> list[str]:
        """Name a node's children, in no order."""
        try:
            return list(self._session.answer(self._client.get_children_async(path)))
        except NoNodeError:
            return []

    def read_shards(self, shard_ids: Iterable[str]) -> dict[str, StoredShard]:
        """Read the checkpoint nodes of these shards; leave out those that do not exist."""
        nodes = self.present(shard_ids, self._paths.shard, self._client.get_async)
        return {
            shard_id: StoredShard(data=data, version=stat.version) for shard_id, (data, stat) in nodes.items()
        }

    def present(
        self, names: Iterable[str], path: Callable[[str], str], ask: Callable[[str], Any]
    ) -> dict[str, Any]:
        """Ask about many nodes at once; leave out those that do not exist."""
        requests = {name: ask(path(name)) for name in names}
        found = {name: self.found(request) for name, request in requests.items()}
        return {name: value for name, value in found.items() if value is not None}

    def found(self, request: Any) -> Any:
        """Give the answer to a request, or None where the node does not exist."""
        try:
            return self._session.answer(request)
        except NoNodeError:
            return None

    def decode(self, shard_id: str, data: bytes) -> Checkpoint:
        """Read a stored checkpoint.

        Raises:
            CheckpointUnreadable: names the shard and its node.
        """
        try:
            return Checkpoint.decode(data)
        except InvalidCheckpoint as error:
            raise CheckpointUnreadable(
                f"the checkpoint of {shard_id} at {self._paths.shard(shard_id)} cannot be read: {error}"
            ) from error
