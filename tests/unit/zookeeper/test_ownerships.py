"""What is given up while the connection is down is deleted at its return, and nothing of anybody else's is."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import pytest

from kinesis_spout.zookeeper.ownerships import Ownerships, ShardOwnership
from kinesis_spout.zookeeper.paths import Paths

if TYPE_CHECKING:
    from kinesis_spout.zookeeper.zookeeper_session import ZooKeeperSession

PATHS = Paths(root="root", app="billing", stream="orders")
SHARD = "shardId-000000000000"
SESSION, OURS, THEIRS = 7, 100, 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Stat:
    czxid: int
    version: int


class Request:
    """An answer that is there already, or a connection that is gone."""

    def __init__(self, value: Any, error: Exception | None) -> None:
        self.value = value
        self.exception = error

    def successful(self) -> bool:
        return self.exception is None

    def rawlink(self, call: Callable[[Any], None]) -> None:
        call(self)


@dataclass(slots=True)
class Client:
    """ZooKeeper as far as it is needed: nodes by path. It answers at once, in order."""

    nodes: dict[str, Stat] = field(default_factory=dict)
    error: Exception | None = None
    between: Callable[[], None] = lambda: None
    """Called after each question is answered: what happens until the next request."""

    def exists_async(self, path: str, watch: object = None) -> Request:
        del watch
        request = Request(self.nodes.get(path), self.error)
        self.between()
        return request

    def delete_async(self, path: str) -> Request:
        return Request(self.nodes.pop(path, None), self.error)

    def transaction(self) -> "Transaction":
        return Transaction(self)


class Transaction:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._checks: list[tuple[str, int]] = []
        self._deletions: list[str] = []

    def check(self, path: str, version: int) -> None:
        self._checks.append((path, version))

    def delete(self, path: str) -> None:
        self._deletions.append(path)

    def commit_async(self) -> None:
        nodes = self._client.nodes
        if all(nodes[path].version == version for path, version in self._checks):
            for path in self._deletions:
                del nodes[path]


class Session:
    silent_too_long = False

    def __init__(self) -> None:
        self.client = Client()

    def subscribe(self, observer: object) -> None:
        del observer


@pytest.fixture
def session() -> Session:
    session = Session()
    session.client.nodes = {
        PATHS.owner(SHARD): Stat(czxid=OURS, version=0),
        PATHS.shard(SHARD): Stat(czxid=1, version=3),
    }
    return session


@pytest.fixture
def ownerships(session: Session) -> Ownerships:
    """One shard was ours, and was given up; nobody knows whether its node is gone."""
    ownerships = Ownerships(cast("ZooKeeperSession", session), PATHS)
    ownerships.session_connected(SESSION)
    owned = ShardOwnership(epoch=2, version=3, owner_czxid=OURS, session_id=SESSION)
    assert ownerships.claim(SHARD, owned)
    ownerships.give_up([SHARD])
    return ownerships


def taken_by_another(session: Session) -> None:
    session.client.nodes[PATHS.owner(SHARD)] = Stat(czxid=THEIRS, version=0)
    session.client.nodes[PATHS.shard(SHARD)] = Stat(czxid=1, version=4)


def test_a_node_that_is_still_ours_is_deleted(session: Session, ownerships: Ownerships) -> None:
    ownerships.session_connected(SESSION)

    assert PATHS.owner(SHARD) not in session.client.nodes


def test_the_node_of_who_took_the_shard_since_stays(session: Session, ownerships: Ownerships) -> None:
    """The deletion took effect, its answer was lost, and a stand-by was quick."""
    taken_by_another(session)
    ownerships.session_connected(SESSION)

    assert session.client.nodes[PATHS.owner(SHARD)].czxid == THEIRS


def test_the_node_of_who_takes_the_shard_meanwhile_stays(session: Session, ownerships: Ownerships) -> None:
    answered = []

    def acquire_after_both() -> None:
        answered.append(1)
        if len(answered) == 2:
            taken_by_another(session)

    session.client.between = acquire_after_both
    ownerships.session_connected(SESSION)

    assert session.client.nodes[PATHS.owner(SHARD)].czxid == THEIRS


def test_a_connection_that_goes_again_leaves_the_deletion_for_the_next_one(
    session: Session, ownerships: Ownerships
) -> None:
    session.client.error = ConnectionError("gone again")
    ownerships.session_connected(SESSION)
    assert PATHS.owner(SHARD) in session.client.nodes
    session.client.error = None
    ownerships.session_connected(SESSION)

    assert PATHS.owner(SHARD) not in session.client.nodes
