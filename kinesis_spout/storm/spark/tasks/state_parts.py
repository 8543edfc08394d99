"""The parts of keyed state that one task of Spark has, kept by its Python worker."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, TypeVar

from kinesis_spout.kinesis.patience import Patience, Tries
from kinesis_spout.model.clock import SystemClock
from kinesis_spout.model.errors import StateError
from kinesis_spout.storm.running.blocks import ForDriver
from kinesis_spout.storm.state import (
    PartitionState,
    StateFiles,
    StateManifest,
    StatePartition,
    StateUpdate,
)

_T = TypeVar("_T")

_PATIENCE: Final = Patience(
    deadline_seconds=10.0, first_backoff_seconds=0.2, backoff_cap_seconds=3.0, clock=SystemClock()
)
"""With a store of files that cannot be reached; then the job does not count, and its records are planned again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateBlock(ForDriver):
    """What a task's part of a state is after this job, if the job counts."""

    update: StateUpdate


@dataclass(frozen=True, slots=True, kw_only=True)
class StateFailed(ForDriver):
    """A task could not load or keep its part of a state, so the job does not count."""

    error: StateError


class StateParts:
    """Parts of state, by component and index. Mutable.

    Args:
        address: where the files are.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._files: StateFiles | None = None
        self._parts: dict[tuple[str, str, int, int], StatePartition] = {}
        self._in_use: list[StatePartition] = []
        self._failed: StateError | None = None

    def begin(self, manifest: StateManifest) -> Callable[[str, int], PartitionState]:
        """Begin a micro-batch; gives what loads the state of a task."""
        self._in_use = []
        self._failed = None

        def open_state(component: str, index: int) -> PartitionState:
            place = manifest.place(component, index)
            if self._files is None:
                self._files = StateFiles(self._address)
            key = (manifest.life, component, place.parallelism, index)
            if key not in self._parts:
                self._parts[key] = StatePartition(self._files, place)
            part = self._parts[key]
            try:
                patiently(lambda: part.load(manifest.files(component, index)))
            except StateError as error:
                self._failed = error  # A bolt that loads it by an emit may swallow that.
                raise
            self._in_use.append(part)
            return part.state

        return open_state

    def end_batch(self) -> Iterator[UpdateBlock]:
        """Write what has changed.

        Raises:
            UnfitValue: a bolt has left in its state what cannot be kept.
            StateError: it could not be loaded, or cannot be written.
        """
        if self._failed is not None:
            raise self._failed
        for part in self._in_use:
            update = patiently(part.end_batch)
            if update is not None:
                yield UpdateBlock(update=update)


def patiently(work: Callable[[], _T]) -> _T:
    """Do what needs the store of files, several times if that cannot be reached."""
    return Tries(_PATIENCE, "the state").call(work)
