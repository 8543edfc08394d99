"""The wiring: groupings, the graph that a builder makes of them, and the plan that stages run by.

Pure: nothing here does I/O or knows Spark. Begin with ``builder``.
"""

from kinesis_spout.topology.graph.builder import TopologyBuilder
from kinesis_spout.topology.graph.component_graph import ComponentGraph
from kinesis_spout.topology.graph.grouping import CustomGrouping
from kinesis_spout.topology.graph.plan import Plan, plan_of

__all__ = ["ComponentGraph", "CustomGrouping", "Plan", "TopologyBuilder", "plan_of"]
