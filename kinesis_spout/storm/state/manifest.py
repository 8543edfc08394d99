"""The manifest: names the files of a topology's keyed state, and is committed with the checkpoints of its moment.

A stateful bolt's state is split by its tasks. Each part is a list of files: the first one is whole, each further
one says what has changed since. A file that no manifest names is garbage, whatever it holds: so a crash between
the files and the commit leaves the state as it was.

**Merging.** New changes are merged with the last file while that is at most twice as large; so sizes at least
halve from file to file. A part has few files (their number grows as the logarithm of its size), and a change
is written again only as often as the files that hold it grow by half: amortised, a constant number of times
for each power of 1.5 between a micro-batch and the whole. Small files are always merged.

**Catching up.** A file of changes names the states to which it applies: those since the file before it in the
list. So a memory that is some micro-batches old reads only the last files, although older ones were merged
meanwhile. A state is named by its last file; no two files have the same name.
"""

import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import quote

from kinesis_spout.model.errors import InvalidConfig, StateUnreadable
from kinesis_spout.storm.components.open_windows import rest_seconds
from shard_state.stored_form import check_seal, mapping, sealed, text, texts, whole_number

_Value = TypeVar("_Value")

VERSION: Final = 1
_SUFFIX: Final = ".arrow"
_LONGEST_FOLDER_BYTES: Final = 255
"""The longest name of a folder, on the usual file systems."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPlace:
    topology: str
    life: str
    """The id of this state from its beginning to its removal. No other state's files are in its folder."""
    component: str
    parallelism: int
    index: int

    @property
    def folder(self) -> str:
        life = life_folder(self.topology, self.life)
        return f"{life}/{_segment(self.component)}/{self.parallelism}/{self.index}"

    def path(self, name: str) -> str:
        return f"{self.folder}/{name}{_SUFFIX}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StateUpdate:
    component: str
    index: int
    files: tuple[str, ...]
    """All of them: the whole one first. Empty: there is no key left."""
    sent: tuple[int, ...] = ()
    """The roots of the results that it has sent, of which the driver decides (see ``result``)."""
    retry_at: float = math.inf
    """When the first of its results that failed before is emitted again, in processing time."""


class FailedResults(NamedTuple):
    """The results of one task that failed, or wait after that."""

    roots: frozenset[int]
    """The roots of those that were sent, and failed; the task does not know that yet."""
    retry_at: float
    """When the first one is emitted again, in processing time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentState:
    parallelism: int
    files: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """By index of the task; a task without keys has none."""
    failed: Mapping[int, FailedResults] = field(default_factory=dict)
    """By index of the task; nearly always none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateManifest:
    topology: str
    life: str
    components: Mapping[str, ComponentState] = field(default_factory=dict)
    time: float = 0.0
    """Processing time of the micro-batch that made it, in seconds since the epoch; 0: not known."""

    def files(self, component: str, index: int) -> tuple[str, ...]:
        return self.components[component].files.get(index, ())

    def failed_results(self, component: str, index: int) -> frozenset[int]:
        found = self.components[component].failed.get(index)
        return frozenset() if found is None else found.roots

    @property
    def retry_at(self) -> float:
        """When the first result that failed is emitted again, in processing time; infinity if there is none."""
        found = (each.retry_at for state in self.components.values() for each in state.failed.values())
        return min(found, default=math.inf)

    def place(self, component: str, index: int) -> PartitionPlace:
        return PartitionPlace(
            topology=self.topology,
            life=self.life,
            component=component,
            parallelism=self.components[component].parallelism,
            index=index,
        )

    def paths(self) -> frozenset[str]:
        return frozenset(path for component in self.components for path in self.component_paths(component))

    def component_paths(self, component: str) -> list[str]:
        return [
            self.place(component, index).path(name)
            for index, names in self.components[component].files.items()
            for name in names
        ]

    def with_components(self, parallelism: Mapping[str, int]) -> "StateManifest":
        """The manifest for a topology with these stateful bolts.

        A bolt that has no files begins empty. One that has files keeps them and its parallelism: see
        ``rescale``. State of a bolt that is no longer there is kept, in case that it comes back.
        """
        components = dict(self.components)
        for component, tasks in parallelism.items():
            known = components.get(component)
            if known is None or not known.files:
                components[component] = ComponentState(parallelism=tasks)
        return self if components == self.components else replace(self, components=components)

    def with_updates(
        self, updates: Sequence[StateUpdate], time: float = 0.0, failed: Collection[int] = ()
    ) -> "StateManifest":
        """The manifest after a micro-batch that had this processing time. Components must be known.

        ``failed``: the roots of results whose trees failed in it.
        """
        components, now = dict(self.components), max(time, self.time)
        for update in updates:
            state, index = components[update.component], update.index
            roots = frozenset(failed).intersection(update.sent)
            results = FailedResults(roots, min(update.retry_at, now + rest_seconds(1) if roots else math.inf))
            components[update.component] = replace(
                state,
                files=_with(state.files, index, update.files or None),
                failed=_with(state.failed, index, results if results.retry_at < math.inf else None),
            )
        return replace(self, components=components, time=now)

    def with_component(
        self, component: str, parallelism: int, updates: Iterable[StateUpdate]
    ) -> "StateManifest":
        """The manifest in which one bolt's state is replaced, with other tasks."""
        known = self.components[component].failed if component in self.components else {}
        roots = frozenset[int]().union(*(each.roots for each in known.values()))
        updates = list(updates)
        files = {update.index: update.files for update in updates if update.files}
        failed = {
            update.index: FailedResults(roots.intersection(update.sent), self.time)
            for update in updates
            if known and update.sent
        }
        state = ComponentState(parallelism=parallelism, files=files, failed=failed)
        return replace(self, components={**self.components, component: state})

    def encode(self) -> bytes:
        """JSON, whose last field is the checksum of all bytes before it."""
        components = {name: _stored(state) for name, state in self.components.items()}
        return sealed(
            {
                "version": VERSION,
                "topology": self.topology,
                "life": self.life,
                "time": self.time,
                "components": components,
            }
        )

    @classmethod
    def decode(cls, stored: bytes) -> "StateManifest":
        """StateUnreadable: it is damaged, or of a newer version."""
        try:
            document = json.loads(stored)
            if document["version"] != VERSION:
                raise StateUnreadable(
                    f"expected the manifest of a topology's state, version {VERSION}, got version "
                    f"{document['version']!r}: if a newer kinesis-spout wrote it, upgrade this one"
                )
            check_seal(stored)
            return cls(
                topology=text(document["topology"]),
                life=text(document["life"]),
                components={name: _component(each) for name, each in mapping(document["components"]).items()},
                time=_time(document.get("time", 0.0)),
            )
        except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise StateUnreadable(
                f"expected the manifest of a topology's state (JSON, version {VERSION}), got {stored[:200]!r}: "
                f"{error}. Restore ZooKeeper's data; or begin again from a position of your choice with "
                "`kinesis-spout checkpoints reset --to PLACE`, which removes the state"
            ) from error


