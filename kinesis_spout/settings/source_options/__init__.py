"""The options of ``format("kinesis")``, from Spark's text to validated values: one class for each use.

The rows are in ``settings.table``, the rules that every door shares in ``settings.rules``. Begin with ``given``.
"""

from kinesis_spout.settings.source_options.batch_read import BatchReadOptions
from kinesis_spout.settings.source_options.stream_read import StreamReadOptions
from kinesis_spout.settings.source_options.write import WriteOptions

__all__ = ["BatchReadOptions", "StreamReadOptions", "WriteOptions"]
