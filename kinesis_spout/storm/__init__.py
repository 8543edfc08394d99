"""Storm's topologies on Spark: spouts and bolts, wired by groupings, acked as whole trees of tuples.

Begin with ``components.bolt``, then ``builder``, then ``running.stage_run``. ``hosting`` runs components in
other languages. The names here are loaded when they are first used: a component in its own process needs few
of them.
"""

from typing import TYPE_CHECKING, Final

from kinesis_spout.model.extras import lazy_names

if TYPE_CHECKING:
    from kinesis_spout.storm.builder import TopologyBuilder
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
    from kinesis_spout.storm.graph.grouping import CustomGrouping
    from kinesis_spout.storm.hosting.shell_bolt import ShellBolt
    from kinesis_spout.storm.hosting.shell_spout import ShellSpout
    from kinesis_spout.storm.multilang.protocol import DEFAULT_STREAM
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

_BOLTS: Final = ("BasicBolt", "BatchBolt", "Bolt", "CombinerBolt", "FailedException", "StatefulBolt")
_GIVEN: Final = ("KeyValueState", "OutputCollector", "SpoutOutputCollector", "TaskContext")
_NAMES: Final = {
    "kinesis_spout.storm.builder": ("TopologyBuilder",),
    "kinesis_spout.storm.components.bolt": _BOLTS,
    "kinesis_spout.storm.components.given": _GIVEN,
    "kinesis_spout.storm.components.open_windows": ("Count", "Seconds", "Window"),
    "kinesis_spout.storm.components.spout": ("Spout",),
    "kinesis_spout.storm.components.tuples": ("Stream", "Tuple"),
    "kinesis_spout.storm.components.windowed_bolt": ("WindowedBolt",),
    "kinesis_spout.storm.graph.grouping": ("CustomGrouping",),
    "kinesis_spout.storm.hosting.shell_bolt": ("ShellBolt",),
    "kinesis_spout.storm.hosting.shell_spout": ("ShellSpout",),
    "kinesis_spout.storm.multilang.protocol": ("DEFAULT_STREAM",),
    "kinesis_spout.storm.topology": ("Topology",),
}

__getattr__, __dir__ = lazy_names(__name__, _NAMES)
