"""What a user writes, bolts and spouts, and what they get: tuples, a context, a collector.

How tuples travel between them is in ``running``; how they are wired, in ``graph``. Begin with ``bolt``.
"""

from kinesis_spout.storm.components.bolt import (
    BasicBolt,
    BatchBolt,
    Bolt,
    CombinerBolt,
    FailedException,
    StatefulBolt,
)
from kinesis_spout.storm.components.given import (
    KeyValueState,
    OutputCollector,
    SpoutOutputCollector,
    TaskContext,
)
from kinesis_spout.storm.components.open_windows import Count, Seconds, Window
from kinesis_spout.storm.components.spout import Spout
from kinesis_spout.storm.components.tuples import Stream, Tuple
from kinesis_spout.storm.components.windowed_bolt import WindowedBolt
from kinesis_spout.storm.multilang.protocol import DEFAULT_STREAM

__all__ = [
    "DEFAULT_STREAM",
    "BasicBolt",
    "BatchBolt",
    "Bolt",
    "CombinerBolt",
    "Count",
    "FailedException",
    "KeyValueState",
    "OutputCollector",
    "Seconds",
    "Spout",
    "SpoutOutputCollector",
    "StatefulBolt",
    "Stream",
    "TaskContext",
    "Tuple",
    "Window",
    "WindowedBolt",
]
