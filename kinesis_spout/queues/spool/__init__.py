"""The producer's durable buffer: what was taken and is not confirmed survives a crash.

Which records these are is the producer's business. Begin with ``port``.
"""

from kinesis_spout.queues.spool.port import Spool, Spooled

__all__ = ["Spool", "Spooled"]
