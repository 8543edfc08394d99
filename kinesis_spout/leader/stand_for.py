"""Where a process stands for election in ZooKeeper."""

from contextlib import ExitStack

from kinesis_spout.consumer.open_ports import zookeeper_settings
from kinesis_spout.ports import DEFAULT_SESSION_TIMEOUT_SECONDS, Election
from kinesis_spout.settings import SpoutConfig
from kinesis_spout.zookeeper import DEFAULT_ROOT, ZooKeeperElection, unique_member_name
from kinesis_spout.zookeeper.tree.paths import check_name, office


def stand_for(
    name: str,
    *,
    zookeeper: str = "embedded",
    zookeeper_root: str = DEFAULT_ROOT,
    session_timeout_seconds: float = DEFAULT_SESSION_TIMEOUT_SECONDS,
) -> Election:
    """Connect to ZooKeeper to stand for election there; give what it yields to a ``LeaderCareer``.

    Args:
        name: of the work: of all processes that stand for it, one leads.
        zookeeper: ``embedded``, ``embedded:<directory>`` or ``host:port,host:port[/chroot]``.
        zookeeper_root: the node that all names are below.
        session_timeout_seconds: how long a leader that was killed keeps its office. A leader that is cut off
            leaves it after two thirds of this.

    Raises:
        InvalidConfig: an argument is not what it must be.
        StoreUnavailable, StoreError: no ZooKeeper answers, or the embedded one does not start.
    """
    check_name("name", name)
    config = SpoutConfig.of(
        stream=_UNUSED,
        app=_UNUSED,
        zookeeper=zookeeper,
        zookeeper_root=zookeeper_root,
        session_timeout_seconds=session_timeout_seconds,
    )
    settings = zookeeper_settings(config)
    with ExitStack() as opened:
        session = settings.session(settings.server(opened))
        opened.callback(session.close)
        session.start()
        return ZooKeeperElection(
            name, office(zookeeper_root, name), session, unique_member_name(), opened.pop_all().close
        )


_UNUSED = "leaders"
"""An office belongs to no stream."""
