"""Runs topologies on Spark: one job for a micro-batch, with one exchange between two stages.

What a stage does with its tuples is not here but in ``running``. Begin with ``runner``.
"""
