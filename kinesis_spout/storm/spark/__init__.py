"""Runs topologies on Spark: one job for a micro-batch, with one exchange between two stages.

Here is the driver's side. The job and its tasks are in ``tasks``; what a stage does with its tuples is in
``running``. Begin with ``runner``.
"""
