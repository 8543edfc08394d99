"""The store, the coordinator and the group of one application on one stream, over one session."""

from types import TracebackType
from typing import Self

from kinesis_spout.zookeeper.members.coordinator import ZooKeeperCoordinator, unique_member_name
from kinesis_spout.zookeeper.members.group import ZooKeeperGroup
from kinesis_spout.zookeeper.ownerships import Ownerships
from kinesis_spout.zookeeper.progress.store import ZooKeeperCheckpointStore
from kinesis_spout.zookeeper.session import ZooKeeperSession
from kinesis_spout.zookeeper.tree.chunks import ChunkLimits
from kinesis_spout.zookeeper.tree.paths import Paths


class ZooKeeperBackend:
    """Builds the three ports over a session, which it starts, and ends with ``close``.

    Args:
        session: not yet started, unless it is shared.
        paths: which application on which stream.
        member: the name of this process; made up if not given. Two living processes never share one.
        limits: how large a transaction may be.
        shares_session: whether others use the session: ``close`` then ends this part of it only.

    Raises:
        StoreUnavailable: nobody answered in time.
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
        """Give everything up and leave. May be called twice."""
        self.group.close()
        self.coordinator.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
