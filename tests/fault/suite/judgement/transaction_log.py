"""Reads the transaction log of a ZooKeeper: every change there ever was, in order, complete.

A watcher of nodes sees some of their values; the log has all of them. Its form is that of ZooKeeper's FileTxnLog:
a header, then entries of a checksum, a length, the bytes, and an end mark. A server that is killed may leave an
entry cut short, which never took effect; what follows is in the next file.
"""

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from typing import Final

_FILE_HEADER_BYTES: Final = 16
_MAGIC: Final = b"ZKLG"
_ENTRY_HEAD: Final = struct.Struct("!qi")
_TRANSACTION_HEAD: Final = struct.Struct("!qiqqi")
_END_MARK: Final = b"B"

_CREATE_TYPES: Final = frozenset({1, 15, 19, 21})
_DELETE: Final = 2
_SET: Final = 5
_MULTI: Final = 14
_CLOSE_SESSION: Final = -11


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeWritten:
    """A node was made or changed."""

    path: str
    data: bytes
    ephemeral: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDeleted:
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionEnded:
    """Closed or expired: its ephemeral nodes are gone."""


Change = NodeWritten | NodeDeleted | SessionEnded


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    zxid: int
    time: float
    """Seconds since the epoch, by the server's clock, to the millisecond."""
    session: int
    changes: tuple[Change, ...] = field(default=())


class TransactionLogFollower:
    """Gives what was added to the log files of a directory since the last look. Mutable.

    Files stay open: the server removes old ones, whose end may not have been read yet.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._files: dict[str, FileIO] = {}

    def poll(self) -> list[Transaction]:
        found: list[Transaction] = []
        for gone in [name for name in self._files if not (self._directory / name).exists()]:
            found.extend(_new_transactions(self._files[gone]))
            self._files.pop(gone).close()
        for path in sorted(self._directory.glob("log.*"), key=lambda path: int(path.suffix[1:], 16)):
            file = self._files.get(path.name)
            if file is None:
                # Not buffered: what is read ahead is space that the server writes into later.
                file = self._files[path.name] = path.open("rb", buffering=0)
            found.extend(_new_transactions(file))
        return found

    def close(self) -> None:
        for file in self._files.values():
            file.close()


def _new_transactions(file: FileIO) -> Iterator[Transaction]:
    if file.tell() < _FILE_HEADER_BYTES:
        file.seek(0)
        header = file.read(_FILE_HEADER_BYTES)
        if len(header) < _FILE_HEADER_BYTES or not header.startswith(_MAGIC):
            file.seek(0)  # the server has only just made it
            return
    while True:
        start = file.tell()
        entry = _read_entry(file)
        if entry is None:
            file.seek(start)
            return
        yield _transaction(entry)


def _read_entry(file: FileIO) -> bytes | None:
    """Give the next entry; None where none is yet, or one that is not whole."""
    head = file.read(_ENTRY_HEAD.size)
    if len(head) < _ENTRY_HEAD.size:
        return None
    checksum, length = _ENTRY_HEAD.unpack(head)
    if length <= 0:
        return None  # the space that is reserved ahead
    entry = file.read(length)
    whole = len(entry) == length and file.read(1) == _END_MARK
    return entry if whole and zlib.adler32(entry) == checksum else None


def _transaction(entry: bytes) -> Transaction:
    session, _, zxid, millis, kind = _TRANSACTION_HEAD.unpack_from(entry)
    changes = tuple(_changes(kind, _Reader(entry, _TRANSACTION_HEAD.size)))
    return Transaction(zxid=zxid, time=millis / 1_000, session=session, changes=changes)


def _changes(kind: int, body: "_Reader") -> Iterator[Change]:
    if kind == _MULTI:
        for _ in range(body.integer()):
            yield from _changes(body.integer(), _Reader(body.buffer()))
    elif kind in _CREATE_TYPES:
        path, data = body.text(), body.buffer()
        for _ in range(body.integer()):  # who may do what
            body.integer()
            body.text()
            body.text()
        yield NodeWritten(path=path, data=data, ephemeral=kind in {1, 15} and body.flag())
    elif kind == _SET:
        yield NodeWritten(path=body.text(), data=body.buffer())
    elif kind == _DELETE:
        yield NodeDeleted(path=body.text())
    elif kind == _CLOSE_SESSION:
        yield SessionEnded()


class _Reader:
    """Takes values from the bytes of a transaction, one after the other. Mutable."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self._data = data
        self._at = at

    def integer(self) -> int:
        value: int = struct.unpack_from("!i", self._data, self._at)[0]
        self._at += 4
        return value

    def flag(self) -> bool:
        self._at += 1
        return self._data[self._at - 1] != 0

    def buffer(self) -> bytes:
        length = max(0, self.integer())
        self._at += length
        return self._data[self._at - length : self._at]

    def text(self) -> str:
        return self.buffer().decode()
