"""Coalescing in the record door: of the records that are at hand together, the newest of each key is handled.

Coalescing without a stream or Spark is ``queues/coalescing``. Begin with ``delivery``, which has the theory.
"""
