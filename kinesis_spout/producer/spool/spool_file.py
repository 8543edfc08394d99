"""One file of a spool: a record a line, as JSON that carries a checksum (version 2), in the order they were put.

    {"crc32":"1c291ca3","partition_key":"customer-7","explicit_hash_key":null,"data":"aGVsbG8="}

A confirmed record is overwritten with tabs, which needs no room. No tab, line end or ``{"crc32":"`` comes
within a record, because JSON escapes them: so reading continues behind whatever is damaged, and a wrong bit
costs the record that it is in. A kill leaves a last line without its end, or a line that is partly tabs: no
record that is owed.
"""

import fcntl
import os
import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from kinesis_spout.kinesis.write.put_records import Entry
from kinesis_spout.model.directories import sync_directory
from kinesis_spout.model.errors import SpoolDamaged, SpoolError
from kinesis_spout.model.logs import counted

SUFFIX: Final = ".jsonl"
UNFINISHED: Final = ".new"

_MARK: Final = b'{"crc32":"'
_BODY_AT: Final = len(_MARK) + 8 + len('",')
Fsync = Callable[[int], None]
"""Returns when the disk has what was written to a descriptor."""

_CONFIRMED: Final = b"\t"
_RUN: Final = 2 * _CONFIRMED
"""Two at once: one may be a wrong bit."""


class _Stored(msgspec.Struct):
    partition_key: str
    explicit_hash_key: str | None
    data: bytes


_decode: Final = msgspec.json.Decoder(_Stored).decode


def line_of(entry: Entry) -> bytes:
    """Return a record as it is stored. Its ``row`` is left out: it means nothing to the next owner.

    Raises:
        UnicodeEncodeError: the partition key can neither be stored nor sent.
    """
    body = msgspec.json.encode(_Stored(entry.partition_key, entry.explicit_hash_key, entry.data))[1:]
    return b'%b%08x",%b\n' % (_MARK, zlib.crc32(body), body)


class SpoolLine(NamedTuple):
    """A line that is not confirmed."""

    start: int
    end: int
    entry: Entry | None
    """None if it is damaged."""


def lines_in(text: bytes) -> Iterator[SpoolLine]:
    start, was_damaged = 0, False
    while start < len(text):
        found = text.find(b"\n", start)
        end = len(text) if found < 0 else found
        for line in _lines_between(text, start, end):
            is_damaged = line.entry is None
            if is_damaged and (found < 0 or (was_damaged and not text.startswith(_MARK, line.start))):
                continue  # it was never written further, or is the rest of the record before
            was_damaged = is_damaged
            yield line
        start = end + 1


def _lines_between(text: bytes, start: int, end: int) -> Iterator[SpoolLine]:
    """Yield what is in one line: several, if the end of one is damaged."""
    at = start
    while at < end:
        following = text.find(_MARK, at + 1, end)
        to = end if following < 0 else following
        closing = text.rfind(b"}", at, to) + 1 or to
        entry = _entry(text[at:closing])
        if entry is not None:
            yield SpoolLine(at, closing, entry)
        elif not _is_confirmed(text[at:to]):
            yield SpoolLine(at, to, None)
        at = to


def _entry(line: bytes) -> Entry | None:
    body = line[_BODY_AT:]
    if not line.startswith(b"%b%08x" % (_MARK, zlib.crc32(body))):
        return None
    try:
        stored = _decode(b"{" + body)
    except msgspec.DecodeError:
        return None
    return Entry(stored.partition_key, stored.data, stored.explicit_hash_key)


def _is_confirmed(line: bytes) -> bool:
    """Return whether it is overwritten, or was being overwritten when the process or the power ended."""
    return _RUN in line or line.startswith(_CONFIRMED) or line.endswith(_CONFIRMED)


