"""Keyed state of stateful bolts: its files on executors, the manifest that names them on the driver.

How it is committed with the checkpoints is in ``kinesis_spout.consumer.owning.companion``. Begin with
``manifest``.
"""

from kinesis_spout.model.extras import check_spark

check_spark("topologies")
