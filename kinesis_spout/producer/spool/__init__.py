"""The producer's durable buffer: records that were taken and not confirmed survive a crash.

The producer decides which records these are. Begin with ``port``, then ``disk_spool``.
"""

from kinesis_spout.producer.spool.disk_spool import DiskSpool, Durability
from kinesis_spout.producer.spool.port import Spool, Spooled

__all__ = ["DiskSpool", "Durability", "Spool", "Spooled"]
