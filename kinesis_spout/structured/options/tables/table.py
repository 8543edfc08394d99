"""Every option of ``format("kinesis")``: checks, defaults and the documentation's tables all come from here.

The first spelling is that of Databricks' Kinesis source where it has the option. The others are those of
awslabs' connector (``kinesis.…``) and of the older qubole one.
"""

from typing import Final

from kinesis_spout.structured.options.tables.connection_table import CLIENT, STREAMS
from kinesis_spout.structured.options.tables.reading_table import BATCHES, FETCHES, POSITIONS, PROGRESS
from kinesis_spout.structured.options.tables.writing_table import WRITES

OPTIONS: Final = (*STREAMS, *CLIENT, *POSITIONS, *FETCHES, *BATCHES, *PROGRESS, *WRITES)
"""In the order of the documentation. A name may be there twice, for different uses."""
