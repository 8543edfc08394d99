"""Storm's topologies on Spark: spouts and bolts, wired by groupings, acked as whole trees of tuples.

Components in other languages are not here but in ``kinesis_spout.multilang``. Begin with ``components.bolt``, then
``graph.builder`` (how they are wired) and ``running.stage.stage_run`` (how a tuple goes through them).
"""

from kinesis_spout.topology.components import (
    DEFAULT_STREAM,
    BasicBolt,
    BatchBolt,
    Bolt,
    Count,
    FailedException,
    KeyValueState,
    OutputCollector,
    Seconds,
    Spout,
    SpoutOutputCollector,
    StatefulBolt,
    Stream,
    TaskContext,
    Tuple,
    Window,
    WindowedBolt,
)
from kinesis_spout.topology.graph import CustomGrouping, TopologyBuilder
from kinesis_spout.topology.topology import Topology

__all__ = [
    "DEFAULT_STREAM",
    "BasicBolt",
    "BatchBolt",
    "Bolt",
    "Count",
    "CustomGrouping",
    "FailedException",
    "KeyValueState",
    "OutputCollector",
    "Seconds",
    "Spout",
    "SpoutOutputCollector",
    "StatefulBolt",
    "Stream",
    "TaskContext",
    "Topology",
    "TopologyBuilder",
    "Tuple",
    "Window",
    "WindowedBolt",
]