class SpoolFile:
    """A file that this process may change, whose records are known by their places in it, from 0. Mutable.

    Not thread-safe. Every method raises ``SpoolError`` if the file cannot be read or written now.
    """

    def __init__(self, path: Path, number: int, fsync: Fsync) -> None:
        self.path = path
        self.number: Final = number
        """The file's, in its spool."""
        self._fsync = fsync
        self.size_bytes = 0
        self.unconfirmed = 0
        self.damaged = 0
        """The number of damaged lines that were read."""
        self._starts = array("Q")
        self._ends = array("Q")
        self._is_owed = bytearray()
        self._owed_bytes = 0
        self._lines: Iterator[SpoolLine] | None = None
        self._descriptor: int | None = None
        self._rewritten_at = 0

    def make(self) -> None:
        """Make the file, to append to."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with translated(self.path):
            self._descriptor = os.open(self.path, flags, 0o600)

    @property
    def takes_more(self) -> bool:
        return self._descriptor is not None

    @property
    def is_mostly_confirmed(self) -> bool:
        return 2 * self._owed_bytes < self.size_bytes

    @property
    def is_worth_rewriting(self) -> bool:
        """True if it is mostly confirmed, and more so than at the last try: the disk may be full."""
        return self.is_mostly_confirmed and self.unconfirmed != self._rewritten_at

    def append(self, lines: Sequence[bytes], *, synced: bool) -> int:
        """Write lines, all or none of them, and return the place of the first."""
        assert self._descriptor is not None, "only a file that was made takes more"
        text, before, first = b"".join(lines), self.size_bytes, len(self._starts)
        with translated(self.path):
            try:
                _write(self._descriptor, text)
                if synced:
                    self._sync()
            except BaseException:
                self._cut(before)
                raise
        for line in lines:
            self._owe(self.size_bytes, self.size_bytes + len(line) - 1)
            self.size_bytes += len(line)
        return first

    def _cut(self, size_bytes: int) -> None:
        """Remove what could not be written whole."""
        try:
            os.truncate(self.path, size_bytes)
        except OSError:
            self.close()
            raise

    def sync(self) -> None:
        """Return when everything is on the disk.

        When that fails the system may forget what it holds, and a second try would say that all is well. So the
        file takes no more, and the next call writes it anew.
        """
        with translated(self.path):
            if self._descriptor is None:
                self.rewrite()
            else:
                self._sync()

    def _sync(self) -> None:
        assert self._descriptor is not None, "asked before"
        try:
            self._fsync(self._descriptor)
        except OSError:
            self.close()
            raise

    def read(self, limit: int) -> Sequence[tuple[int, Entry]]:
        """Return up to so many more records, each with its place; empty when all was read."""
        if self._lines is None:
            with translated(self.path):
                text = self.path.read_bytes() if self.path.exists() else b""  # somebody may have removed it
            self.size_bytes = len(text)
            self._lines = lines_in(text)
        found: list[tuple[int, Entry]] = []
        while len(found) < limit and (line := next(self._lines, None)) is not None:
            if line.entry is None:
                self.damaged += 1
            else:
                found.append((len(self._starts), line.entry))
                self._owe(line.start, line.end)
        return found

    def forget(self, places: Iterable[int]) -> list[int]:
        """Count records as confirmed; returns those that were not, in their order."""
        known = sorted(place for place in places if place < len(self._is_owed) and self._is_owed[place])
        for place in known:
            self._is_owed[place] = False
            self._owed_bytes -= self._ends[place] - self._starts[place]
        self.unconfirmed -= len(known)
        return known

    def overwrite(self, places: Sequence[int]) -> None:
        """Overwrite confirmed records. This is not synced: after a power cut some may exist again."""
        if not places:
            return
        with translated(self.path):
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC)
            try:
                for start, end in self._runs(places):
                    os.pwrite(descriptor, _CONFIRMED * (end - start), start)
            finally:
                os.close(descriptor)

    def rewrite(self) -> None:
        """Replace the file by one of what is not confirmed.

        Raises:
            SpoolDamaged: records are damaged, once for each; the others are written. It keeps damaged ones.
        """
        self._rewritten_at = self.unconfirmed
        unfinished = self.path.with_name(self.path.name + UNFINISHED)
        with translated(self.path):
            text = self.path.read_bytes()
            owed = [place for place, is_owed in enumerate(self._is_owed) if is_owed]
            lines = [text[self._starts[place] : self._ends[place]] + b"\n" for place in owed]
            try:
                descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
                try:
                    _write(descriptor, b"".join(lines))
                    self._fsync(descriptor)
                finally:
                    os.close(descriptor)
                unfinished.rename(self.path)
            except BaseException:
                unfinished.unlink(missing_ok=True)
                raise
        self.size_bytes = 0
        for place, line in zip(owed, lines, strict=True):
            self._starts[place], self._ends[place] = self.size_bytes, self.size_bytes + len(line) - 1
            self.size_bytes += len(line)
        with translated(self.path):
            sync_directory(self.path.parent)
        damaged = [
            place for place, line in zip(owed, lines, strict=True) if _entry(line.removesuffix(b"\n")) is None
        ]
        if damaged:
            self.damaged += len(self.forget(damaged))
            raise SpoolDamaged(
                f"lost {counted(len(damaged), 'record')} in {str(self.path)!r}: the disk did not keep what was "
                "written; this producer still puts what it has in memory, but a crash loses it; check the disk"
            )

    def close(self) -> None:
        """Take no more. Idempotent."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def _owe(self, start: int, end: int) -> None:
        self._starts.append(start)
        self._ends.append(end)
        self._is_owed.append(True)
        self._owed_bytes += end - start
        self.unconfirmed += 1

    def _runs(self, places: Iterable[int]) -> Iterator[tuple[int, int]]:
        """Yield where to overwrite: few places, as records are confirmed in order."""
        start = end = -1
        for place in places:
            if self._starts[place] != end + 1 or end < 0:
                if end >= 0:
                    yield start, end
                start = self._starts[place]
            end = self._ends[place]
        if end >= 0:
            yield start, end


def fsync(descriptor: int) -> None:
    """Return when the disk has the file."""
    whole = getattr(fcntl, "F_FULLFSYNC", None)  # macOS: fsync alone leaves it in the drive's cache
    if whole is None:
        os.fsync(descriptor)
    else:
        fcntl.fcntl(descriptor, whole)


def _write(descriptor: int, text: bytes) -> None:
    left = memoryview(text)
    while left:
        left = left[os.write(descriptor, left) :]


@contextmanager
def translated(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SpoolError(unusable(path.parent, error)) from error


def unusable(folder: Path, why: object) -> str:
    return (
        f"expected to read and write the spool in {str(folder)!r}, got {why}; give its disk free space, or "
        "this user the right to write there, and put again: the records that it took over before are kept"
    )