def life_folder(topology: str, life: str) -> str:
    """A state's folder, below the address of all state: one from its beginning to its end."""
    return f"{_segment(topology)}/{_segment(life)}"


def check_folder(what: str, name: str) -> None:
    """Refuse a name of a topology or a bolt that is too long for a folder; ``what`` it names is for messages."""
    size_bytes = len(_segment(name))
    if size_bytes > _LONGEST_FOLDER_BYTES:
        raise InvalidConfig(
            f"{what} {name!r}, which keeps state: expected a name of at most {_LONGEST_FOLDER_BYTES} bytes, as a "
            f"folder is named after it, where a letter that is not ASCII takes 6 or more, got {size_bytes} bytes"
        )


def _segment(name: str) -> str:
    quoted = quote(name, safe=" ")
    return quoted.replace(".", "%2E") if quoted in {".", ".."} else quoted


def _time(stored: object) -> float:
    if not isinstance(stored, (int, float)) or not math.isfinite(stored):
        raise ValueError(f"expected a time in seconds since the epoch, got {stored!r}")
    return float(stored)


def _component(stored: object) -> ComponentState:
    document = mapping(stored)
    files = {int(index): texts(names) for index, names in mapping(document["files"]).items()}
    failed = {int(index): _failed(each) for index, each in mapping(document.get("failed", {})).items()}
    return ComponentState(parallelism=whole_number(document["parallelism"]), files=files, failed=failed)


def _failed(stored: Any) -> FailedResults:
    retry_at, *roots = stored
    return FailedResults(frozenset(map(whole_number, roots)), _time(retry_at))


def _stored(state: ComponentState) -> dict[str, Any]:
    stored = {"parallelism": state.parallelism, "files": dict(sorted(state.files.items()))}
    failed = {index: [each.retry_at, *sorted(each.roots)] for index, each in sorted(state.failed.items())}
    return {**stored, "failed": failed} if failed else stored


def _with(known: Mapping[int, _Value], index: int, value: _Value | None) -> dict[int, _Value]:
    others = {each: kept for each, kept in known.items() if each != index}
    return others if value is None else {**others, index: value}


SMALL_BYTES: Final = 64 * 1024
"""A file of at most this many bytes is always merged with what comes next."""
_GROWTH: Final = 2
MAX_STATES: Final = 64
"""A file names this many states to which it applies, the newest. An older memory reads everything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateFile:
    """One file of a part. Two are the same if they have the same name."""

    name: str
    payload_bytes: int
    keys: Collection[Any] = ()
    """The keys that it changes; not needed of the first file of a part, which is whole."""
    after: tuple[str, ...] = ()
    """After which states it applies, the oldest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    keeps: int
    """This many of the files stay; the new one replaces the others. 0: it is whole."""
    keys: Collection[Any] = ()
    """The keys that the new file changes; none where it is whole."""
    after: tuple[str, ...] = ()
    """After which states it applies."""


def merge_of(files: Sequence[StateFile], changed: Collection[Any], changed_bytes: int) -> Merge:
    keys = dict.fromkeys(changed)
    size_bytes = float(changed_bytes)
    keeps = len(files)
    while keeps:
        last = files[keeps - 1]
        if last.payload_bytes > max(_GROWTH * size_bytes, SMALL_BYTES):
            break
        keeps -= 1
        if keeps:
            added = [key for key in last.keys if key not in keys]
            size_bytes += last.payload_bytes * len(added) / max(1, len(last.keys))
            keys.update(dict.fromkeys(added))
    if not keeps:
        return Merge(keeps=0)
    states = [state for file in files[keeps:] for state in (*file.after, file.name)]
    newest = tuple(dict.fromkeys(states))[-MAX_STATES:]
    return Merge(keeps=keeps, keys=keys, after=tuple(dict.fromkeys((files[keeps - 1].name, *newest))))


def catch_up(
    held: Sequence[str] | None, wanted: Sequence[str], after: Callable[[str], Collection[str]]
) -> Sequence[str] | None:
    """Decide what to read to come from the state of the files ``held``, None without any, to that of ``wanted``.

    Gives the files to apply to what is in memory; None: that is of no use, and all are to be read. ``after``
    gives the states to which a file applies. It is called only for files that are read in any case.
    """
    if held is not None and tuple(held) == tuple(wanted):
        return ()
    for first in range(len(wanted) - 1, 0, -1):
        if held and held[-1] in after(wanted[first]):
            return wanted[first:]
    return None
