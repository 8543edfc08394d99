"""The options of ``format("kinesis")``: what there are, and the validated values made from them."""

from kinesis_spout.structured.options.batch_read import BatchReadOptions
from kinesis_spout.structured.options.documentation import markdown_table
from kinesis_spout.structured.options.positions import EndPositions, StartPositions
from kinesis_spout.structured.options.stream_read import StreamReadOptions
from kinesis_spout.structured.options.tables.specs import Kind, OptionSpec, Use
from kinesis_spout.structured.options.tables.table import OPTIONS
from kinesis_spout.structured.options.write import WriteOptions

__all__ = [
    "OPTIONS",
    "BatchReadOptions",
    "EndPositions",
    "Kind",
    "OptionSpec",
    "StartPositions",
    "StreamReadOptions",
    "Use",
    "WriteOptions",
    "markdown_table",
]
