"""Makes the nodes that everything else hangs below."""

from kazoo.exceptions import NodeExistsError
from kazoo.security import OPEN_ACL_UNSAFE

from kinesis_spout.zookeeper.session import ZooKeeperSession
from kinesis_spout.zookeeper.tree.paths import Paths


def make_layout(session: ZooKeeperSession, paths: Paths) -> None:
    """Create what is missing of the application's place; may be repeated, and done by several at once.

    The root is open to everybody, because applications with other credentials share it.

    Raises:
        StoreUnavailable: retriable.
    """
    client = session.client
    requests = [client.create_async(paths.root_node, b"", acl=OPEN_ACL_UNSAFE)]
    requests += [
        client.create_async(path, b"")
        for path in (
            paths.app_node,
            paths.base,
            paths.shards,
            paths.members,
            paths.owners,
            paths.paused,
            paths.leader,
            paths.assignment,
            paths.draining,
        )
    ]
    for request in requests:
        try:
            session.answer(request)
        except NodeExistsError:
            continue
