"""The options of ``format("kinesis")``, from Spark's text to validated values: one class for each use.

The rows are in ``settings.table``, the rules of every door in ``settings.rules``. Begin with
``option_reader``, then ``uses``.
"""

from kinesis_spout.settings.source_options.uses import BatchReadOptions, StreamReadOptions, WriteOptions

__all__ = ["BatchReadOptions", "StreamReadOptions", "WriteOptions"]
