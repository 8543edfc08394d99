"""Which files of a part to write again together with its newest changes, and which of them a memory still lacks.

**Merging.** New changes are merged with the last file while that is at most twice as large; so sizes at least
halve from file to file. A part has few files (their number grows as the logarithm of its size), and a change
is written again only as often as the files that hold it grow by half: amortised, a constant number of times
for each power of 1.5 between a micro-batch and the whole. Small files are always merged.

**Catching up.** A file of changes names the states to which it applies: those since the file before it in the
list. So a memory that is some micro-batches old reads only the last files, although older ones were merged
meanwhile. A state is named by its last file; no two files have the same name.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

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
    """What it changes; of the first file of a part, which is whole, it is not needed."""
    after: tuple[str, ...] = ()
    """After which states it applies, the oldest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    keeps: int
    """This many of the files stay; the new one replaces the others. 0: it is whole."""
    keys: Collection[Any] = ()
    """What the new file changes; nothing where it is whole."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class CatchUp:
    keeps_memory: bool
    """Whether the files are applied to what is in memory; else to nothing."""
    reads: tuple[str, ...] = ()


def catch_up(
    held: Sequence[str] | None, wanted: Sequence[str], after: Callable[[str], Collection[str]]
) -> CatchUp:
    """Decide what to read to come from the state of the files ``held``, None without any, to that of ``wanted``.

    ``after`` gives the states to which a file applies. It is called only for files that are read in any case.
    """
    if held is not None and tuple(held) == tuple(wanted):
        return CatchUp(keeps_memory=True)
    for first in range(len(wanted) - 1, 0, -1):
        if held and held[-1] in after(wanted[first]):
            return CatchUp(keeps_memory=True, reads=tuple(wanted[first:]))
    return CatchUp(keeps_memory=False, reads=tuple(wanted))
