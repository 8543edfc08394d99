"""``DiskSpool``: the spool on a local disk.

A record is with the operating system before it is taken over; `Durability` says when it is synced. Threads that
append while one writes share the next write, and its sync.

Confirmed records are removed later, some hundreds at a time: forgetting that a record was confirmed only
sends it again.
"""

import atexit
import contextlib
import logging
import os
import threading
from collections.abc import Iterable, Sequence
from enum import StrEnum
from math import inf
from pathlib import Path
from typing import Final, Self
from weakref import WeakSet

from kinesis_spout.kinesis.write.put_records import Entry
from kinesis_spout.model.clock import Clock
from kinesis_spout.model.errors import InvalidConfig, SpoolError
from kinesis_spout.producer.spool.files import SpoolFiles
from kinesis_spout.producer.spool.folder import SpoolFolder
from kinesis_spout.producer.spool.port import Spooled
from kinesis_spout.producer.spool.spool_file import line_of

_log = logging.getLogger(__name__)

_FORGOTTEN_AT_ONCE: Final = 256
"""The number of confirmed records that are removed at once; fewer after `_TIDY_SECONDS`."""
_TIDY_SECONDS: Final = 0.5
_DAY_SECONDS: Final = 86_400
_LEAST_BYTES: Final = 64 * 1024


class Durability(StrEnum):
    """When a record of the spool is safe, and so what a crash can lose. Death of the process loses nothing."""

    RECORD = "record"
    """On the disk (fsync) before ``append`` returns; threads that append at the same time share one fsync.
    Loses nothing, not even in a power cut."""

    INTERVAL = "interval"
    """Given to the operating system before ``append`` returns, and on the disk (fsync) after so many records, or
    so many seconds, whichever comes first. A power cut loses at most the last ``interval_records`` records, and
    none that was taken over more than ``interval_seconds`` (and the time of one sync) before."""

    SYSTEM = "system"
    """Given to the operating system before ``append`` returns, and synced each 4 MiB. A power cut loses what the
    system had not yet written: commonly the last 5 to 30 seconds."""


class _Append:
    """Records that a caller waits for. Mutable."""

    __slots__ = ("error", "lines", "number")

    def __init__(self, lines: list[bytes]) -> None:
        self.lines = lines
        self.number: int | None = None
        """The first one's, once they are in the spool."""
        self.error: SpoolError | None = None


