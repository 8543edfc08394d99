"""Storm's topologies on Spark: spouts and bolts, wired by groupings, acked as whole trees of tuples.

Begin with ``components.bolt``, then ``builder``, then ``running.stage_run``. ``hosting`` runs components in
other languages. The names here are loaded when they are first used: a component in its own process needs few
of them.
"""

from typing import TYPE_CHECKING, Final

from kinesis_spout.model.lazy_names import lazy_names

if TYPE_CHECKING:
    from kinesis_spout.storm.builder import TopologyBuilder
    from kinesis_spout.storm.components import (
        DEFAULT_STREAM,
        BasicBolt,
        BatchBolt,
        Bolt,
        CombinerBolt,
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
    from kinesis_spout.storm.graph.grouping import CustomGrouping
    from kinesis_spout.storm.hosting import ShellBolt, ShellSpout
    from kinesis_spout.storm.topology import Topology

__all__ = [
    "DEFAULT_STREAM",
    "BasicBolt",
    "BatchBolt",
    "Bolt",
    "CombinerBolt",
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

_ELSEWHERE: Final = {
    "kinesis_spout.storm.builder": ("TopologyBuilder",),
    "kinesis_spout.storm.graph.grouping": ("CustomGrouping",),
    "kinesis_spout.storm.hosting": ("ShellBolt", "ShellSpout"),
    "kinesis_spout.storm.topology": ("Topology",),
}

__getattr__, __dir__ = lazy_names(__name__, {"kinesis_spout.storm.components": __all__, **_ELSEWHERE})
