"""A real ZooKeeper from PySpark's jars, on loopback. Ensembles and sessions are the folder above's.

Begin reading in ``server``: who starts it, who uses it, who starts it again.
"""

from kinesis_spout.zookeeper.embedded.java import find_jars, find_java
from kinesis_spout.zookeeper.embedded.server import EmbeddedZooKeeper, check_startable

__all__ = ["EmbeddedZooKeeper", "check_startable", "find_jars", "find_java"]
