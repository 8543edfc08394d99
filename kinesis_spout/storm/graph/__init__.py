"""The wiring: groupings, the graph that a builder makes of them, and the plan that stages run by.

Pure: nothing here does I/O or knows Spark. Begin with ``builder``.
"""

from kinesis_spout.storm.graph.builder import TopologyBuilder
from kinesis_spout.storm.graph.component_graph import ComponentGraph
from kinesis_spout.storm.graph.grouping import CustomGrouping
from kinesis_spout.storm.graph.plan import Plan, plan_of

__all__ = ["ComponentGraph", "CustomGrouping", "Plan", "TopologyBuilder", "plan_of"]
