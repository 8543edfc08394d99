"""Runs topologies in plain Python: stages, what travels between them, trees and their verdicts. Knows no Spark.

Which process runs what, and the way between processes, are in ``spark`` and ``local``. Begin with
``stage_run``.
"""

from kinesis_spout.model.extras import check_spark

check_spark("topologies")
