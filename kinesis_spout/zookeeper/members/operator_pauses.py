"""What an operator has paused, as nodes that outlive every consumer: one for each shard, or one for all."""

from contextlib import suppress
from typing import Final

from kazoo.exceptions import NodeExistsError, NoNodeError

from kinesis_spout.zookeeper.session import ZooKeeperSession
from kinesis_spout.zookeeper.tree.paths import Paths, check_name
from shard_state import OperatorPause

EVERYTHING: Final = "~all"
"""The node of the whole application; no shard can be called so."""


class OperatorPauses:
    """Begins and ends an operator's pauses of one application. May raise ``StoreUnavailable``."""

    def __init__(self, session: ZooKeeperSession, paths: Paths) -> None:
        self._session = session
        self._client = session.client
        self._paths = paths

    def begin(self, shard_id: str | None) -> None:
        self._session.await_connection(self._session.deadline())
        path = self._path(shard_id)
        with suppress(NodeExistsError):
            try:
                self._session.answer(self._client.create_async(path, b""))
            except NoNodeError:
                # The application is from a version that had no such pauses.
                self._session.answer(self._client.ensure_path_async(self._paths.operator_pauses))
                self._session.answer(self._client.create_async(path, b""))

    def end(self, shard_id: str | None) -> OperatorPause:
        self._session.await_connection(self._session.deadline())
        names = [shard_id] if shard_id is not None else self._names()
        ended = []
        for name in names:
            with suppress(NoNodeError):
                self._session.answer(
                    self._client.delete_async(self._paths.operator_pause(check_name("shard_id", name)))
                )
                ended.append(name)
        return operator_pause_of(ended)

    def _names(self) -> list[str]:
        try:
            return sorted(self._session.answer(self._client.get_children_async(self._paths.operator_pauses)))
        except NoNodeError:
            return []

    def _path(self, shard_id: str | None) -> str:
        name = EVERYTHING if shard_id is None else check_name("shard_id", shard_id)
        return self._paths.operator_pause(name)


def operator_pause_of(names: list[str]) -> OperatorPause:
    """Read the names of nodes."""
    return OperatorPause(everything=EVERYTHING in names, shards=frozenset(names) - {EVERYTHING})
