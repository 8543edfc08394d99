"""Makes ``format("kinesis")`` known to Spark, by being installed.

Spark imports every top-level module ``pyspark_*`` and registers its ``DefaultSource``.
"""

from kinesis_spout.structured.data_source import KinesisDataSource as DefaultSource

__all__ = ["DefaultSource"]
