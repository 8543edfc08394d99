"""The acker: which trees of tuples are done. Pure: no I/O, no clock, no Spark.

Who draws edge ids and XORs them is ``running``; what follows for a record, ``spark``. Begin with ``acker``.
"""

from kinesis_spout.storm.acking.acker import Acker, Words
from kinesis_spout.storm.acking.tree_end import Ending, TreeEnd, note_end

__all__ = ["Acker", "Ending", "TreeEnd", "Words", "note_end"]
