"""Where a process stands for election in ZooKeeper."""

from contextlib import ExitStack
from typing import Unpack

from kinesis_spout.ports import Election
from kinesis_spout.settings import ZooKeeperKeywords
from kinesis_spout.settings.zookeeper.session import started_session
from kinesis_spout.zookeeper import ZooKeeperElection, unique_member_name
from kinesis_spout.zookeeper.tree.layout import make_shared
from kinesis_spout.zookeeper.tree.paths import office, offices


def stand_for(name: str, **zookeeper: Unpack[ZooKeeperKeywords]) -> Election:
    """Connect to ZooKeeper to stand for election there; give what it yields to a ``LeaderCareer``.

    Args:
        name: of the work: of all processes that stand for it, one leads.
        zookeeper: where that is and who we are there: ``zookeeper``, ``session_timeout_seconds``, and the
            settings of ``SpoutConfig`` whose names begin with ``zookeeper_``. A leader that was killed keeps its
            office for the session time-out; one that is cut off leaves it after two thirds of that.

    Raises:
        InvalidConfig: an argument is not what it must be.
        StoreUnavailable, StoreError: no ZooKeeper answers, it refuses us, or the embedded one does not start.
    """
    with ExitStack() as opened:
        root, session = started_session(name, zookeeper, opened)
        make_shared(session, offices(root))
        return ZooKeeperElection(
            name, office(root, name), session, unique_member_name(), opened.pop_all().close
        )
