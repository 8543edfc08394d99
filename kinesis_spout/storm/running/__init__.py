"""Runs topologies in plain Python: stages, what travels between them, trees and their verdicts. Knows no Spark.

``spark`` and ``local`` say which process runs which part, and carry tuples between processes. Begin with
``stage_run``.
"""

from kinesis_spout.model.extras import check_spark

check_spark("topologies")
