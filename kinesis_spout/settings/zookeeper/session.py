"""Opens ZooKeeper for work that has a name of its own, beside any stream."""

from contextlib import ExitStack

from kinesis_spout.settings.keywords import ZooKeeperKeywords
from kinesis_spout.settings.sources import checked, from_keywords
from kinesis_spout.settings.spout_config import IN_PYTHON
from kinesis_spout.settings.table.zookeeper import PLACE
from kinesis_spout.settings.zookeeper.access_rules import check_access
from kinesis_spout.settings.zookeeper.place import zookeeper_settings
from kinesis_spout.zookeeper import ZooKeeperSession
from kinesis_spout.zookeeper.paths import check_name


def started_session(
    name: str, keywords: ZooKeeperKeywords, opened: ExitStack
) -> tuple[str, ZooKeeperSession]:
    """Start a session, and the embedded ZooKeeper if that is wanted; ``opened`` closes both.

    Args:
        name: of the work.
        keywords: where ZooKeeper is and who we are there.
        opened: takes in what is to be closed.

    Returns:
        The root node, and the session.

    Raises:
        InvalidConfig: an argument is not what it must be.
        StoreUnavailable, StoreError: no ZooKeeper answers, it refuses us, or the embedded one does not start.
    """
    check_name("name", name)
    values = checked(from_keywords(keywords, PLACE), PLACE)
    check_access(values, IN_PYTHON)
    settings = zookeeper_settings(name, values)
    session = settings.session(settings.server(opened))
    opened.callback(session.close)
    session.start()
    return settings.root, session
