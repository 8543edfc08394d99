"""A real ZooKeeper from PySpark's jars, on loopback. The folder above has ensembles and sessions.

Begin with ``server``: who starts it, who uses it, who starts it again.
"""

from kinesis_spout.zookeeper.embedded.java import find_jars, find_java
from kinesis_spout.zookeeper.embedded.server import EmbeddedZooKeeper, check_startable

__all__ = ["EmbeddedZooKeeper", "check_startable", "find_jars", "find_java"]
