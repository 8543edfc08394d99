"""One file of a spool: a SQLite database with one row a record (version 1), and the table of SQLite's errors.

SQLite keeps checksums of its log, but none of its pages. So each row has its own: what is read is what was
put, or is known to be damaged.

The connection keeps SQLite's ordinary locking mode. In the exclusive one a forked child that ends, and so
closes what it inherited, would act as the owner and remove the log that its parent writes to.
"""

import os
import sqlite3
import zlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Self

from kinesis_spout.kinesis.write.put_records import Entry
from kinesis_spout.model.errors import SpoolDamaged, SpoolError
from kinesis_spout.producer.spool.port import Spooled

VERSION: Final = 1
APPLICATION_ID: Final = 0x4B53_7031
"""In the header of the file: ``KSp1``."""
PAGE_BYTES: Final = 4096

_TABLES: Final = (
    "CREATE TABLE spool (stream TEXT NOT NULL)",
    """CREATE TABLE records (
        number INTEGER PRIMARY KEY, partition_key TEXT NOT NULL, explicit_hash_key TEXT, data BLOB NOT NULL,
        crc32 INTEGER NOT NULL)""",
)
_INSERT: Final = "INSERT INTO records VALUES (?, ?, ?, ?, ?)"
_SELECT: Final = (
    "SELECT number, partition_key, explicit_hash_key, data, crc32 FROM records "
    "WHERE number >= ? ORDER BY number LIMIT ?"
)
_DELETE: Final = "DELETE FROM records WHERE number BETWEEN ? AND ?"

_LOG_BYTES: Final = 8 * 1024 * 1024
"""The size to which a larger log is truncated."""
_DAMAGED: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR})
"""The last one means that our statements do not fit: its tables are not ours."""
_NOT_SQLITES: Final = sqlite3.SQLITE_CORRUPT
"""For an error without a code, which the module raises itself: text that is not UTF-8."""
_PRIMARY: Final = 0xFF
"""The lowest byte of SQLite's extended error codes is the kind of the error."""
_FREED_PAGES: Final = 1024
"""How many free pages are released at a time, and the least that is worth it."""

Row = tuple[int, str, str | None, bytes, int]


def row_of(number: int, entry: Entry) -> Row:
    """Return a record as it is stored. Its ``row`` is left out: it means nothing to the next owner.

    Raises:
        UnicodeEncodeError: the partition key can neither be stored nor sent.
    """
    key, hash_key, data = entry.partition_key, entry.explicit_hash_key, entry.data
    return number, key, hash_key, data, _checksum(number, key, hash_key, data)


def _spooled(row: tuple[Any, ...]) -> Spooled | None:
    """Return the stored record; None if it is damaged."""
    number, key, hash_key, data, checksum = row
    if not (isinstance(key, str) and isinstance(data, bytes)):  # a damaged row can hold anything
        return None
    if _checksum(number, key, hash_key, data) != checksum:
        return None
    return Spooled(number, Entry(key, data, hash_key))


def _checksum(number: int, key: str, hash_key: str | None, data: bytes) -> int:
    return zlib.crc32(data, zlib.crc32(f"{number} {hash_key} {key}".encode()))


