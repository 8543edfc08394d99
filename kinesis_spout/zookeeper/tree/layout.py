"""Makes the nodes that everything else hangs below."""

from collections.abc import Iterable, Sequence
from typing import Any

from kazoo.exceptions import NoAuthError, NodeExistsError
from kazoo.security import ACL

from kinesis_spout.model.errors import StoreError
from kinesis_spout.zookeeper.session import ZooKeeperSession
from kinesis_spout.zookeeper.tree.paths import Paths


def make_layout(session: ZooKeeperSession, paths: Paths) -> None:
    """Create what is missing of the application's place; may be repeated, and done by several at once.

    Raises:
        StoreError: ZooKeeper does not let us.
        StoreUnavailable: retriable.
    """
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
    """Create what is missing of nodes that applications share, maybe with other credentials; parents first."""
    _make(session, nodes, session.acls.shared)


def _make(session: ZooKeeperSession, nodes: Iterable[str], acl: Sequence[ACL]) -> None:
    # Looked for first: who may not create a node is told so also where it exists.
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
            return False  # whether it is there shows when it is created
        raise
