"""Lays a bolt's state out for another number of tasks, on the driver, before the first micro-batch.

The new files stand beside the old ones, which no one changes. So a crash in between, or at any time before the new
manifest is committed, leaves the state as it was.
"""

import math
from collections.abc import Mapping
from typing import Final

from kinesis_spout.storm.state.files import Key, StateFiles, merged_rows
from kinesis_spout.storm.state.key_values import task_of
from kinesis_spout.storm.state.manifest import PartitionPlace, StateManifest, StateUpdate

PASS_BYTES: Final = 128 * 1024 * 1024
"""About so much of the files, compressed as they are, is spread over the new tasks at a time."""


def rescale(
    files: StateFiles, manifest: StateManifest, component: str, parallelism: int, pass_bytes: int = PASS_BYTES
) -> StateManifest:
    """Give the manifest of the same state for another parallelism of a bolt.

    It reads all files of the bolt once for each ``pass_bytes`` of them; in memory it has one old part and one
    pass's share of the new ones.

    Raises:
        StateUnreadable: a file is gone or damaged.
        StateUnavailable: retriable.
    """
    size_bytes = files.size_bytes(manifest.component_paths(component))
    passes = max(1, min(parallelism, math.ceil(size_bytes / pass_bytes)))
    updates: list[StateUpdate] = []
    for number in range(passes):
        chosen = range(number, parallelism, passes)
        for index, rows in _gathered(files, manifest, component, parallelism, chosen).items():
            place = PartitionPlace(
                topology=manifest.topology,
                life=manifest.life,
                component=component,
                parallelism=parallelism,
                index=index,
            )
            names = (files.write(place, 1, rows),) if rows else ()
            updates.append(StateUpdate(component=component, index=index, files=names))
    return manifest.with_component(component, parallelism, updates)


def _gathered(
    files: StateFiles, manifest: StateManifest, component: str, parallelism: int, chosen: range
) -> Mapping[int, dict[Key, bytes]]:
    """Collect what the chosen new tasks have of every old one."""
    gathered: dict[int, dict[Key, bytes]] = {index: {} for index in chosen}
    for old_index in manifest.components[component].files:
        for key, value in merged_rows(files, manifest, component, old_index).items():
            rows = gathered.get(task_of(key, parallelism))
            if rows is not None:
                rows[key] = value
    return gathered
