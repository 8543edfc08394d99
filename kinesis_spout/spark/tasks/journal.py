"""What a task notes while it delivers, so that the death of its worker blames one record and costs no other.

Each task writes a file in a temporary folder of its machine. Its first part is mapped into memory and holds a
few numbers: how far each slice has come, and which record is under way. Writing one of them costs a fraction
of a microsecond, and what a process wrote there stays when it dies. Behind it follow entries: the failures as
they happen, and the result of every slice that ended. They are written through the map as well, since a system
call for each would cost more than the failure; an entry counts once its length is written, which is written last.

Where several records are under way at a time, each record of the run has its own mark (``record_run``).

After a death the file shows what the task knew: the slices that had ended, those that had not begun,
and how far the others were. ``recovery`` makes results of that. A driver on the same machine takes results from
here when all went well, too: Spark would copy their records a dozen times.
"""

import logging
import mmap
import os
import pickle
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Final

import msgspec

from kinesis_spout.model.handler import Failure
from kinesis_spout.processes.liveness import has_ended
from kinesis_spout.spark.concurrency import record_run
from kinesis_spout.spark.tasks.coalescing import CoalescingWindow
from kinesis_spout.spark.tasks.work import WorkResult

UNDER_WAY: Final = 0
"""The index of the word for the record under way, among those dealt with in its slice; -1: none."""
_TOGETHER, _SLICE, _SINCE, _STOP, _ENDED, _PID, _PARENT, _SLICES, _MARKED_FROM, _MARKS = range(1, 11)
_COUNTS: Final = 11
"""The first word of the counts: how many records each slice has dealt with."""
_NONE: Final = -1
_WORD_BYTES: Final = 8
MARKS: Final = 16_384
"""The most records of a run; a whole number of words."""

_ROOM_BYTES: Final = 16 * 1024
"""For entries, at first; it doubles."""
_LARGE_BYTES: Final = 16 * 1024
"""So much is copied faster by a system call than page by page."""

_FailedEntry = tuple[int, int, Failure | None]
"""Slice number; record index in it; None: it was held."""
_PickledEntry = tuple[int, WorkResult | CoalescingWindow]
"""Slice number; what is noted of it."""

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(_FailedEntry).decode

if TYPE_CHECKING:
    from collections.abc import Iterator


_log = logging.getLogger(__name__)


class SliceNotes:
    """The notes on one slice of a task. Mutable."""

    def __init__(self, journal: "Journal | None", number: int) -> None:
        self._journal = journal
        self._number = number
        words = memoryview(bytearray(_WORD_BYTES * _COUNTS)).cast("q")
        self.words = words if journal is None else journal.words
        """Write the index of a record to ``words[UNDER_WAY]`` before its handler is called."""
        self.base = 0
        """How many records the slice had dealt with before those that are handed over now."""

    def begin(self, base: int) -> None:
        self.base = base
        words = self.words
        words[_SLICE], words[_TOGETHER], words[_SINCE] = self._number, 1, int(monotonic() * 1000)

    def together(self, at: int, rows: int) -> None:
        """Note that a handler is called with several records, ``at`` after those before."""
        self.words[_TOGETHER] = rows
        self.words[UNDER_WAY] = self.base + at

    def begin_run(self, base: int, size: int) -> record_run.Marks:
        """Note that records are handed over several at a time, at most ``MARKS``. Returns their marks."""
        marks = bytearray(size) if self._journal is None else self._journal.marks
        marks[:size] = bytes(size)
        self.words[_MARKED_FROM] = base
        self.begin(base)
        return marks

    def failed(self, at: int, failure: Failure) -> bool:
        """Keep the failure of a record, ``at`` after those before. Returns whether the task is to stop."""
        if self._journal is not None:
            self._journal.append_failure((self._number, self.base + at, failure))
        return self.must_stop

    def held(self, at: int) -> None:
        """Keep that a record is held, ``at`` after those before."""
        if self._journal is not None:
            self._journal.append_failure((self._number, self.base + at, None))

    def coalesces(self, window: CoalescingWindow) -> None:
        """Keep the stand-ins of the next records. Handlers' indices then count only those handed over."""
        if self._journal is not None:
            self._journal.append((self._number, window))

    def tick(self) -> bool:
        """Note the time, now and then, for the record under way. Returns whether the task is to stop."""
        self.words[_SINCE] = int(monotonic() * 1000)
        return self.must_stop

    @property
    def must_stop(self) -> bool:
        """Whether the driver has stopped waiting for this task: no record may be handed over."""
        return bool(self.words[_STOP])

    def stop(self) -> None:
        self.words[_STOP] = 1

    def reached(self, count: int) -> None:
        """Note that the handler has returned, and how many records the slice has dealt with by now."""
        if self._journal is not None:
            self.words[_COUNTS + self._number] = count
        self.words[UNDER_WAY] = _NONE

    def ended(self, result: WorkResult) -> WorkResult:
        if self._journal is not None:
            self._journal.append((self._number, result))
        return result


