from kinesis_spout.zookeeper.backend import ZooKeeperBackend, ZooKeeperSettings
from kinesis_spout.zookeeper.credentials import Login, NodeAcls, Tls
from kinesis_spout.zookeeper.embedded_server import EmbeddedZooKeeper
from kinesis_spout.zookeeper.members.zookeeper_coordinator import (
    ZooKeeperCoordinator,
    process_of,
    unique_member_name,
)
from kinesis_spout.zookeeper.members.zookeeper_election import ZooKeeperElection
from kinesis_spout.zookeeper.nodes import ChunkLimits
from kinesis_spout.zookeeper.paths import DEFAULT_ROOT, Paths
from kinesis_spout.zookeeper.progress.application import Application
from kinesis_spout.zookeeper.progress.application_lifecycle import begun_applications, begun_streams
from kinesis_spout.zookeeper.progress.store import ZooKeeperCheckpointStore
from kinesis_spout.zookeeper.zookeeper_session import ZooKeeperSession

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
