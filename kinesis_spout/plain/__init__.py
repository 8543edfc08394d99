"""The plain-Python door: Storm's verbs (next_tuple, ack, fail) on a Kinesis stream, without Spark.

Owning, committing and dead-lettering are in ``consumer``. Begin with ``record_spout``.
"""
