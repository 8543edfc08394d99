"""What a user writes: bolts and spouts, and what they are given: tuples, a context, a collector.

How tuples travel between them is not here but in ``running``; how they are wired, in ``graph``. Begin with
``bolt``.
"""

from kinesis_spout.topology.components.bolt import BasicBolt, BatchBolt, Bolt, FailedException, StatefulBolt
from kinesis_spout.topology.components.collector import OutputCollector, SpoutOutputCollector
from kinesis_spout.topology.components.context import TaskContext
from kinesis_spout.topology.components.output import DEFAULT_STREAM, Stream
from kinesis_spout.topology.components.spout import Spout
from kinesis_spout.topology.components.state import KeyValueState
from kinesis_spout.topology.components.tuples import Tuple
from kinesis_spout.topology.components.windowed_bolt import WindowedBolt
from kinesis_spout.topology.components.windows import Count, Seconds, Window

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
