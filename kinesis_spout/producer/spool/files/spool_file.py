"""One file of a spool: what SQLite is told, and what its errors mean.

The connection keeps SQLite's ordinary locking mode. In the exclusive one a forked child that ends, and thereby
closes what it inherited, would take itself for the owner and remove the log that its parent writes to.
"""

import os
import sqlite3
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Self

from kinesis_spout.model.errors import SpoolDamaged, SpoolError
from kinesis_spout.producer.spool.files.number_ranges import number_ranges
from kinesis_spout.producer.spool.files.stored_form import (
    APPLICATION_ID,
    DELETE,
    INSERT,
    PAGE_BYTES,
    SELECT,
    TABLES,
    VERSION,
    Row,
    spooled_of,
)
from kinesis_spout.producer.spool.port import Spooled

_LOG_BYTES: Final = 8 * 1024 * 1024
"""What the log is cut back to after it was larger."""
_DAMAGED: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR})
"""The last one says that our own statements do not fit: its tables are not ours."""
_NOT_SQLITES: Final = sqlite3.SQLITE_CORRUPT
"""An error without a code is the module's own: of a text that is no UTF-8."""
_PRIMARY: Final = 0xFF
"""Of SQLite's extended error codes the lowest byte says what kind it is."""
_FREED_PAGES: Final = 1024
"""How many free pages are given back at a time, and the least that is worth it."""


