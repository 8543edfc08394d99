"""Runs topologies on Spark: one job for a micro-batch, with one exchange between two stages.

The driver's side begins with ``runner``, a job and its tasks with ``job``; a stage's work is in ``running``.
"""
