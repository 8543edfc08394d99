"""``SqliteSpool``: the spool on a local disk.

A record waits in memory first. With ``Durability.INTERVAL`` it may stay there for a while; with the others
the caller continues only when it is in the file, and callers that wait at the same time share a write.

Confirmed records are removed later, some hundreds at a time: forgetting that a record was confirmed only
sends it again. A record that is confirmed before it was written is never written.
"""

import atexit
import contextlib
import logging
import os
import threading
from collections.abc import Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final, Self
from weakref import WeakSet

from kinesis_spout.kinesis.write.put_records import Entry
from kinesis_spout.model.clock import Clock
from kinesis_spout.model.errors import InvalidConfig, SpoolError
from kinesis_spout.producer.spool.folder import Claim, SpoolFolder, side_files
from kinesis_spout.producer.spool.inherited import InheritedRecords
from kinesis_spout.producer.spool.port import Spooled
from kinesis_spout.producer.spool.shared_writes import SharedWrites
from kinesis_spout.producer.spool.spool_file import Row, SpoolFile, row_of

_log = logging.getLogger(__name__)

_FORGOTTEN_AT_ONCE: Final = 256
"""So many confirmed records are removed together with the next write."""
_DAY_SECONDS: Final = 86_400
_LEAST_BYTES: Final = 64 * 1024
_TIDY_SECONDS: Final = 0.5
"""After this time confirmed records are removed without a write."""


class Durability(StrEnum):
    """When a record of the spool is safe, and so what a crash can lose.

    The file is a SQLite database in WAL mode. With ``synchronous=FULL`` SQLite syncs the log at each commit;
    with ``NORMAL`` only before a checkpoint, so that the file stays valid but the last commits may be missing
    after a power cut. A commit survives the death of the process either way.
    https://www.sqlite.org/pragma.html#pragma_synchronous
    """

    RECORD = "record"
    """On the disk (fsync) before ``append`` returns; threads that append at the same time share one fsync.
    Loses nothing, neither when the process dies nor in a power cut."""

    INTERVAL = "interval"
    """On the disk (fsync) after so many records, or so many seconds, whichever comes first.
    The death of the process and a power cut lose at most the last ``interval_records`` records, and none that was
    taken over more than ``interval_seconds`` (and the time of one write) before."""

    SYSTEM = "system"
    """Given to the operating system before ``append`` returns, and synced when SQLite folds its log in (about
    each 4 MiB). The death of the process loses nothing. A power cut loses what the system had not yet
    written: commonly the last 5 to 30 seconds."""