class DiskSpool:
    """A `Spool` in a folder on a local disk. Mutable, for any number of threads; a context manager.

    Several processes may use one folder; each has its own files in it, and takes over those of processes that
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
            folder: The folder of the files: on a local disk, not in memory.
            stream: The stream of the records. One folder is for one stream.
            durability: The records that a crash can lose; see `Durability`.
            interval_records: For ``Durability.INTERVAL``: the most records that are not on the disk.
            interval_seconds: For ``Durability.INTERVAL``: how long a record waits, at most.
            max_bytes: The largest size of this process's files. Unset: what the disk has.
            clock: For the times in the names of files.

        Raises:
            InvalidConfig: the folder is another stream's or on a network file system, or a number is too small.
            SpoolError: the folder cannot be made or read.
        """
        durability = _checked(durability, interval_records, interval_seconds, max_bytes)
        self._has_interval = durability is Durability.INTERVAL
        self._idle_seconds = interval_seconds if self._has_interval else _TIDY_SECONDS
        spool_folder = SpoolFolder(Path(folder).absolute(), clock=clock)
        spool_folder.open(stream)
        self.stream = stream
        unsynced_most = {Durability.RECORD: 0, Durability.INTERVAL: interval_records}.get(durability, inf)
        self._files = SpoolFiles(
            spool_folder, unsynced_most=unsynced_most, max_bytes=inf if max_bytes is None else max_bytes
        )
        self._mutex = threading.Lock()
        """Guards the next three; held for moments."""
        self._waiting: list[_Append] = []
        self._confirmed: set[int] = set()
        self._refusal: str | None = None
        self._writing = threading.Lock()
        """Guards the files; never taken while ``_mutex`` is held."""
        self._work = threading.Event()
        self._hurry = threading.Event()
        self._tidier: threading.Thread | None = None
        _open_spools.add(self)

    @property
    def size_bytes(self) -> int:
        """The size of its files on the disk, in bytes, with those that it took over."""
        return self._files.size_bytes

    def append(self, *entries: Entry) -> int:
        """Take records over; see the port. `Durability` says what is durable on return.

        Raises:
            SpoolError: none of them is in the spool; those appended before are. When the cause is gone (the
                disk has room again), the spool continues.
        """
        append = _Append(list(map(line_of, entries)))
        with self._mutex:
            self._check_usable()
            self._waiting.append(append)
        try:
            with self._writing:
                if append.number is None and append.error is None:  # else another's write had it, too
                    self._write()
        finally:
            if append.number is None and append.error is None:  # Ctrl-C
                with self._mutex, contextlib.suppress(ValueError):
                    self._waiting.remove(append)
        if append.number is None:
            raise SpoolError(str(append.error)) from append.error
        if self._has_interval:
            self._wake_tidier()
        return append.number

    def confirm(self, numbers: Iterable[int]) -> None:
        """Forget records; see the port. They are removed within a second.

        Raises:
            SpoolError: the spool is closed, or is another process's.
        """
        with self._mutex:
            self._check_usable()
            self._confirmed.update(numbers)
            confirmed = len(self._confirmed)
        if confirmed:
            self._wake_tidier()
        if confirmed >= _FORGOTTEN_AT_ONCE:
            self._hurry.set()

    def recovered(self, limit: int) -> Sequence[Spooled]:
        """Return records of ended owners; see the port. May be called again, for records left since.

        They come in the order in which their owner took them over, the earliest owner's first. They stay in
        its files until they are confirmed here, so this needs no room on the disk.

        Raises:
            SpoolDamaged: a file has damaged records; says how many. All others were returned. The file is kept,
                and put aside when they are confirmed. The next call continues with the other files.
            SpoolError: a file cannot be read now. The next call continues with the others, and then tries this.
        """
        if limit < 1:
            raise InvalidConfig(f"expected a limit of at least 1, got {limit}")
        with self._writing:
            with self._mutex:
                self._check_usable()
            return self._files.read(limit)

    def close(self) -> None:
        """Make everything durable, and release the folder; see the port.

        Raises:
            SpoolError: what was not yet synced, or was confirmed, could not be written. The folder is released
                nevertheless.
        """
        with self._mutex:
            if self._refusal is not None:
                return
            self._refusal = "expected an open spool, got one that was closed"
        _open_spools.discard(self)
        self._work.set()
        self._hurry.set()
        if self._tidier is not None:
            self._tidier.join()
        with self._writing:
            try:
                self._forget()
            finally:
                self._files.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check_usable(self) -> None:
        if self._refusal is not None:
            raise SpoolError(self._refusal)

    # Called with ``_writing``.

    def _write(self) -> None:
        """Write what waits, and tell each caller."""
        with self._mutex:
            appends, self._waiting = self._waiting, []
        try:
            number = self._files.store([line for append in appends for line in append.lines])
        except BaseException as error:
            failure = error if isinstance(error, SpoolError) else SpoolError(repr(error))
            for append in appends:
                append.error = failure
            if failure is not error:
                raise
            return
        for append in appends:
            append.number = number
            number += len(append.lines)

    def _forget(self) -> None:
        with self._mutex:
            confirmed, self._confirmed = self._confirmed, set()
        self._files.forget(confirmed)

    # In its thread.

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
        """Sync what has waited long enough, and remove what was confirmed."""
        is_failing = False
        while True:
            self._work.wait()
            self._work.clear()
            self._hurry.wait(self._idle_seconds)
            self._hurry.clear()
            if self._refusal is not None:
                return
            try:
                with self._writing:
                    self._forget()
                    if self._has_interval:
                        self._files.sync()
                    self._files.rewrite()
                is_failing = False
            except SpoolError as error:
                if not is_failing:
                    _log.warning("%s. It is tried again every %g s.", error, self._idle_seconds)
                is_failing = True
                self._work.set()

    def _leave_to_the_parent(self) -> None:
        """Become unusable in a forked child: the files and their locks are the parent's."""
        self._mutex = threading.Lock()  # another thread of the parent may have held them
        self._writing = threading.Lock()
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


_open_spools: WeakSet[DiskSpool] = WeakSet()


def _leave_all_to_the_parent() -> None:
    for spool in list(_open_spools):
        spool._leave_to_the_parent()  # noqa: SLF001 - of this module
    _open_spools.clear()


def _close_all() -> None:
    for spool in list(_open_spools):
        try:
            spool.close()
        except SpoolError as error:
            _log.error("%s", error)


os.register_at_fork(after_in_child=_leave_all_to_the_parent)
atexit.register(_close_all)