class SpoolFile:
    """A file whose lock this process holds. Not thread-safe: its owner admits one thread at a time.

    Every method raises ``SpoolError`` if the file cannot be used now, and ``SpoolDamaged`` if it is damaged.

    Args:
        path: of a file that ``make`` made.
        synced: whether each write is on the disk when it returns.
        max_bytes: what the file may take; None: what the disk has.
        although_cut: whether to read a file that is shorter than its header says.
    """

    def __init__(
        self, path: Path, *, synced: bool, max_bytes: int | None = None, although_cut: bool = False
    ) -> None:
        self.path = path
        self._synced = synced
        with translated(path):
            self._connection = _connected(path)
            try:
                self._prepare(max_bytes, although_cut=although_cut)
            except BaseException:
                self._connection.close()  # nobody else has it
                raise

    def _prepare(self, max_bytes: int | None, *, although_cut: bool) -> None:
        # Text that is damaged fails its record's checksum, not the batch that it is read with.
        self._connection.text_factory = lambda data: data.decode(errors="replace")
        if although_cut:
            self._tell("writable_schema", "ON")  # SQLite refuses to open it otherwise
        self._tell("journal_size_limit", _LOG_BYTES)
        self._tell("secure_delete", "ON")  # confirmed records leave no trace, not even for `.recover`
        self._tell("fullfsync", "ON")  # macOS: fsync alone leaves it in the drive's cache
        self._tell("synchronous", "FULL" if self._synced else "NORMAL")
        if max_bytes is not None:
            self._tell("max_page_count", max(1, max_bytes // PAGE_BYTES))

    @classmethod
    def make(cls, path: Path, stream: str) -> None:
        """Make an empty file. It gets its name when it is complete."""
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
                    *_TABLES,
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
        """Store rows and remove others, in one transaction."""
        with translated(self.path):
            if not forgotten and len(rows) == 1:
                self._connection.execute(_INSERT, next(iter(rows)))  # a transaction in itself
                return
            with self._transaction():
                self._connection.executemany(_INSERT, rows)
                self._connection.executemany(_DELETE, number_ranges(forgotten))

    def forget(self, numbers: Collection[int]) -> None:
        """Remove rows. This is not synced: after a power cut some may exist again."""
        with translated(self.path):
            self._tell("synchronous", "NORMAL")
            try:
                with self._transaction():
                    self._connection.executemany(_DELETE, number_ranges(numbers))
            finally:
                self._tell("synchronous", "FULL" if self._synced else "NORMAL")

    def shrink(self) -> bool:
        """Release some free pages to the file system, if more than half are free; returns whether it did."""
        with translated(self.path):
            free = self._ask("freelist_count")
            if free < _FREED_PAGES or free * 2 < self._ask("page_count"):
                return False
            self._connection.execute(f"PRAGMA incremental_vacuum({_FREED_PAGES})").fetchall()
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            return True

    def read(self, after: int, limit: int) -> Sequence[tuple[int, Spooled | None]]:
        """Return up to ``limit`` numbers beyond ``after``, in order, each with its record: None if damaged.

        ``SpoolDamaged`` means that a page is damaged: other parts of the file may still be readable.
        """
        with translated(self.path):
            # Not "> after": that reads the page of ``after``, too, which may be a damaged one.
            found = self._connection.execute(_SELECT, (after + 1, limit))
            return [(row[0], _spooled(row)) for row in found]

    def is_empty(self) -> bool:
        with translated(self.path):
            return self._connection.execute("SELECT 1 FROM records LIMIT 1").fetchone() is None

    def check(self, least_frames: int) -> None:
        """Check every page, and whether SQLite takes all that the log should hold."""
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
        """Fold the log in, and close. Idempotent."""
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


def number_ranges(numbers: Collection[int]) -> Iterator[tuple[int, int]]:
    """Yield the runs of consecutive numbers as first and last: few, as records are confirmed in order."""
    ordered = sorted(numbers)
    if not ordered:
        return
    first = last = ordered[0]
    for number in ordered[1:]:
        if number != last + 1:
            yield first, last
            first = number
        last = number
    yield first, last


@contextmanager
def log_kept(path: Path) -> Iterator[None]:
    """Keep SQLite from removing the log of a file when it closes it: unreadable parts may still be saved.

    SQLite removes the log when the last connection closes; this connection is read-only, so it never does.
    """
    watching = _connected(path, mode="ro")
    try:
        with translated(path):
            watching.execute("PRAGMA writable_schema = ON")  # so that the file can be truncated
            watching.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        yield
    finally:
        watching.close()


@contextmanager
def translated(path: Path) -> Iterator[None]:
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