class SqliteSpool:
    """A `Spool` in a folder on a local disk. Mutable, for any number of threads; a context manager.

    Several processes may use one folder; each has its own file in it, and takes over those of processes that
    have ended. A forked child opens its own.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        stream: str,
        durability: Durability | str = Durability.RECORD,
        interval_records: int = 1000,
        interval_seconds: float = 1.0,
        max_bytes: int | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Open the folder, or make it, readable by this user alone.

        Args:
            folder: Where the files are: on a local disk, not in memory.
            stream: Of the records. One folder is for one stream.
            durability: What a crash can lose; see `Durability`.
            interval_records: For ``Durability.INTERVAL``: the most records that are not on the disk.
            interval_seconds: For ``Durability.INTERVAL``: how long a record waits, at most.
            max_bytes: The largest size of this process's file; its log takes some 8 MiB more. Unset: what the
                disk has.
            clock: For the times in the names of files.

        Raises:
            InvalidConfig: the folder is another stream's or on a network file system, or a number is too small.
            SpoolError: the folder cannot be made or written.
        """
        self._durability = _checked(durability, interval_records, interval_seconds, max_bytes)
        interval = self._durability is Durability.INTERVAL
        # One half is written while the other fills, so that a crash can lose both together.
        self._written_at = max(1, interval_records // 2) if interval else 1
        self._idle_seconds = interval_seconds if interval else _TIDY_SECONDS
        self._folder = SpoolFolder(Path(folder).absolute(), clock=clock)
        self._folder.open(stream)
        self.stream = stream
        self._synced = self._durability is not Durability.SYSTEM
        self._claim: Claim = self._folder.make(stream)
        try:
            self._file = SpoolFile(self._claim.path, synced=self._synced, max_bytes=max_bytes)
        except BaseException:
            self._claim.remove()  # there is nothing in it
            raise
        self._inherited = InheritedRecords(self._folder)
        self._mutex = threading.Lock()
        """Guards the next four; held for moments."""
        self._number = 0
        self._waiting: dict[int, Row] = {}
        self._confirmed: set[int] = set()
        self._refusal: str | None = None
        self._writing = threading.Lock()
        """Guards the files; never taken while ``_mutex`` is held."""
        self._writes = SharedWrites(self._write_for)
        self._work = threading.Event()
        self._stopping = threading.Event()
        self._tidier: threading.Thread | None = None
        _open_spools.add(self)

    @property
    def size_bytes(self) -> int:
        """What this process's file takes on the disk, with its log, in bytes."""
        sizes = 0
        for each in side_files(self._claim.path):
            with contextlib.suppress(FileNotFoundError):
                sizes += each.stat().st_size
        return sizes

    def append(self, *entries: Entry) -> int:
        """Take records over; see the port. `Durability` says what is durable on return.

        Raises:
            SpoolError: none of them is in the spool; those appended before are. When the cause is gone (the
                disk has room again), the spool continues.
        """
        with self._mutex:
            self._check_usable()
            first = self._number + 1
            rows = {number: row_of(number, entry) for number, entry in enumerate(entries, first)}
            self._number += len(rows)
            self._waiting |= rows
            is_first = len(self._waiting) == len(rows)
            is_safe = len(self._waiting) < self._written_at
        if not is_safe:
            self._writes.wait_for(*rows)
        elif is_first:
            self._wake_tidier()
        return first

    def confirm(self, numbers: Iterable[int]) -> None:
        """Forget records; see the port. They are removed from the file within a second.

        Raises:
            SpoolError: the spool is closed, or is another process's.
        """
        with self._mutex:
            self._check_usable()
            had = len(self._confirmed)
            self._confirmed.update(number for number in numbers if self._waiting.pop(number, None) is None)
            is_first = not had and bool(self._confirmed)
        if is_first:
            self._wake_tidier()

    def recovered(self, limit: int) -> Sequence[Spooled]:
        """Return records of ended owners; see the port. May be called again, for records left since.

        They come in the order in which their owner took them over, the earliest owner's first. They stay in
        its file until they are confirmed here, so this needs no room on the disk.

        Raises:
            SpoolDamaged: a file is damaged; says how many of its records can be saved, and how. It stays
                unchanged, and the next call continues with the others.
            SpoolError: a file cannot be read now.
        """
        if limit < 1:
            raise InvalidConfig(f"expected a limit of at least 1, got {limit}")
        with self._writing:
            with self._mutex:
                self._check_usable()
            return self._inherited.read(limit)

    def close(self) -> None:
        """Make everything durable, and release the folder; see the port.

        Raises:
            SpoolError: what ``Durability.INTERVAL`` had not yet written could not be written. The folder is
                released nevertheless.
        """
        with self._mutex:
            if self._refusal is not None:
                return
            self._refusal = "expected an open spool, got one that was closed"
        _open_spools.discard(self)
        self._stopping.set()
        self._work.set()
        if self._tidier is not None:
            self._tidier.join()
        with self._writing, contextlib.ExitStack() as closing:
            closing.callback(self._inherited.close)
            closing.callback(self._claim.release)
            closing.callback(self._file.close)
            self._write()
            if self._file.is_empty():
                self._file.close()
                self._claim.remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check_usable(self) -> None:
        if self._refusal is not None:
            raise SpoolError(self._refusal)

    def _write_for(self, numbers: Sequence[int]) -> None:
        """Write what waits; take those back whose callers get the failure."""
        with self._writing:
            try:
                self._write(forget_from=_FORGOTTEN_AT_ONCE)
            except BaseException:
                with self._mutex:
                    for number in numbers:
                        self._waiting.pop(number, None)
                raise

    def _write(self, *, forget_from: int = 1) -> None:
        """Write what waits, and remove confirmed records if they are enough. Called with ``_writing``."""
        with self._mutex:
            rows, self._waiting = self._waiting, {}
            forgotten: set[int] = set()
            if len(self._confirmed) >= forget_from:
                forgotten, self._confirmed = self._confirmed, forgotten
        try:
            own = self._inherited.forget(forgotten)
            if rows:
                self._file.write(rows.values(), own)
            elif own:
                self._file.forget(own)
        except BaseException:
            with self._mutex:
                # One that was confirmed meanwhile stays among the confirmed: it is written, then removed.
                self._waiting = rows | self._waiting
                self._confirmed |= forgotten
            raise

    def _wake_tidier(self) -> None:
        if self._tidier is None:
            with self._mutex:
                if self._tidier is None and self._refusal is None:
                    self._tidier = threading.Thread(
                        target=self._tidy, name="kinesis-spout-spool", daemon=True
                    )
                    self._tidier.start()
        self._work.set()

    def _tidy(self) -> None:
        """In its thread: write what has waited long enough, remove confirmed records, release space."""
        is_failing = False
        while True:
            self._work.wait()
            self._work.clear()
            if self._stopping.wait(self._idle_seconds):
                return
            try:
                with self._writing:
                    self._write()
                is_failing = False
                self._give_space_back()
            except SpoolError as error:
                if not is_failing:
                    _log.warning("%s. It is tried again every %g s.", error, self._idle_seconds)
                is_failing = True
                self._work.set()

    def _give_space_back(self) -> None:
        """Shrink the file if more than half of it is free, a piece at a time: others write in between."""
        while not self._stopping.is_set():
            with self._writing:
                if not self._file.shrink():
                    return

    def _leave_to_the_parent(self) -> None:
        """Become unusable in a forked child: the connection, its locks and its file are the parent's."""
        self._mutex = threading.Lock()  # another thread of the parent may have held them
        self._writing = threading.Lock()
        self._writes = SharedWrites(self._write_for)
        self._refusal = (
            f"expected a spool that process {os.getpid()} opened, got one that its parent {os.getppid()} did; "
            "open one after the fork: both may use the same folder"
        )


def _checked(
    durability: Durability | str, interval_records: int, interval_seconds: float, max_bytes: int | None
) -> Durability:
    if durability not in set(Durability):
        raise InvalidConfig(
            f"durability: expected one of {', '.join(map(repr, map(str, Durability)))}, got {durability!r}"
        )
    if interval_records < 1:
        raise InvalidConfig(f"interval_records: expected at least 1, got {interval_records}")
    if not 0 < interval_seconds <= _DAY_SECONDS:
        raise InvalidConfig(
            f"interval_seconds: expected more than 0 and at most {_DAY_SECONDS}, got {interval_seconds}"
        )
    if max_bytes is not None and max_bytes < _LEAST_BYTES:
        raise InvalidConfig(f"max_bytes: expected at least {_LEAST_BYTES}, got {max_bytes}")
    return Durability(durability)


_open_spools: WeakSet[SqliteSpool] = WeakSet()
_of_parents: list[SqliteSpool] = []
"""Kept while this process lives, so that their connections, which are not its own, are not closed."""


def _leave_all_to_the_parent() -> None:
    _of_parents.extend(_open_spools)
    _open_spools.clear()
    for spool in _of_parents:
        spool._leave_to_the_parent()  # noqa: SLF001 - of this module


def _close_all() -> None:
    for spool in list(_open_spools):
        try:
            spool.close()
        except SpoolError as error:
            _log.error("%s", error)


os.register_at_fork(after_in_child=_leave_all_to_the_parent)
atexit.register(_close_all)
