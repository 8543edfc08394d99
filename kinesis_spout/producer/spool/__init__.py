"""The producer's durable buffer: records that were taken and not confirmed survive a crash.

The producer decides which records these are. Begin with ``port``, then ``sqlite_spool``.
"""

from kinesis_spout.producer.spool.port import Spool, Spooled
from kinesis_spout.producer.spool.sqlite_spool import Durability, SqliteSpool

__all__ = ["Durability", "Spool", "Spooled", "SqliteSpool"]
