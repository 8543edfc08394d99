"""Which applications have begun, and on which streams."""

from kazoo.exceptions import NoNodeError

from kinesis_spout.zookeeper.session import ZooKeeperSession
from kinesis_spout.zookeeper.tree.paths import Paths


def begun_applications(session: ZooKeeperSession, root: str) -> list[tuple[str, str]]:
    """Name every application below ``root`` that has begun, with each of its streams, in order.

    Raises:
        StoreUnavailable: retriable.
    """
    session.await_connection(session.deadline())
    return [
        (app, stream)
        for app in _children(session, f"/{root}")
        for stream in _children(session, f"/{root}/{app}")
        if _has_begun(session, Paths(root=root, app=app, stream=stream))
    ]


def _children(session: ZooKeeperSession, path: str) -> list[str]:
    try:
        return sorted(session.answer(session.client.get_children_async(path)))
    except NoNodeError:
        return []


def _has_begun(session: ZooKeeperSession, paths: Paths) -> bool:
    try:
        mark, _ = session.answer(session.client.get_async(paths.base))
    except NoNodeError:
        return False
    return bool(mark)