class Journal:
    """The file of one running task. Mutable; used by one thread at a time. ``has_marks``: for concurrency."""

    def __init__(self, path: Path, slices: int, *, has_marks: bool = False) -> None:
        self._path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        numbers, marks = _WORD_BYTES * (_COUNTS + slices), MARKS if has_marks else 0
        self._at = numbers + marks
        """Where the next entry begins."""
        self._map = self._entries = self._grown(self._at + _ROOM_BYTES)
        self.words = memoryview(self._map)[: len(self._map) // _WORD_BYTES * _WORD_BYTES].cast("q")
        self.marks = memoryview(self._map)[numbers : numbers + marks]
        self.is_whole = True
        """Whether all that was to be noted is in the file."""
        self.words[UNDER_WAY], self.words[_MARKS] = _NONE, marks
        self.words[_PID], self.words[_PARENT], self.words[_SLICES] = os.getpid(), os.getppid(), slices

    def append_failure(self, entry: _FailedEntry) -> None:
        # To pickle it would cost several times as much.
        self._append(_encode(entry), is_pickled=False)

    def append(self, entry: _PickledEntry) -> None:
        self._append(pickle.dumps(entry, pickle.HIGHEST_PROTOCOL), is_pickled=True)

    def _append(self, body: bytes, *, is_pickled: bool) -> None:
        """Write an entry. If that fails the journal ends: a part of it would mislead."""
        if not self.is_whole:
            return
        begin = self._at + _WORD_BYTES
        end = begin + len(body)
        following = _aligned(end)
        try:
            if following + _WORD_BYTES > len(self._entries):
                self._entries = self._grown(max(2 * len(self._entries), following + _ROOM_BYTES))
            if len(body) < _LARGE_BYTES:
                self._entries[begin:end] = body
            elif os.pwrite(self._file, body, begin) < len(body):
                raise OSError("the disk is full")  # noqa: TRY301 - one way to give up
        except OSError as error:
            self._give_up(error)
            return
        # Last: whoever reads finds the whole entry, or none.
        self._entries[self._at : begin] = (2 * len(body) + is_pickled).to_bytes(_WORD_BYTES, "little")
        self._at = following

    def _grown(self, size: int) -> mmap.mmap:
        # A disk that is full must say so here: a map could only crash.
        os.posix_fallocate(self._file, 0, size)
        return mmap.mmap(self._file, size)

    def _give_up(self, error: OSError) -> None:
        _log.warning(
            "%s cannot be written (%s): a death of this task will cost more deliveries", self._path, error
        )
        self.is_whole = False
        self._path.unlink(missing_ok=True)

    def close(self) -> None:
        self.words[_ENDED] = 1
        self.words.release()
        self.marks.release()
        self._map.close()
        self._entries.close()
        os.close(self._file)


def _aligned(size: int) -> int:
    return -(-size // _WORD_BYTES) * _WORD_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Remains:
    results: dict[int, WorkResult] = field(default_factory=dict)
    """Of the slices that had ended, by their index in the task."""
    counts: tuple[int, ...] = ()
    """How many records each slice had dealt with."""
    failures: dict[int, dict[int, Failure | None]] = field(default_factory=dict)
    """By slice, and by the record's index in it; None: it was held."""
    windows: dict[int, list[CoalescingWindow]] = field(default_factory=dict)
    """Where records were coalesced, by slice. The indices here are those of ``CoalescingWindows.index_of``."""
    slice_number: int = 0
    under_way: int | None = None
    """The index of the record in whose handler the task was, in the slice above; None: in none."""
    together: int = 1
    """How many records its handler got together, from that one on."""
    marked_from: int = 0
    marks: bytes = b""
    """How far the records of the slice above had come from that index on, if several were under way at a time."""
    since: float = 0.0
    """When the record under way began, at the earliest; monotonic, and the same for all processes of a machine."""
    parent: int = 0
    """The process that had started the worker."""
    is_over: bool = True
    """Whether nothing is written any more: the task has ended, or its process is gone."""

    @property
    def suspects(self) -> list[int]:
        """The indexes of the records in whose handlers the task was, in the slice above, one by one."""
        failed = self.failures.get(self.slice_number, {})
        marked = (self.marked_from + at for at, mark in enumerate(self.marks) if mark == record_run.UNDER_WAY)
        return [at for at in marked if at not in failed]

    def hangs_since(self, time: float) -> bool:
        return (self.under_way is not None or bool(self.suspects)) and self.since < time


def read(path: Path) -> Remains | None:
    """Read the notes of a task, which is possibly still running; None if it has noted nothing."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    return _parse(content) if len(content) >= _WORD_BYTES * _COUNTS else None


def results(path: Path) -> list[WorkResult]:
    """The results in the notes of a task that has ended; none if the file is gone."""
    try:
        content = memoryview(path.read_bytes())
    except FileNotFoundError:
        return []
    found = []
    for is_pickled, body in _entries(content, _entries_from(_words(content))):
        if is_pickled:
            _, noted = pickle.loads(body)  # noqa: S301 - our own file, in our own folder
            if isinstance(noted, WorkResult):
                found.append(noted)
    return found


def ask_to_stop(path: Path) -> None:
    try:
        with path.open("r+b") as file:
            file.seek(_WORD_BYTES * _STOP)
            file.write((1).to_bytes(_WORD_BYTES, "little"))
    except FileNotFoundError:
        _log.debug("%s: the task has not begun, or has ended", path)


def _words(content: memoryview) -> memoryview:
    return content[: len(content) // _WORD_BYTES * _WORD_BYTES].cast("q")


def _entries_from(words: memoryview) -> int:
    return _WORD_BYTES * (_COUNTS + words[_SLICES]) + int(words[_MARKS])


def _parse(content: bytes) -> Remains:
    words = _words(memoryview(content))
    slices = words[_SLICES]
    counts = tuple(words[_COUNTS : _COUNTS + slices])
    number, marked_from, entries_from = words[_SLICE], words[_MARKED_FROM], _entries_from(words)
    marks = content[entries_from - words[_MARKS] : entries_from].rstrip(b"\0")
    remains = Remains(
        counts=counts,
        slice_number=number,
        marked_from=marked_from,
        # Once a run is over its marks mean nothing.
        marks=marks if number < slices and counts[number] == marked_from else b"",
        under_way=None if words[UNDER_WAY] == _NONE else words[UNDER_WAY],
        together=words[_TOGETHER],
        since=words[_SINCE] / 1000,
        parent=words[_PARENT],
        is_over=bool(words[_ENDED]) or has_ended(words[_PID]),
    )
    for is_pickled, body in _entries(memoryview(content), entries_from):
        if not is_pickled:
            of_slice, index, failure = _decode(body)
            remains.failures.setdefault(of_slice, {})[index] = failure
            continue
        noted: _PickledEntry = pickle.loads(body)  # noqa: S301 - our own file, in our own folder
        of_slice, entry = noted
        if isinstance(entry, WorkResult):
            remains.results[of_slice] = entry
        else:
            remains.windows.setdefault(of_slice, []).append(entry)
    return remains


def _entries(content: memoryview, at: int) -> "Iterator[tuple[bool, memoryview]]":
    """Each entry, and whether it is pickled. The last one ends where no length is written (yet)."""
    while at + _WORD_BYTES <= len(content):
        word = int.from_bytes(content[at : at + _WORD_BYTES], "little")
        begin, length = at + _WORD_BYTES, word // 2
        if not length:
            return
        yield bool(word % 2), content[begin : begin + length]
        at = _aligned(begin + length)
