"""Storm's topologies on Spark: spouts and bolts, wired by groupings, acked as whole trees of tuples.

Begin with ``components.bolt``, then ``graph.builder`` (how they are wired) and ``running.stage.stage_run`` (how a
tuple goes through them). ``hosting`` runs components in other languages, and ``multilang`` is their protocol.
The names here are loaded when they are first used: a component in a process of its own needs few of them.
"""

from typing import TYPE_CHECKING, Final

from kinesis_spout.model.lazy_names import lazy_names

if TYPE_CHECKING:
    from kinesis_spout.storm.components import (
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
    from kinesis_spout.storm.graph import CustomGrouping, TopologyBuilder
    from kinesis_spout.storm.hosting import ShellBolt, ShellSpout
    from kinesis_spout.storm.topology import Topology

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
    "ShellBolt",
    "ShellSpout",
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

_HOMES: Final = {
    "DEFAULT_STREAM": "kinesis_spout.storm.components",
    "BasicBolt": "kinesis_spout.storm.components",
    "BatchBolt": "kinesis_spout.storm.components",
    "Bolt": "kinesis_spout.storm.components",
    "Count": "kinesis_spout.storm.components",
    "CustomGrouping": "kinesis_spout.storm.graph",
    "FailedException": "kinesis_spout.storm.components",
    "KeyValueState": "kinesis_spout.storm.components",
    "OutputCollector": "kinesis_spout.storm.components",
    "Seconds": "kinesis_spout.storm.components",
    "ShellBolt": "kinesis_spout.storm.hosting",
    "ShellSpout": "kinesis_spout.storm.hosting",
    "Spout": "kinesis_spout.storm.components",
    "SpoutOutputCollector": "kinesis_spout.storm.components",
    "StatefulBolt": "kinesis_spout.storm.components",
    "Stream": "kinesis_spout.storm.components",
    "TaskContext": "kinesis_spout.storm.components",
    "Topology": "kinesis_spout.storm.topology",
    "TopologyBuilder": "kinesis_spout.storm.graph",
    "Tuple": "kinesis_spout.storm.components",
    "Window": "kinesis_spout.storm.components",
    "WindowedBolt": "kinesis_spout.storm.components",
}

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
