"""Keyed state of stateful bolts: its files on executors, the manifest that names them on the driver.

``kinesis_spout.consumer.owning.companion`` commits it with the checkpoints. Begin with ``manifest``.
"""

from kinesis_spout.model.extras import check_spark

check_spark("topologies")
