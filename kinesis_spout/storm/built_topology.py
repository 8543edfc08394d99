"""What a topology is, once it was built: what those need of it who start it, check it or read its state."""

from collections.abc import Mapping
from typing import Any

from kinesis_spout.storm.graph.component_graph import ComponentGraph
from kinesis_spout.storm.topology_conf import TopologyConf


class BuiltTopology:
    """A graph of components with its name and its options. ``Topology`` is one that its user can run and draw."""

    def __init__(
        self, name: str, graph: ComponentGraph, options: TopologyConf, conf: Mapping[str, Any]
    ) -> None:
        self.name = name
        self.graph = graph
        self.options = options
        self.conf = conf
