"""The producer's durable buffer: what was taken and is not confirmed survives a crash.

Which records these are is the producer's business. Begin with ``port``, then ``sqlite_spool``.
"""

from kinesis_spout.producer.spool.port import Spool, Spooled
from kinesis_spout.producer.spool.sqlite_spool import Durability, SqliteSpool

__all__ = ["Durability", "Spool", "Spooled", "SqliteSpool"]
