"""The files of a spool that this process may change: its own, and those of ended processes that it took over.

Its own are begun one after the other. One is removed when all of its records are confirmed, and written anew when
most are.

The records of ended processes stay in their files until they are confirmed. Copying them would need room, and a
full disk may be why they were left; and if a second owner dies, a third finds them.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from math import inf
from pathlib import Path
from typing import Final

from kinesis_spout.model.directories import sync_directory
from kinesis_spout.model.errors import SpoolDamaged, SpoolError
from kinesis_spout.model.logs import counted
from kinesis_spout.producer.spool.folder import DAMAGED, FolderLock, SpoolFolder
from kinesis_spout.producer.spool.port import Spooled
from kinesis_spout.producer.spool.spool_file import SUFFIX, Fsync, SpoolFile, fsync, translated, unusable

_SEGMENT_BYTES: Final = 4 * 1024 * 1024
"""A file of this size takes no more."""
_PLACE_BITS: Final = 32
"""A record's number has its file's in its upper bits, and its place there in these."""
_PLACE: Final = (1 << _PLACE_BITS) - 1


class SpoolFiles:
    """Mutable; for one thread at a time. Everything here raises ``SpoolError`` if a file cannot be used now.

    Args:
        folder: an open one.
        unsynced_most: how many records may be with the operating system only; with 0 each write is synced.
        max_bytes: what this process's own files may take.
        fsync: for all of its files.
    """

    def __init__(
        self, folder: SpoolFolder, *, unsynced_most: float, max_bytes: float, fsync: Fsync = fsync
    ) -> None:
        self._folder = folder
        self._fsync = fsync
        self._unsynced_most = unsynced_most
        self._max_bytes = max_bytes
        self._segment_bytes = min(_SEGMENT_BYTES, max_bytes // 4)
        self._segments: dict[int, SpoolFile] = {}
        """By their numbers."""
        self._begun = 0
        """The number of them so far."""
        self._locks: dict[Path, FolderLock] = {}
        """By the folders that they lock."""
        self._own: Path | None = None
        """This process's folder; made when it is needed, so that a full disk can be emptied."""
        self._last: SpoolFile | None = None
        """The one that takes records."""
        self._unsynced = 0
        self._unread: deque[SpoolFile] = deque()
        """Those that were taken over, and may have more to read."""

    @property
    def size_bytes(self) -> int:
        return sum([segment.size_bytes for segment in list(self._segments.values())])

    def store(self, lines: list[bytes]) -> int:
        """Write lines, all or none of them; returns the number of the first."""
        if self._unsynced and self._unsynced + len(lines) > self._unsynced_most:
            self.sync()
        size_bytes = sum(map(len, lines))
        if self._full_with(size_bytes):
            self._make_room()
            if self._full_with(size_bytes):
                raise SpoolError(unusable(self._folder.path, f"files of {self._max_bytes} bytes: it is full"))
        last = self._last
        if last is None or not last.takes_more or last.size_bytes >= self._segment_bytes:
            self._end_last()
            last = self._begin()
        is_synced = len(lines) > self._unsynced_most
        place = last.append(lines, synced=is_synced)
        if not is_synced:
            self._unsynced += len(lines)
        return last.number << _PLACE_BITS | place

    def sync(self) -> None:
        """Return when all that was taken over is on the disk. A failure repeats until its cause is mended."""
        if self._last is not None and self._unsynced:
            self._last.sync()
            self._unsynced = 0

    def forget(self, numbers: Iterable[int]) -> None:
        """Remove what was confirmed."""
        places: dict[int, list[int]] = {}
        for number in numbers:
            places.setdefault(number >> _PLACE_BITS, []).append(number & _PLACE)
        with ExitStack() as each:  # whatever another raises
            for number in places.keys() & self._segments.keys():
                each.callback(self._forget_in, number, places[number])

    def read(self, limit: int) -> Sequence[Spooled]:
        """Return records of ended processes; see ``DiskSpool.recovered``."""
        while (segment := self._being_read()) is not None:
            try:
                found = segment.read(limit)
            except SpoolError:
                self._unread.rotate(-1)
                raise
            if found:
                return [Spooled(segment.number << _PLACE_BITS | place, entry) for place, entry in found]
            self._unread.popleft()
            damage = _damage(segment)
            if not segment.unconfirmed:
                self._remove(segment)
            if damage is not None:
                raise damage
        return ()

    def close(self) -> None:
        """Sync, and release everything, whatever fails."""
        with ExitStack() as closing:
            for lock in self._locks.values():
                closing.callback(lock.release)
            closing.callback(self._end_last)

    def rewrite(self) -> None:
        """Write files anew of which most is confirmed."""
        for segment in self._owned():
            if segment is not self._last and segment.is_worth_rewriting:
                segment.rewrite()

    def _begin(self) -> SpoolFile:
        """Begin a file that takes records."""
        if self._own is None:
            lock = self._folder.make()
            self._own = lock.path
            self._locks[lock.path] = lock
        number = self._begun = self._begun + 1
        last = self._segments[number] = SpoolFile(self._own / f"{number:06}{SUFFIX}", number, self._fsync)
        try:
            last.make()
            with translated(last.path):
                sync_directory(self._own)
        except BaseException:
            last.close()
            self._remove(last)
            raise
        self._last = last
        return last

    def _end_last(self) -> None:
        """Let the file that takes records take no more."""
        if (last := self._last) is None:
            return
        self.sync()
        last.close()
        self._last = None
        if not last.unconfirmed:
            self._remove(last)

    def _full_with(self, size_bytes: int) -> bool:
        if self._max_bytes == inf:
            return False
        return sum([segment.size_bytes for segment in self._owned()]) + size_bytes > self._max_bytes

    def _owned(self) -> list[SpoolFile]:
        return [segment for segment in self._segments.values() if segment.path.parent == self._own]

    def _make_room(self) -> None:
        if self._last is not None and self._last.is_mostly_confirmed:
            self._end_last()
        self.rewrite()

    def _forget_in(self, number: int, places: Iterable[int]) -> None:
        segment = self._segments[number]
        forgotten = segment.forget(places)
        is_over = not segment.unconfirmed and segment is not self._last and segment not in self._unread
        if not is_over or segment.damaged:
            segment.overwrite(forgotten)
        if is_over:
            self._remove(segment)

    def _remove(self, segment: SpoolFile) -> None:
        """Remove a file that has no unconfirmed records, or put it aside if it has damaged ones."""
        del self._segments[segment.number]
        with translated(segment.path):
            if segment.damaged:
                segment.path.rename(_aside(segment.path))
            else:
                segment.path.unlink(missing_ok=True)
        folder = segment.path.parent
        if not any(other.path.parent == folder for other in self._segments.values()):
            if folder == self._own:
                self._own = None  # another process may take one that stays
            self._locks.pop(folder).remove()

    def _being_read(self) -> SpoolFile | None:
        """Return the file to read, taking over others if needed; None if there is none."""
        if not self._unread and (left_over := self._folder.take_left_over()) is not None:
            lock, paths = left_over
            self._locks[lock.path] = lock
            for number, path in enumerate(paths, self._begun + 1):
                self._segments[number] = SpoolFile(path, number, self._fsync)
                self._unread.append(self._segments[number])
                self._begun = number
        return self._unread[0] if self._unread else None


def _aside(path: Path) -> Path:
    owned = path.parent
    return owned.with_name(f"{owned.stem}-{path.stem}{DAMAGED}")


def _damage(segment: SpoolFile) -> SpoolDamaged | None:
    if not segment.damaged:
        return None
    return SpoolDamaged(
        f"lost at least {counted(segment.damaged, 'record')} of the spool: damaged in {str(segment.path)!r}, "
        f"whose others are put. The file is kept as {str(_aside(segment.path))!r}: a line of text for each lost "
        "record, with its data in base64"
    )
