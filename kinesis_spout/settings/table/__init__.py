"""Every option as a row. What a row says is in ``option``; how a type reads and checks a value in ``value_types``.

A new setting is one row, and its use: ``python -m tests.unit.settings.test_keywords`` writes its fields, and the
documentation shows it.

An option of ``format("kinesis")`` is spelled as in Databricks' Kinesis source where that has it. The aliases are
the spellings of awslabs' connector (``kinesis.…``) and of the older qubole one.
"""

from typing import Final

from kinesis_spout.settings.table.connection import CLIENT, PROGRESS, STREAMS
from kinesis_spout.settings.table.handling import LIMITS, RATES, RETRIES
from kinesis_spout.settings.table.reading import BATCHES, FETCHES, POSITIONS
from kinesis_spout.settings.table.writing import WRITES

SETTINGS: Final = {
    option.setting: option
    for option in (*STREAMS, *PROGRESS, *CLIENT, *POSITIONS, *RETRIES, *FETCHES, *RATES, *LIMITS)
    if option.is_setting
}
"""What ``SpoutConfig``, the environment, files and the command line take, by name."""

OPTIONS: Final = tuple(
    option
    for option in (*STREAMS, *CLIENT, *POSITIONS, *FETCHES, *BATCHES, *PROGRESS, *WRITES)
    if option.uses
)
"""What ``format("kinesis")`` takes. A name may be there twice, for different uses."""
