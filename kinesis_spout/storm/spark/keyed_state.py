"""The keyed state of a running topology, on the driver: which version a job begins with, and what follows."""

import threading
import time
from collections.abc import Mapping, Sequence
from functools import partial

from kinesis_spout.spark.tasks.jobs import HandlerRaised
from kinesis_spout.storm.spark.tasks.state_parts import patiently
from kinesis_spout.storm.state import (
    StateFiles,
    StateManifest,
    StateUpdate,
    StateVersions,
    Sweeper,
    rescale,
)


class KeyedState:
    """The companion of a consumer (see ``kinesis_spout.consumer.ports``), and of the runner. Mutable; thread-safe.

    Args:
        topology: its name, and that of the state.
        address: where the files are.
        parallelism: of each stateful bolt.
    """

    def __init__(self, topology: str, address: str, parallelism: Mapping[str, int]) -> None:
        self.address = address
        self._files = StateFiles(address)
        self._versions = StateVersions(topology, parallelism)
        self._sweeper = Sweeper(self._files)
        self._lock = threading.Lock()
        self._offered_at = 0.0
        self._committed_at = 0.0

    # What the runner calls

    def begin(self) -> StateManifest:
        """Give the state that a job begins with, laid out for the tasks of now. Does I/O.

        Raises:
            HandlerRaised: there is none, because the shards were lost.
            StateUnreadable, StateUnavailable: it has to be laid out anew, and cannot.
        """
        with self._lock:
            current, outgrown, kept = self._versions.current, self._versions.outgrown, self._versions.kept()
        if current is None:
            raise HandlerRaised("the shards of the micro-batch were lost before it began")
        if self._committed_at:
            self._sweeper.sweep(kept, committing_since=self._committed_at)
        for component, parallelism in outgrown.items():
            laid_out = patiently(partial(rescale, self._files, current, component, parallelism))
            with self._lock:
                if not self._versions.replaced(current, laid_out):
                    raise HandlerRaised("the shards of the micro-batch were lost before it began")
            current = laid_out
        return current

    def settled(self, began_with: StateManifest, updates: Sequence[StateUpdate], time: float = 0.0) -> bool:
        """Take in what a job has changed; see ``StateVersions.settled``."""
        with self._lock:
            return self._versions.settled(began_with, updates, time)

    # What the consumer calls: see ``Companion``

    @property
    def name(self) -> str:
        return self._versions.name

    def load(self, stored: bytes | None) -> None:
        with self._lock:
            self._versions.load(stored)

    def attachment(self) -> bytes | None:
        with self._lock:
            self._offered_at = time.time()
            return self._versions.attachment()

    def committed(self, data: bytes) -> None:
        with self._lock:
            self._committed_at = self._offered_at
            self._versions.committed(data)

    def lost(self) -> None:
        with self._lock:
            self._versions.lost()
