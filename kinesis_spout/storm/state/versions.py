"""The versions of a topology's state on the driver: the one in force, and the one that is committed."""

import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from functools import partial

from kinesis_spout.model.errors import StateUnreadable
from kinesis_spout.storm.state.files import StateFiles
from kinesis_spout.storm.state.maintenance import Sweeper, rescale
from kinesis_spout.storm.state.manifest import StateManifest, StateUpdate
from kinesis_spout.storm.state.partition import patiently


class KeyedState:
    """A consumer's companion (see ``kinesis_spout.consumer.ports``), and the runner's. Mutable; thread-safe."""

    def __init__(self, topology: str, address: str, parallelism: Mapping[str, int]) -> None:
        self.name = topology
        self.address = address
        self._parallelism = dict(parallelism)
        self._files = StateFiles(address)
        self._sweeper = Sweeper(self._files)
        self._lock = threading.Lock()
        self._current: StateManifest | None = None
        """The state that the next micro-batch begins with; None while it is not known: no shard is owned then."""
        self._committed: StateManifest | None = None
        self._offered: dict[bytes, StateManifest] = {}
        """What was handed over to be committed, and is not known to be: it can be what is stored."""
        self._offered_at = self._committed_at = 0.0

    # What the runner calls

    def begin(self) -> StateManifest | None:
        """The state that a job begins with, laid out for the current tasks; None if its shards were lost.

        StateUnreadable, StateUnavailable: it cannot be laid out again.
        """
        with self._lock:
            current, kept, committed_at = self._current, self.kept(), self._committed_at
        if committed_at:
            self._sweeper.sweep(kept, committing_since=committed_at)
        for component, tasks in self._parallelism.items():
            if current is not None and current.components[component].parallelism != tasks:
                laid_out = patiently(partial(rescale, self._files, current, component, tasks))
                with self._lock:
                    if self._current is not current:
                        return None
                    current = self._current = laid_out
        return current

    def settled(self, began_with: StateManifest, updates: Sequence[StateUpdate], time: float = 0.0) -> bool:
        """Take in what a micro-batch has changed, at the moment when its records are taken as finished.

        ``began_with`` is what ``begin`` gave it. False if the state was lost or replaced since: then the
        changes do not count, and its records must not be taken as finished.
        """
        with self._lock:
            if self._current is not began_with:
                return False
            if updates:
                self._current = began_with.with_updates(updates, time)
            return True

    def kept(self) -> tuple[StateManifest, ...]:
        known = (self._committed, *self._offered.values(), self._current)
        return tuple({id(each): each for each in known if each is not None}.values())

    # What the consumer calls: see ``Companion``

    def load(self, stored: bytes | None) -> None:
        """Where nothing is stored the state begins, empty.

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
