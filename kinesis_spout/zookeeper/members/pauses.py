"""What pauses: members whose breaker is open, and what an operator has paused.

A member shows a notice, which an operator removes to tell it to go on. A notice is ephemeral, so none outlives its
member; and what is gone because the session is, nobody took away. What an operator pauses is a node that outlives
every consumer: one for each shard, or one for all.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from kazoo.exceptions import NodeExistsError, NoNodeError

from kinesis_spout.zookeeper.nodes import Nodes
from kinesis_spout.zookeeper.paths import Paths, check_name
from kinesis_spout.zookeeper.session import ZooKeeperSession
from shard_state import OperatorPause

EVERYTHING: Final = "~all"
"""The node of the whole application; no shard can be called so."""


class PauseNotices:
    """The notice of one member, and an operator's view of all. Mutable; may raise ``StoreUnavailable``."""

    def __init__(self, session: ZooKeeperSession, paths: Paths, member: str) -> None:
        self._session = session
        self._client = session.client
        self._paths = paths
        self._nodes = Nodes(session, paths)
        self._path = paths.pause(member)
        self._shown: tuple[int, str] | None = None
        """In which session, and what."""

    def show(self, notice: str) -> bool:
        session_id = self._session.ready()
        stat = self._session.found(self._client.exists_async(self._path))
        shown, data = self._shown, notice.encode()
        if stat is None:
            self._shown = None
            if shown is not None and shown[0] == session_id:
                return True
            self._create(data)
        elif stat.ephemeralOwner != session_id:
            # Of an older session of ours, which has not ended yet.
            self._session.delete(self._path)
            self._create(data)
        elif shown != (session_id, notice):
            self._session.found(self._client.set_async(self._path, data))
        self._shown = session_id, notice
        return False

    def _create(self, data: bytes) -> None:
        try:
            self._session.answer(self._client.create_async(self._path, data, ephemeral=True))
        except NodeExistsError:
            return  # of a request whose answer was lost
        except NoNodeError:
            # The application is from a version that had no notices.
            self._session.answer(self._client.ensure_path_async(self._paths.paused))
            self._session.answer(self._client.create_async(self._path, data, ephemeral=True))

    def end(self) -> None:
        if self._shown is not None:
            self._session.delete(self._path)
            self._shown = None

    def all(self) -> Mapping[str, str]:
        self._session.ready()
        found = self._nodes.present(self._session.children(self._paths.paused), self._paths.pause)
        return {member: data.decode() for member, (data, _) in found.items()}

    def take_away(self) -> list[str]:
        members = list(self.all())
        for member in members:
            self._session.delete(self._paths.pause(member))
        return members


class OperatorPauses:
    """Begins and ends an operator's pauses of one application. May raise ``StoreUnavailable``."""

    def __init__(self, session: ZooKeeperSession, paths: Paths) -> None:
        self._session = session
        self._client = session.client
        self._paths = paths

    def begin(self, shard_id: str | None) -> None:
        self._session.ready()
        path = self._path(shard_id)
        with suppress(NodeExistsError):
            try:
                self._session.answer(self._client.create_async(path, b""))
            except NoNodeError:
                # The application is from a version that had no such pauses.
                self._session.answer(self._client.ensure_path_async(self._paths.operator_pauses))
                self._session.answer(self._client.create_async(path, b""))

    def end(self, shard_id: str | None) -> OperatorPause:
        self._session.ready()
        names = [shard_id] if shard_id is not None else self._session.children(self._paths.operator_pauses)
        ended = []
        for name in names:
            with suppress(NoNodeError):
                self._session.answer(
                    self._client.delete_async(self._paths.operator_pause(check_name("shard_id", name)))
                )
                ended.append(name)
        return operator_pause_of(ended)

    def _path(self, shard_id: str | None) -> str:
        name = EVERYTHING if shard_id is None else check_name("shard_id", shard_id)
        return self._paths.operator_pause(name)


def operator_pause_of(names: list[str]) -> OperatorPause:
    """Read the names of nodes."""
    return OperatorPause(everything=EVERYTHING in names, shards=frozenset(names) - {EVERYTHING})
