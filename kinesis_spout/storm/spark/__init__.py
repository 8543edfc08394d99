"""Runs topologies on Spark: one job for a micro-batch, with one exchange between two stages.

The driver's side is here, the job and its tasks in ``tasks``; a stage's work is in ``running``. Begin with
``runner``.
"""
