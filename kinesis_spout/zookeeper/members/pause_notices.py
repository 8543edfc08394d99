"""The notices of members that pause. An operator removes a notice to make its member resume.

A notice is ephemeral, so none outlives its member; one that went with its session was not removed by an operator.
"""

from collections.abc import Mapping

from kazoo.exceptions import NodeExistsError, NoNodeError

from kinesis_spout.zookeeper.nodes import Nodes
from kinesis_spout.zookeeper.paths import Paths
from kinesis_spout.zookeeper.zookeeper_session import ZooKeeperSession


class PauseNotices:
    """The notice of one member, and an operator's view of all. Mutable; may raise ``StoreUnavailable``."""

    def __init__(self, session: ZooKeeperSession, paths: Paths, member: str) -> None:
        self._session = session
        self._client = session.client
        self._paths = paths
        self._nodes = Nodes(session, paths)
        self._path = paths.pause(member)
        self._shown: tuple[int, str] | None = None
        """Its session, and its text."""

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
            # The application is from a version without notices.
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