class SpoolFile:
    """A file that this process holds the lock of. Not thread-safe: its owner lets one thread in at a time."""

    def __init__(self, path: Path, *, synced: bool, max_bytes: int | None = None) -> None:
        """Open a file that ``made`` once made.

        Raises:
            SpoolError: it cannot be opened now.
            SpoolDamaged: it is not what was stored.
        """
        self.path = path
        self._synced = synced
        with translated(path):
            self._connection = _connected(path)
            # Text that is damaged fails its record's checksum, not the batch that it is read with.
            self._connection.text_factory = lambda data: data.decode(errors="replace")
            self._tell("journal_size_limit", _LOG_BYTES)
            self._tell("secure_delete", "ON")  # what is confirmed leaves no trace, also not for `spool save`
            self._tell("fullfsync", "ON")  # macOS: fsync alone leaves it in the drive's cache
            self._tell("synchronous", "FULL" if synced else "NORMAL")
            if max_bytes is not None:
                self._tell("max_page_count", max(1, max_bytes // PAGE_BYTES))

    @classmethod
    def make(cls, path: Path, stream: str) -> None:
        """Make an empty file. It gets its name when it is whole, so that an incomplete one has none.

        Raises:
            SpoolError: it cannot be made.
        """
        unfinished = path.with_name(f"{path.name}.new")
        with translated(path):
            unfinished.touch(mode=0o600)
            connection = _connected(unfinished)
            try:
                for statement in (
                    f"PRAGMA page_size = {PAGE_BYTES}",
                    "PRAGMA auto_vacuum = INCREMENTAL",
                    "PRAGMA synchronous = OFF",  # it has no name yet, and is synced before it gets one
                    "PRAGMA journal_mode = MEMORY",
                    "BEGIN",
                    f"PRAGMA user_version = {VERSION}",
                    f"PRAGMA application_id = {APPLICATION_ID}",
                    *TABLES,
                    "COMMIT",
                    "PRAGMA journal_mode = WAL",
                ):
                    connection.execute(statement).fetchall()
                connection.execute("INSERT INTO spool VALUES (?)", (stream,))
            finally:
                connection.close()
            with unfinished.open("rb") as written:
                os.fsync(written.fileno())
            unfinished.rename(path)

    def write(self, rows: Collection[Row], forgotten: Collection[int]) -> None:
        """Store rows and remove others, in one transaction: all of it or nothing.

        Raises:
            SpoolError: nothing was done.
        """
        with translated(self.path):
            if not forgotten and len(rows) == 1:
                self._connection.execute(INSERT, next(iter(rows)))  # a transaction by itself
                return
            with self._transaction():
                self._connection.executemany(INSERT, rows)
                self._connection.executemany(DELETE, number_ranges(forgotten))

    def forget(self, numbers: Collection[int]) -> None:
        """Remove rows. This is not synced: after a power cut some may be there again.

        Raises:
            SpoolError: none was removed.
        """
        with translated(self.path):
            self._tell("synchronous", "NORMAL")
            try:
                with self._transaction():
                    self._connection.executemany(DELETE, number_ranges(numbers))
            finally:
                self._tell("synchronous", "FULL" if self._synced else "NORMAL")

    def shrink(self) -> bool:
        """Give some free pages back to the file system, if more than half are free; say whether it was so.

        Raises:
            SpoolError: it could not be done now.
        """
        with translated(self.path):
            free = self._ask("freelist_count")
            if free < _FREED_PAGES or free * 2 < self._ask("page_count"):
                return False
            self._connection.execute(f"PRAGMA incremental_vacuum({_FREED_PAGES})").fetchall()
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            return True

    def read(self, after: int, limit: int) -> Sequence[tuple[int, Spooled | None]]:
        """Give up to ``limit`` numbers beyond ``after``, in order, each with its record: None if that is damaged.

        Raises:
            SpoolDamaged: the file cannot be read on.
            SpoolError: it cannot be read now.
        """
        with translated(self.path):
            return [(row[0], spooled_of(row)) for row in self._connection.execute(SELECT, (after, limit))]

    def is_empty(self) -> bool:
        """Whether no record is in it.

        Raises:
            SpoolError: it cannot be read now.
        """
        with translated(self.path):
            return self._connection.execute("SELECT 1 FROM records LIMIT 1").fetchone() is None

    def check(self, least_frames: int) -> None:
        """Look at every page, and whether SQLite takes all that the log should hold.

        Raises:
            SpoolDamaged: says what is not as it should be.
        """
        with translated(self.path):
            application, version = self._ask("application_id"), self._ask("user_version")
            if application != APPLICATION_ID:
                raise SpoolDamaged(f"{self.path}: expected a spool, got a file of another kind")
            if version != VERSION:
                raise SpoolDamaged(
                    f"{self.path}: expected version {VERSION}, got {version}: another release wrote it"
                )
            _, frames, _ = self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            if frames < least_frames:
                raise SpoolDamaged(
                    f"{self.path}-wal: {least_frames} pages were written, {max(frames, 0)} are whole"
                )
            (found,) = self._connection.execute("PRAGMA quick_check(1)").fetchone()
        if found != "ok":
            raise SpoolDamaged(f"{self.path}: {found}")

    def close(self) -> None:
        """Fold the log in, and let go. May be called twice."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:  # a full disk has rolled it back already
                self._connection.execute("ROLLBACK")
            raise

    def _tell(self, name: str, value: object) -> None:
        self._connection.execute(f"PRAGMA {name} = {value}").fetchall()

    def _ask(self, name: str) -> int:
        return int(self._connection.execute(f"PRAGMA {name}").fetchone()[0])


def _connected(path: Path, mode: str = "rw") -> sqlite3.Connection:
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}", uri=True, isolation_level=None, check_same_thread=False
    )


@contextmanager
def log_kept(path: Path) -> Iterator[None]:
    """Keep SQLite from removing the log of a file when it closes it: what it cannot read is still to be saved.

    It does so when the last connection goes, and this one, which may only read, never does it.
    """
    watching = _connected(path, mode="ro")
    try:
        with translated(path):
            watching.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        yield
    finally:
        watching.close()


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Raise what SQLite and the file system raise as errors of the spool."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        is_misused = isinstance(error, sqlite3.ProgrammingError)  # it was closed meanwhile
        if not is_misused and getattr(error, "sqlite_errorcode", _NOT_SQLITES) & _PRIMARY in _DAMAGED:
            raise SpoolDamaged(f"{path}: {error}") from error
        raise SpoolError(_unusable(path, error)) from error
    except OSError as error:
        raise SpoolError(_unusable(path, error)) from error


def _unusable(path: Path, error: Exception) -> str:
    return (
        f"expected to read and write the spool in {str(path.parent)!r}, got {error}; give its disk free space, or "
        "this user the right to write there, and put again: the records that it took over before are kept"
    )
