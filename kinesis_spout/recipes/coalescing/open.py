"""Where processes coalesce through ZooKeeper."""

from contextlib import ExitStack
from typing import Unpack

from kinesis_spout.recipes.coalescing.processes import ZooKeeperQueueCoordinator
from kinesis_spout.recipes.coalescing.turn import Unhandled, log_unhandled
from kinesis_spout.settings import ZooKeeperKeywords
from kinesis_spout.settings.zookeeper.session import started_session
from kinesis_spout.zookeeper.tree.paths import coalescing_place


def coalesce_across(
    name: str,
    *,
    lease_seconds: float = 60.0,
    max_payload_bytes: int = 64 * 1024,
    unhandled: Unhandled = log_unhandled,
    **zookeeper: Unpack[ZooKeeperKeywords],
) -> ZooKeeperQueueCoordinator:
    """Connect to ZooKeeper to coalesce there, with all processes that give the same name. Close it in the end.

    Args:
        name: of the work: keys of another name are other keys.
        lease_seconds: how long one that waits gives the one that works between two signs of life.
        max_payload_bytes: the largest payload, at most 512 KiB.
        unhandled: is given a key, and the payload of it that nobody is there for; see ``QueueCoordinator``.
        zookeeper: where that is and who we are there: ``zookeeper``, ``session_timeout_seconds``, and the
            settings of ``SpoutConfig`` whose names begin with ``zookeeper_``. The turn of a process that was
            killed passes on after the session time-out.

    Raises:
        InvalidConfig: an argument is not what it must be.
        StoreUnavailable, StoreError: no ZooKeeper answers, it refuses us, or the embedded one does not start.
    """
    with ExitStack() as opened:
        root, session = started_session(name, zookeeper, opened)
        return ZooKeeperQueueCoordinator(
            coalescing_place(root, name),
            session,
            lease_seconds=lease_seconds,
            max_payload_bytes=max_payload_bytes,
            unhandled=unhandled,
            close=opened.pop_all().close,
        )
