"""Runs the components of one stage in one process: tuples in, tuples and acks out. Knows no Spark.

Which process, and how what leaves it gets to the next, is not here but in ``spark`` and ``local``. Begin with
``stage_run``.
"""
