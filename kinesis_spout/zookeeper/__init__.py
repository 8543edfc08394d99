from kinesis_spout.zookeeper.backend import ZooKeeperBackend
from kinesis_spout.zookeeper.embedded import EmbeddedZooKeeper
from kinesis_spout.zookeeper.members.coordinator import ZooKeeperCoordinator, process_of, unique_member_name
from kinesis_spout.zookeeper.members.election import ZooKeeperElection
from kinesis_spout.zookeeper.progress.administration import begun_applications, begun_streams
from kinesis_spout.zookeeper.progress.application import Application
from kinesis_spout.zookeeper.progress.store import ZooKeeperCheckpointStore
from kinesis_spout.zookeeper.security.acls import NodeAcls
from kinesis_spout.zookeeper.security.credentials import Login, Tls
from kinesis_spout.zookeeper.session import ZooKeeperSession
from kinesis_spout.zookeeper.settings import ZooKeeperSettings
from kinesis_spout.zookeeper.tree.chunks import ChunkLimits
from kinesis_spout.zookeeper.tree.paths import DEFAULT_ROOT, Paths

__all__ = [
    "DEFAULT_ROOT",
    "Application",
    "ChunkLimits",
    "EmbeddedZooKeeper",
    "Login",
    "NodeAcls",
    "Paths",
    "Tls",
    "ZooKeeperBackend",
    "ZooKeeperCheckpointStore",
    "ZooKeeperCoordinator",
    "ZooKeeperElection",
    "ZooKeeperSession",
    "ZooKeeperSettings",
    "begun_applications",
    "begun_streams",
    "process_of",
    "unique_member_name",
]
