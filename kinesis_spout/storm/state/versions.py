"""The versions of a topology's state on the driver: the one in force, and the one that is committed."""

import logging
import math
import secrets
import threading
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from kinesis_spout.model.errors import StateUnreadable
from kinesis_spout.storm.state.files import Key, StateFiles, merged_rows
from kinesis_spout.storm.state.key_values import ResultKey, task_of
from kinesis_spout.storm.state.manifest import StateManifest, StateUpdate, life_folder
from kinesis_spout.storm.state.partition import patiently

PASS_BYTES: Final = 128 * 1024 * 1024
"""About this much of the files, in compressed bytes, is spread over the new tasks at a time."""
SWEEP_SECONDS: Final = 60.0
"""The time between two looks for garbage."""
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
            results = tuple(key.root for key in rows if type(key) is ResultKey)
            updates.append(StateUpdate(component=component, index=index, files=names, sent=results))
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

    A file that cannot be deleted is logged, and tried again the next time: it costs room and nothing else.
    ``kept`` is what is committed, what is about to be, and what is in force. ``modified_before``, in seconds
    since the epoch, must be well before the beginning of a commit that succeeded, and after which ``kept``
    was taken: a process that took the state over since then wrote later.
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


class KeyedState:
    """A consumer's companion (see ``kinesis_spout.consumer.ports``), and the runner's. Mutable; thread-safe."""

    def __init__(self, topology: str, address: str, parallelism: Mapping[str, int]) -> None:
        self.name = topology
        self.address = address
        self._parallelism = dict(parallelism)
        self._files = StateFiles(address)
        self._sweep_at = 0.0
        self._lock = threading.Lock()
        self._current: StateManifest | None = None
        """The state that the next micro-batch begins with; None while it is not known: no shard is owned then."""
        self._committed: StateManifest | None = None
        self._offered: dict[bytes, StateManifest] = {}
        """Manifests handed over to be committed, and not known to be: one can be what is stored."""
        self._offered_at = self._committed_at = 0.0

    # Called by the runner

    def begin(self) -> StateManifest | None:
        """The state that a job begins with, laid out for the current tasks; None if its shards were lost.

        StateUnreadable, StateUnavailable: it cannot be laid out again.
        """
        with self._lock:
            current, kept, committed_at = self._current, self.kept(), self._committed_at
        if committed_at and committed_at >= self._sweep_at:
            self._sweep_at = committed_at + SWEEP_SECONDS
            collect_garbage(self._files, kept, modified_before=committed_at - STRAGGLER_SECONDS)
        for component, tasks in self._parallelism.items():
            if current is not None and current.components[component].parallelism != tasks:
                laid_out = patiently(partial(rescale, self._files, current, component, tasks))
                with self._lock:
                    if self._current is not current:
                        return None
                    current = self._current = laid_out
        return current

    def settled(
        self,
        began_with: StateManifest,
        updates: Sequence[StateUpdate],
        time: float = 0.0,
        failed: Collection[int] = (),
    ) -> bool:
        """Take in what a micro-batch has changed, at the moment when its records are taken as finished.

        ``began_with`` is what ``begin`` gave it; ``failed`` are the roots of results that failed. False if the
        state was lost or replaced since: then the changes do not count, and its records must not be taken as
        finished.
        """
        with self._lock:
            if self._current is not began_with:
                return False
            if updates:
                self._current = began_with.with_updates(updates, time, failed)
            return True

    @property
    def retry_at(self) -> float:
        """When a result that failed is emitted again, in processing time; infinity if there is none."""
        with self._lock:
            return math.inf if self._current is None else self._current.retry_at

    def kept(self) -> tuple[StateManifest, ...]:
        known = (self._committed, *self._offered.values(), self._current)
        return tuple({id(each): each for each in known if each is not None}.values())

    # Called by the consumer: see ``Companion``

    def load(self, stored: bytes | None) -> None:
        """Load what is stored; where nothing is, the state begins, empty.

        StateUnreadable: what is stored cannot be read, or is of another topology.
        """
        manifest = None if stored is None else StateManifest.decode(stored)
        if manifest is not None and manifest.topology != self.name:
            raise StateUnreadable(
                f"expected the manifest of the state of topology {self.name!r}, got that of {manifest.topology!r}"
            )
        began = manifest or StateManifest(topology=self.name, life=secrets.token_hex(6))
        with self._lock:
            self._committed, self._offered = manifest, {}
            self._current = began.with_components(self._parallelism)

    def attachment(self) -> bytes | None:
        with self._lock:
            self._offered_at = time.time()
            current = self._current
            if current is None or current is self._committed:
                return None
            data = current.encode()
            self._offered[data] = current
            return data

    def committed(self, data: bytes) -> None:
        with self._lock:
            self._committed_at = self._offered_at
            manifest = self._offered.get(data)
            if manifest is not None:
                self._committed, self._offered = manifest, {}

    def lost(self) -> None:
        with self._lock:
            self._current, self._committed, self._offered = None, None, {}
