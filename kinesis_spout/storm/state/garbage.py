"""Deletes files of state that no manifest names any more."""

import logging
from collections.abc import Iterable
from typing import Final

from kinesis_spout.storm.state.files import StateFiles
from kinesis_spout.storm.state.manifest import StateManifest, life_folder

SWEEP_SECONDS: Final = 60.0
"""How often it is looked for garbage at most."""
STRAGGLER_SECONDS: Final = 3600.0
"""A file of so little age is left alone: the manifest that names it may be on its way."""

_log = logging.getLogger(__name__)


def collect_garbage(files: StateFiles, kept: Iterable[StateManifest], *, modified_before: float) -> int:
    """Delete what none of these manifests names, of their own state's folder only; give the number of files.

    What cannot be deleted is logged, and tried again the next time: it costs room and nothing else.

    Args:
        files: the address.
        kept: what is committed, what is about to be, and what is in force.
        modified_before: seconds since the epoch. It must be well before the beginning of a commit that succeeded
            and after which ``kept`` was taken: whoever took the state over since then wrote later.
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
    """Collects garbage after commits, now and then. Mutable.

    Args:
        files: the address.
        straggler_seconds: a file of so little age is left alone.
    """

    def __init__(self, files: StateFiles, straggler_seconds: float = STRAGGLER_SECONDS) -> None:
        self._files = files
        self._straggler_seconds = straggler_seconds
        self._due_at = 0.0

    def sweep(self, kept: Iterable[StateManifest], *, committing_since: float) -> int:
        """Collect, if ``SWEEP_SECONDS`` have passed since it was done last.

        Args:
            kept: see ``collect_garbage``.
            committing_since: when the commit began that has just succeeded, in seconds since the epoch.
        """
        if committing_since < self._due_at:
            return 0
        self._due_at = committing_since + SWEEP_SECONDS
        return collect_garbage(self._files, kept, modified_before=committing_since - self._straggler_seconds)
