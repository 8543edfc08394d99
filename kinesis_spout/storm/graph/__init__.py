"""The wiring: groupings, the graph that a builder makes of them, and the plan that stages run by.

Pure: nothing here does I/O or knows Spark. Begin with ``component_graph``.
"""

from kinesis_spout.model.extras import check_spark

check_spark("topologies")
