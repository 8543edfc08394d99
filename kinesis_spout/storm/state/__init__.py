"""Keyed state of stateful bolts: its files on executors, the manifest that names them on the driver.

How it is committed with the checkpoints is in ``kinesis_spout.consumer.owning.companion``. Begin with
``manifest``.
"""

from typing import TYPE_CHECKING

from kinesis_spout.model.lazy_names import lazy_names
from kinesis_spout.storm.state.files import StateFiles, merged_rows
from kinesis_spout.storm.state.key_values import PartitionState, UnfitValue, read_value
from kinesis_spout.storm.state.maintenance import Sweeper, collect_garbage, rescale
from kinesis_spout.storm.state.manifest import (
    ComponentState,
    PartitionPlace,
    StateManifest,
    StateUpdate,
    check_folder,
)

if TYPE_CHECKING:
    from kinesis_spout.storm.state.partition import StatePartition, StateParts
    from kinesis_spout.storm.state.versions import KeyedState

__all__ = [
    "ComponentState",
    "KeyedState",
    "PartitionPlace",
    "PartitionState",
    "StateFiles",
    "StateManifest",
    "StatePartition",
    "StateParts",
    "StateUpdate",
    "Sweeper",
    "UnfitValue",
    "check_folder",
    "collect_garbage",
    "merged_rows",
    "read_value",
    "rescale",
]

# These retry a store of files as calls of AWS; a local run need not load its client.
__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "KeyedState": "kinesis_spout.storm.state.versions",
        "StatePartition": "kinesis_spout.storm.state.partition",
        "StateParts": "kinesis_spout.storm.state.partition",
    },
)
