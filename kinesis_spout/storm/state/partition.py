"""A worker's parts of a state: loaded, changed by a micro-batch, and written."""

from collections.abc import Callable, Iterator, Sequence
from math import inf
from typing import Final, NamedTuple, TypeVar

from kinesis_spout.kinesis.retry_policy import CallRetryPolicy, Tries
from kinesis_spout.model.clock import SystemClock
from kinesis_spout.model.errors import StateError
from kinesis_spout.storm.state.files import Rows, StateFiles, payload_bytes_of
from kinesis_spout.storm.state.key_values import PartitionState
from kinesis_spout.storm.state.manifest import (
    Merge,
    PartitionPlace,
    StateFile,
    StateManifest,
    StateUpdate,
    catch_up,
    merge_of,
)

_T = TypeVar("_T")

_RETRY_POLICY: Final = CallRetryPolicy(
    deadline_seconds=10.0, first_backoff_seconds=0.2, backoff_cap_seconds=3.0, clock=SystemClock()
)
"""With a store of files that cannot be reached; then the job does not count, and its records are planned again."""


class _Written(NamedTuple):
    files: list[StateFile]
    changes: Rows


class StatePartition:
    """One task's part, kept by a Python worker from micro-batch to micro-batch. Mutable; of one thread.

    Call ``load``, let the bolt work on ``state``, call ``end_batch``; then ``load`` again. Values that are
    put after ``end_batch``, or without it, are gone with the next ``load``.
    """

    def __init__(self, files: StateFiles, place: PartitionPlace) -> None:
        self._files = files
        self._place = place
        self.state = PartitionState(place.index, place.parallelism)
        self._held: list[StateFile] | None = None
        self._written: _Written | None = None

    def load(self, files: Sequence[str]) -> None:
        """Come to the state of these files, reading as little as possible.

        Nothing is read where the last micro-batch here led to it, or was dropped: its changes are taken or
        left. StateUnreadable: a file is gone or damaged. StateUnavailable: retriable.
        """
        self.state.forget_changes()
        written, self._written = self._written, None
        if written is not None and _names(written.files) == tuple(files):
            self.state.apply(written.changes)
            self._held = written.files
            return
        read: dict[str, tuple[StateFile, Rows]] = {}

        def read_of(name: str) -> tuple[StateFile, Rows]:
            if name not in read:
                read[name] = self._files.read(self._place, name)
            return read[name]

        held = None if self._held is None else _names(self._held)
        reads = catch_up(held, files, lambda name: read_of(name)[0].after)
        if reads is not None and not reads:
            return
        rows = [read_of(name)[1] for name in (files if reads is None else reads)]
        known = {file.name: file for file in self._held or ()} | {
            name: file for name, (file, _) in read.items()
        }
        self._held = None  # unless all of what follows succeeds
        if reads is None:
            self.state.forget_stored()
        for each in rows:
            self.state.apply(each)
        # A file that was merged elsewhere, and not read here, is not known: the list is then read as a whole.
        self._held = [known.get(name) or read_of(name)[0] for name in files]

    def end_batch(self) -> StateUpdate | None:
        """Write what the micro-batch has changed, durably; None if it has changed nothing.

        Raises as ``PartitionState.changed``; StateUnavailable: retriable.
        """
        held = self._held
        assert held is not None, "load comes first"
        changes = self.state.changed()
        if not changes:
            return None
        merge = merge_of(held, changes, payload_bytes_of(changes))
        rows = self._rows(changes, merge)
        files = held[: merge.keeps]
        if rows:
            number = 1 + (int(held[-1].name.partition("-")[0]) if held else 0)
            name = self._files.write(self._place, number, rows, merge.after)
            files.append(
                StateFile(
                    name=name,
                    payload_bytes=payload_bytes_of(rows),
                    keys=rows.keys() if merge.keeps else (),
                    after=merge.after,
                )
            )
        self._written = _Written(files, changes)
        results = self.state.results()
        return StateUpdate(
            component=self._place.component,
            index=self._place.index,
            files=_names(files),
            sent=tuple(key.root for key, result in results if result.not_before is None),
            retry_at=min((at for _, result in results if (at := result.not_before) is not None), default=inf),
        )

    def _rows(self, changes: Rows, merge: Merge) -> Rows:
        stored = self.state.stored
        if merge.keeps:
            return {key: changes[key] if key in changes else stored.get(key) for key in merge.keys}
        whole = {**stored, **changes}
        return {key: value for key, value in whole.items() if value is not None}


def _names(files: Sequence[StateFile]) -> tuple[str, ...]:
    return tuple(file.name for file in files)


class StateParts:
    """The parts that one stage of a worker has, by component and index. Mutable."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._files: StateFiles | None = None
        self._parts: dict[tuple[str, str, int, int], StatePartition] = {}
        self._in_use: list[StatePartition] = []
        self._failed: StateError | None = None

    def begin(self, manifest: StateManifest) -> Callable[[str, int], PartitionState]:
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
                self._failed = error  # A bolt that loads it by an emit can swallow that.
                raise
            self._in_use.append(part)
            part.state.decide_results(manifest.failed_results(component, index), manifest.time)
            return part.state

        return open_state

    def end_batch(self) -> Iterator[StateUpdate]:
        """Write what has changed.

        UnfitValue: a bolt has left in its state what cannot be kept. StateError: it cannot be loaded or
        written.
        """
        if self._failed is not None:
            raise self._failed
        for part in self._in_use:
            update = patiently(part.end_batch)
            if update is not None:
                yield update


def patiently(work: Callable[[], _T]) -> _T:
    """Do what needs the store of files, several times if that cannot be reached."""
    return Tries(_RETRY_POLICY, "the state").call(work)
