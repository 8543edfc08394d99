"""The store of an application's progress: three ports over one session."""

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from kinesis_spout.ports import DEFAULT_SESSION_TIMEOUT_SECONDS
from kinesis_spout.zookeeper.credentials import Login, NodeAcls, Tls
from kinesis_spout.zookeeper.embedded_server import EmbeddedZooKeeper
from kinesis_spout.zookeeper.members.zookeeper_coordinator import ZooKeeperCoordinator, unique_member_name
from kinesis_spout.zookeeper.members.zookeeper_group import ZooKeeperGroup
from kinesis_spout.zookeeper.nodes import ChunkLimits
from kinesis_spout.zookeeper.ownerships import Ownerships
from kinesis_spout.zookeeper.paths import DEFAULT_ROOT, Paths
from kinesis_spout.zookeeper.progress.store import ZooKeeperCheckpointStore
from kinesis_spout.zookeeper.zookeeper_session import ZooKeeperSession

EMBEDDED_DIRECTORY: Final = ".kinesis-spout/zookeeper"
"""The default data directory of the embedded ZooKeeper."""


class ZooKeeperBackend:
    """Builds the three ports over a session, which it starts, and ends with ``close``.

    Args:
        session: not yet started, unless it is shared.
        member: the name of this process; made up if not given. Living processes never share one.
        shares_session: whether others use the session: ``close`` then does not end it.

    Raises:
        StoreUnavailable: no server answered in time.
    """

    def __init__(
        self,
        session: ZooKeeperSession,
        paths: Paths,
        *,
        member: str | None = None,
        limits: ChunkLimits | None = None,
        connect_timeout_seconds: float = 15.0,
        shares_session: bool = False,
    ) -> None:
        member = member or unique_member_name()
        ownerships = Ownerships(session, paths)
        self.store = ZooKeeperCheckpointStore(session, paths, ownerships, limits)
        self.group = ZooKeeperGroup(session, paths, member)
        self.coordinator = ZooKeeperCoordinator(
            session,
            paths,
            ownerships,
            self.store,
            member,
            freed=self.group.wake,
            shares_session=shares_session,
        )
        self.session = session
        self.paths = paths
        session.start(connect_timeout_seconds)

    def close(self) -> None:
        """Give up all shards and leave. Idempotent."""
        self.group.close()
        self.coordinator.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperSettings:
    """The store of one application's progress. Its repr shows no secrets."""

    app: str
    hosts: str | None
    """``host:port,host:port``, optionally with a chroot; None: the embedded server."""
    directory: str | None = None
    """The directory of the embedded server's data; None: ``EMBEDDED_DIRECTORY`` below the working directory."""
    root: str = DEFAULT_ROOT
    """The parent of the applications' nodes."""
    session_timeout_seconds: float = DEFAULT_SESSION_TIMEOUT_SECONDS
    login: Login | None = None
    tls: Tls | None = None
    acls: NodeAcls | None = None
    """The ACLs of new nodes; see ``ZooKeeperSession``."""

    @property
    def embedded_directory(self) -> Path:
        return Path(self.directory or EMBEDDED_DIRECTORY).resolve()

    def server(self, opened: ExitStack) -> EmbeddedZooKeeper | None:
        """Start the embedded server, which ``opened`` stops; None if there are hosts."""
        if self.hosts is not None:
            return None
        return opened.enter_context(EmbeddedZooKeeper(self.embedded_directory))

    def session(self, server: EmbeddedZooKeeper | None) -> ZooKeeperSession:
        """Return a session that is not yet started; ``server`` is what ``server`` returned."""
        hosts = server or self.hosts
        assert hosts is not None, "without hosts there is a server"
        return ZooKeeperSession(
            hosts,
            session_timeout_seconds=self.session_timeout_seconds,
            login=self.login,
            tls=self.tls,
            acls=self.acls,
        )

    def connect(self, stream: str, server: EmbeddedZooKeeper | None) -> ZooKeeperBackend:
        """Connect to the progress on one stream, by its name; ``close`` of the result ends the session.

        Raises as ``ZooKeeperSession.start``. ``server`` is what ``server`` returned.
        """
        session = self.session(server)
        try:
            return ZooKeeperBackend(session, self._paths(stream))
        except BaseException:
            session.close()
            raise

    def place(self, stream: str, session: ZooKeeperSession, member: str) -> ZooKeeperBackend:
        """Return the place of the progress on one stream, by its name, in a started shared session.

        ``close`` of the result does not end it. ``member`` names this process, on all streams.
        """
        return ZooKeeperBackend(session, self._paths(stream), member=member, shares_session=True)

    def _paths(self, stream: str) -> Paths:
        return Paths(root=self.root, app=self.app, stream=stream)
