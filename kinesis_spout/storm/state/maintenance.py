"""What the driver does with files of state between micro-batches: lays them out again, deletes old ones."""

import logging
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from kinesis_spout.storm.state.files import Key, StateFiles, merged_rows
from kinesis_spout.storm.state.key_values import task_of
from kinesis_spout.storm.state.manifest import StateManifest, StateUpdate, life_folder

PASS_BYTES: Final = 128 * 1024 * 1024
"""About this much of the files, in compressed bytes, is spread over the new tasks at a time."""
SWEEP_SECONDS: Final = 60.0
"""How often to look for garbage at most."""
STRAGGLER_SECONDS: Final = 3600.0
"""A younger file is left alone: the manifest that names it can be on its way."""

_log = logging.getLogger(__name__)


def rescale(
    files: StateFiles,
    manifest: StateManifest,
    component: str,
    parallelism: int,
    pass_bytes: int | None = None,
) -> StateManifest:
    """Lay a bolt's state out for another number of tasks, before the first micro-batch.

    The old files stay unchanged. So a crash at any time before the new manifest is committed leaves the state
    as it was. All files of the bolt are read once for each ``pass_bytes`` of them; in memory are one old part
    and one pass's share of the new ones. StateUnreadable: a file is gone or damaged. StateUnavailable:
    retriable.
    """
    size_bytes = files.size_bytes(manifest.component_paths(component))
    passes = max(1, min(parallelism, math.ceil(size_bytes / (pass_bytes or PASS_BYTES))))
    updates: list[StateUpdate] = []
    for number in range(passes):
        chosen = range(number, parallelism, passes)
        for index, rows in _gathered(files, manifest, component, parallelism, chosen).items():
            place = replace(manifest.place(component, index), parallelism=parallelism)
            names = (files.write(place, 1, rows),) if rows else ()
            updates.append(StateUpdate(component=component, index=index, files=names))
    return manifest.with_component(component, parallelism, updates)


def _gathered(
    files: StateFiles, manifest: StateManifest, component: str, parallelism: int, chosen: range
) -> Mapping[int, dict[Key, bytes]]:
    gathered: dict[int, dict[Key, bytes]] = {index: {} for index in chosen}
    for old_index in manifest.components[component].files:
        for key, value in merged_rows(files, manifest, component, old_index).items():
            rows = gathered.get(task_of(key, parallelism))
            if rows is not None:
                rows[key] = value
    return gathered


def collect_garbage(files: StateFiles, kept: Iterable[StateManifest], *, modified_before: float) -> int:
    """Delete what none of the ``kept`` manifests names, in their own state's folder; give the number of files.

    What cannot be deleted is logged, and tried again the next time: it costs room and nothing else. ``kept``
    is what is committed, what is about to be, and what is in force. ``modified_before``, in seconds since the
    epoch, must be well before the beginning of a commit that succeeded, and after which ``kept`` was taken: a
    process that took the state over since then wrote later.
    """
    manifests = tuple(kept)
    named = frozenset[str]().union(*(manifest.paths() for manifest in manifests))
    deleted = 0
    for folder in {life_folder(manifest.topology, manifest.life) for manifest in manifests}:
        try:
            found = files.modified(folder)
        except OSError as error:
            _log.warning("%s: cannot look for files of old state in %s: %s", files.address, folder, error)
            continue
        for path, modified in found.items():
            if path not in named and modified < modified_before:
                deleted += _is_deleted(files, path)
    return deleted


def _is_deleted(files: StateFiles, path: str) -> bool:
    try:
        files.delete(path)
    except OSError as error:
        _log.warning("%s: cannot delete the file of old state %s: %s", files.address, path, error)
        return False
    return True


class Sweeper:
    """Collects garbage after commits, now and then. Mutable."""

    def __init__(self, files: StateFiles, straggler_seconds: float = STRAGGLER_SECONDS) -> None:
        self._files = files
        self._straggler_seconds = straggler_seconds
        self._due_at = 0.0

    def sweep(self, kept: Iterable[StateManifest], *, committing_since: float) -> int:
        """Collect, if ``SWEEP_SECONDS`` have passed since the last time.

        ``kept``: see ``collect_garbage``. ``committing_since``: when the commit that has just succeeded
        began, in seconds since the epoch.
        """
        if committing_since < self._due_at:
            return 0
        self._due_at = committing_since + SWEEP_SECONDS
        return collect_garbage(self._files, kept, modified_before=committing_since - self._straggler_seconds)
