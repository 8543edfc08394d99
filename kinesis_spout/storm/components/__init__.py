"""What a user writes: bolts and spouts, and what they are given: tuples, a context, a collector.

How tuples travel between them is not here but in ``running``; how they are wired, in ``graph``. Begin with
``bolt``.
"""

from kinesis_spout.storm.components.bolt import BasicBolt, BatchBolt, Bolt, FailedException, StatefulBolt
from kinesis_spout.storm.components.collector import OutputCollector, SpoutOutputCollector
from kinesis_spout.storm.components.context import TaskContext
from kinesis_spout.storm.components.output import DEFAULT_STREAM, Stream
from kinesis_spout.storm.components.spout import Spout
from kinesis_spout.storm.components.state import KeyValueState
from kinesis_spout.storm.components.tuples import Tuple
from kinesis_spout.storm.components.windowed_bolt import WindowedBolt
from kinesis_spout.storm.components.windows import Count, Seconds, Window

__all__ = [
    "DEFAULT_STREAM",
    "BasicBolt",
    "BatchBolt",
    "Bolt",
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
