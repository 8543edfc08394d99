"""Runs topologies in plain Python: stages, what travels between them, trees and their verdicts. Knows no Spark.

Which process, and how what leaves it gets to the next, is not here but in ``spark`` and ``local``. Begin with
``stage_run``.
"""
