"""The options of ``format("kinesis")``, from Spark's text to validated values: one class for each use.

The rows are in ``settings.table``, the rules of every door in ``settings.rules``. Begin with ``option_reader``.
"""

from kinesis_spout.settings.source_options.reads import BatchReadOptions, StreamReadOptions
from kinesis_spout.settings.source_options.write import WriteOptions

__all__ = ["BatchReadOptions", "StreamReadOptions", "WriteOptions"]
