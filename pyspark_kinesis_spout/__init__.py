"""Makes ``format("kinesis_spout")`` known to Spark, as ``pyspark_kinesis`` does for ``format("kinesis")``.

A module can make one name known.
"""

from kinesis_spout.structured.data_source import KinesisSpoutDataSource as DefaultSource

__all__ = ["DefaultSource"]
