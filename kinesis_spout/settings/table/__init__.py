"""Every option as a row. ``option`` explains the row; ``value_types`` reads and checks values.

A new setting is one row, and its use: ``python -m tests.unit.settings.test_typed`` writes its types, and the
documentation shows it under its ``topic``.

An option of ``format("kinesis")`` has the spelling of Databricks' Kinesis source if that has it. The aliases
are the spellings of awslabs' connector (``kinesis.…``) and of the older qubole one.
"""

from typing import Final

from kinesis_spout.settings.table.connection import CLIENT, PROGRESS, STREAMS
from kinesis_spout.settings.table.consuming import (
    BATCHES,
    FETCHES,
    LIMITS,
    MONITORING,
    POSITIONS,
    RATES,
    RETRIES,
)
from kinesis_spout.settings.table.writing import WRITES

SETTINGS: Final = {
    option.setting: option
    for option in (*STREAMS, *PROGRESS, *CLIENT, *POSITIONS, *RETRIES, *FETCHES, *RATES, *LIMITS, *MONITORING)
    if option.is_setting
}
"""The settings of ``SpoutConfig``, the environment, files and the command line, by name."""

OPTIONS: Final = tuple(
    option for option in (*STREAMS, *CLIENT, *POSITIONS, *FETCHES, *BATCHES, *WRITES) if option.uses
)
"""The options of ``format("kinesis")``. A name may be there twice, for different uses."""
