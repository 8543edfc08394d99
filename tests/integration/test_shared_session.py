"""Several streams of one application in one session with the real ZooKeeper."""

from collections.abc import Iterator

import pytest

from kinesis_spout.zookeeper import (
    EmbeddedZooKeeper,
    Paths,
    ZooKeeperBackend,
    ZooKeeperSession,
    begun_streams,
)
from shard_state import Checkpoint, Position, Shard
from tests.support.core.shards import everywhere
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.no_second_run, pytest.mark.zookeeper]

SHARD = Shard(shard_id="shardId-000000000000")
FRESH = Checkpoint(start=Position.trim_horizon())


@pytest.fixture
def session(zookeeper_server: EmbeddedZooKeeper) -> Iterator[ZooKeeperSession]:
    session = ZooKeeperSession(zookeeper_server.connect_string, session_timeout_seconds=20.0)
    session.start()
    yield session
    session.close()


def begun(session: ZooKeeperSession, root: str, stream: str) -> ZooKeeperBackend:
    """Give the place of a stream on which the application has begun, with a member that owns its shard."""
    backend = ZooKeeperBackend(
        session, Paths(root=root, app="billing", stream=stream), member="one", shares_session=True
    )
    backend.store.open(1_000.0, everywhere(Position.trim_horizon()), [SHARD])
    backend.coordinator.join()
    assert backend.coordinator.acquire(SHARD.shard_id, FRESH) is not None
    backend.group.take_part(lambda: None)
    wait_until(backend.group.leads, f"one leads on {stream}")
    return backend


def test_a_stream_that_ends_leaves_nothing_of_its_own_and_all_of_the_others(
    session: ZooKeeperSession, fresh_root: str
) -> None:
    orders, refunds = (begun(session, fresh_root, stream) for stream in ("orders", "refunds"))
    refunds.close()
    left = refunds.paths
    for path in (left.members, left.owners, f"{left.leader}/queue"):
        wait_until(lambda path=path: not session.client.get_children(path), f"{path} is empty")  # type: ignore[misc]
    assert orders.coordinator.members() == ["one"]
    assert session.client.get_children(orders.paths.owners) == [SHARD.shard_id]
    assert orders.group.leads()
    again = begun(session, fresh_root, "refunds")
    again.close()
    orders.close()


def test_the_session_tells_when_the_application_began_and_on_which_streams(
    session: ZooKeeperSession, fresh_root: str
) -> None:
    assert begun_streams(session, fresh_root, "billing") == (None, frozenset())
    backends = [begun(session, fresh_root, stream) for stream in ("orders", "refunds")]
    began, streams = begun_streams(session, fresh_root, "billing")
    assert streams == {"orders", "refunds"}
    assert began is not None
    assert abs(began - session.clock.time()) < 600
    for backend in backends:
        backend.close()


def test_a_member_whose_older_session_outlives_it_is_a_member_again_when_that_has_ended(
    session: ZooKeeperSession, zookeeper_server: EmbeddedZooKeeper, fresh_root: str
) -> None:
    """As after a long outage: the server is back with the old session, which it ends a while later."""
    orders = begun(session, fresh_root, "orders")
    member = orders.paths.member("one")
    older = ZooKeeperSession(zookeeper_server.connect_string, session_timeout_seconds=20.0)
    older.start()
    session.client.delete(member)
    older.client.create(member, b"", ephemeral=True)
    session_id = session.session_id
    assert session_id is not None
    orders.coordinator.session_connected(session_id)
    wait_until(lambda: bool(session.client._data_watchers.get(member)), "the node is watched")
    older.close()
    wait_until(
        lambda: (stat := session.client.exists(member)) is not None and stat.ephemeralOwner == session_id,
        "its own session has the node",
    )
    orders.close()
