"""Notes of a task while it delivers, so that the death of its worker blames one record and costs no other.

Each task writes a file in a temporary folder of its machine. Its first part is mapped into memory and holds a
few numbers: how far each slice has come, and which record is under way. Writing one of them costs a fraction
of a microsecond, and what a process wrote there stays when it dies. Behind it follow entries, each appended
in one write: the failures as they happen, and the result of every slice that ended.

If several records are under way at a time, each record of the run has its own mark (``record_schedule``).

After a death the file shows what the task knew: the slices that had ended, those that had not begun,
and how far the others were. ``recovery`` makes results of that.
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
from kinesis_spout.spark.concurrency import record_schedule
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

Entry = tuple[int, int | None, bytes | WorkResult | None]
"""Slice number; record index in it, with its encoded failure (None: held); or the result."""

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Failure).decode

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
        """The number of records that the slice had dealt with before those that are handed over now."""

    def begin(self, base: int) -> None:
        self.base = base
        words = self.words
        words[_SLICE], words[_TOGETHER], words[_SINCE] = self._number, 1, int(monotonic() * 1000)

    def together(self, at: int, rows: int) -> None:
        """Note that a handler is called with several records, ``at`` after those before."""
        self.words[_TOGETHER] = rows
        self.words[UNDER_WAY] = self.base + at

    def begin_run(self, base: int, size: int) -> record_schedule.Marks:
        """Note that records are handed over several at a time, at most ``MARKS``. Returns their marks."""
        marks = bytearray(size) if self._journal is None else self._journal.marks
        marks[:size] = bytes(size)
        self.words[_MARKED_FROM] = base
        self.begin(base)
        return marks

    def failed(self, at: int, failure: Failure) -> bool:
        """Keep the failure of a record, ``at`` after those before. Returns whether the task is to stop."""
        if self._journal is not None:
            # To pickle it would cost several times as much.
            self._journal.append((self._number, self.base + at, _encode(failure)))
        return self.must_stop

    def held(self, at: int) -> None:
        """Keep that a record is held, ``at`` after those before."""
        if self._journal is not None:
            self._journal.append((self._number, self.base + at, None))

    def tick(self) -> bool:
        """Note the time, now and then, for the record under way. Returns whether the task is to stop."""
        self.words[_SINCE] = int(monotonic() * 1000)
        return self.must_stop

    @property
    def must_stop(self) -> bool:
        """Return whether the driver has stopped waiting for this task: no record may be handed over."""
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
            self._journal.append((self._number, None, result.pickled_once()))
        return result


class Journal:
    """The file of one running task. Mutable; used by one thread at a time. ``has_marks``: for concurrency."""

    def __init__(self, path: Path, slices: int, *, has_marks: bool = False) -> None:
        self._path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        numbers, marks = _WORD_BYTES * (_COUNTS + slices), MARKS if has_marks else 0
        size = numbers + marks
        os.posix_fallocate(
            self._file, 0, size
        )  # a disk that is full must say so here: a map could only crash
        os.lseek(self._file, 0, os.SEEK_END)
        self._map = mmap.mmap(self._file, size)
        self.words = memoryview(self._map).cast("q")
        self.marks = memoryview(self._map)[numbers:]
        self.words[UNDER_WAY], self.words[_MARKS] = _NONE, marks
        self.words[_PID], self.words[_PARENT], self.words[_SLICES] = os.getpid(), os.getppid(), slices

    def append(self, entry: Entry) -> None:
        """Write an entry, in one piece. If that fails the journal ends: half of one would mislead."""
        pickled = pickle.dumps(entry, pickle.HIGHEST_PROTOCOL)
        framed = len(pickled).to_bytes(_WORD_BYTES, "little") + pickled
        try:
            written = os.write(self._file, framed)
        except OSError as error:
            self._give_up(error)
        else:
            if written < len(framed):
                self._give_up(OSError("the disk is full"))

    def _give_up(self, error: OSError) -> None:
        _log.warning(
            "%s cannot be written (%s): a death of this task will cost more deliveries", self._path, error
        )
        self._path.unlink(missing_ok=True)

    def close(self) -> None:
        self.words[_ENDED] = 1
        self.words.release()
        self.marks.release()
        self._map.close()
        os.close(self._file)


@dataclass(frozen=True, slots=True, kw_only=True)
class Remains:
    results: dict[int, WorkResult] = field(default_factory=dict)
    """Results of the slices that had ended, by their index in the task."""
    counts: tuple[int, ...] = ()
    """The number of records that each slice had dealt with."""
    failures: dict[int, dict[int, Failure | None]] = field(default_factory=dict)
    """By slice, and by the record's index in it; None: it was held."""
    slice_number: int = 0
    under_way: int | None = None
    """The index of the record in whose handler the task was, in the slice above; None: in none."""
    together: int = 1
    """The number of records that its handler got together, from that one on."""
    marked_from: int = 0
    marks: bytes = b""
    """The progress of the records of the slice above from that index on, if several were under way at a time."""
    since: float = 0.0
    """When the record under way began, at the earliest; monotonic, and the same for all processes of a machine."""
    parent: int = 0
    """The process that had started the worker."""
    is_over: bool = True
    """True if nothing is written any more: the task has ended, or its process is gone."""

    @property
    def suspects(self) -> list[int]:
        """The indexes of the records in whose handlers the task was, in the slice above, one by one."""
        failed = self.failures.get(self.slice_number, {})
        marked = (
            self.marked_from + at for at, mark in enumerate(self.marks) if mark == record_schedule.UNDER_WAY
        )
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


def ask_to_stop(path: Path) -> None:
    try:
        with path.open("r+b") as file:
            file.seek(_WORD_BYTES * _STOP)
            file.write((1).to_bytes(_WORD_BYTES, "little"))
    except FileNotFoundError:
        _log.debug("%s: the task has not begun, or has ended", path)


def _parse(content: bytes) -> Remains:
    words = memoryview(content[: len(content) // _WORD_BYTES * _WORD_BYTES]).cast("q")
    slices = words[_SLICES]
    counts = tuple(words[_COUNTS : _COUNTS + slices])
    number, marked_from, marks_from = words[_SLICE], words[_MARKED_FROM], _WORD_BYTES * (_COUNTS + slices)
    entries_from = marks_from + words[_MARKS]
    marks = content[marks_from:entries_from].rstrip(b"\0")
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
    for of_slice, index, entry in _entries(content, entries_from):
        if isinstance(entry, WorkResult):
            remains.results[of_slice] = entry
        elif index is not None:
            failure = None if entry is None else _decode(entry)
            remains.failures.setdefault(of_slice, {})[index] = failure
    return remains


def _entries(content: bytes, start: int) -> "Iterator[Entry]":
    """The last entry can be torn, if its writer was killed."""
    while start + _WORD_BYTES <= len(content):
        length = int.from_bytes(content[start : start + _WORD_BYTES], "little")
        start += _WORD_BYTES
        if start + length > len(content):
            return
        yield pickle.loads(content[start : start + length])  # noqa: S301 - our own file, in our own folder
        start += length
