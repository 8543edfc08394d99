"""Storm's topologies on Spark: spouts and bolts, wired by groupings, acked as whole trees of tuples.

Components in other languages are not here but in ``kinesis_spout.multilang``. Begin with ``components.bolt``, then
``graph.builder`` (how they are wired) and ``running.stage_run`` (how a tuple goes through them).
"""
