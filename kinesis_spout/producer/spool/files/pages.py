"""Finds the records in the pages of a spool's file, without SQLite: for a file that SQLite gives up on.

Every page is looked at for itself. A leaf of a table says so in its first byte, and holds cells: the size of
the row, its number, and the row, of which the end lies on overflow pages if it is long.
https://www.sqlite.org/fileformat2.html

What is found counts only if its own checksum says that it is what was put. Confirmed records do not come back:
the spool overwrites what it deletes.

Pages of the log count for more than those of the file, the later ones for more than the earlier ones, whether or
not the log's checksums are right.
"""

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple, Self

from kinesis_spout.producer.spool.files.stored_form import PAGE_BYTES, spooled_of
from kinesis_spout.producer.spool.port import Spooled

_LEAF: Final = 0x0D
_FILE_HEADER: Final = 100
_LOG_HEADER: Final = 32
_FRAME_HEADER: Final = struct.Struct(">II8s8x")
_FRAME: Final = _FRAME_HEADER.size + PAGE_BYTES
_MOST_LOCAL: Final = PAGE_BYTES - 35
_LEAST_LOCAL: Final = (PAGE_BYTES - 12) * 32 // 255 - 23
_OVERFLOW: Final = PAGE_BYTES - 4
_LONGEST: Final = 64 * 1024 * 1024
"""Of a row. No record of Kinesis is longer, so a longer row is damaged."""
_NULL: Final = 0
_INTEGER_BYTES: Final = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8, 8: 0, 9: 0}
"""By serial type; 8 and 9 are the numbers 0 and 1 themselves."""
_FIRST_BLOB: Final = 12


class _Cell(NamedTuple):
    number: int
    page: int
    at: int


class SpoolPages:
    """The pages of one file and its log. Mutable: holds both open. A context manager."""

    def __init__(self, path: Path) -> None:
        """Open the file.

        Raises:
            OSError: it cannot be read.
        """
        self._file = path.open("rb")
        log = path.with_name(f"{path.name}-wal")
        self._log = log.open("rb") if log.exists() else None
        self._in_log: dict[int, int] = {}
        self._pages = -(-path.stat().st_size // PAGE_BYTES)
        self.committed_frames = 0
        """How many pages of the log were written with all that belongs to them."""
        self._read_log()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the files."""
        self._file.close()
        if self._log is not None:
            self._log.close()

    def records(self) -> Iterator[Spooled]:
        """Give every record that is what was put, by number. A page that cannot be read is passed over."""
        last = 0
        for cell in sorted(cell for page in range(1, self._pages + 1) for cell in self._cells(page)):
            if cell.number > last and (record := self._record(cell)) is not None:
                last = cell.number
                yield record

    def _read_log(self) -> None:
        """Find where in the log each page is, the latest that was committed."""
        if self._log is None or len(header := self._log.read(_LOG_HEADER)) < _LOG_HEADER:
            return
        salts = header[16:24]
        uncommitted: dict[int, int] = {}
        # A crash may cut the last one off.
        for frame in range((self._log.seek(0, os.SEEK_END) - _LOG_HEADER) // _FRAME):
            self._log.seek(_LOG_HEADER + frame * _FRAME)
            page, pages_at_commit, found = _FRAME_HEADER.unpack(self._log.read(_FRAME_HEADER.size))
            if found != salts:  # of an earlier round of the log, or damaged
                continue
            uncommitted[page] = self._log.tell()
            if pages_at_commit:
                self._in_log.update(uncommitted)
                uncommitted.clear()
                self._pages = pages_at_commit
                self.committed_frames = frame + 1

    def _page(self, number: int) -> bytes:
        in_log = self._in_log.get(number)
        if in_log is not None and self._log is not None:
            self._log.seek(in_log)
            return self._log.read(PAGE_BYTES)
        self._file.seek((number - 1) * PAGE_BYTES)
        return self._file.read(PAGE_BYTES)

    def _cells(self, page: int) -> Iterator[_Cell]:
        content = self._page(page)
        begin = _FILE_HEADER if page == 1 else 0
        if len(content) < begin + 8 or content[begin] != _LEAF:
            return
        (count,) = struct.unpack_from(">H", content, begin + 3)
        for index in range(min(count, (len(content) - begin - 8) // 2)):
            (at,) = struct.unpack_from(">H", content, begin + 8 + 2 * index)
            try:
                _, behind = _varint(content, at)
                number, _ = _varint(content, behind)
            except IndexError:
                continue
            if 0 < number < 1 << 63:
                yield _Cell(number, page, at)

    def _record(self, cell: _Cell) -> Spooled | None:
        try:
            return _decoded(cell.number, self._row(cell))
        except (IndexError, ValueError, struct.error):
            return None

    def _row(self, cell: _Cell) -> bytes:
        content = self._page(cell.page)
        size, at = _varint(content, cell.at)
        _, at = _varint(content, at)
        if size > _LONGEST:
            raise ValueError(size)
        local = size
        if size > _MOST_LOCAL:
            local = _LEAST_LOCAL + (size - _LEAST_LOCAL) % _OVERFLOW
            local = _LEAST_LOCAL if local > _MOST_LOCAL else local
        parts, left = [content[at : at + local]], size - local
        (following,) = struct.unpack_from(">I", content, at + local) if left else (0,)
        while left:
            content = self._page(following)
            (following,) = struct.unpack_from(">I", content)
            parts.append(content[4 : 4 + min(left, _OVERFLOW)])
            left -= len(parts[-1])
            if not parts[-1]:
                raise ValueError(left)
        return b"".join(parts)


def _varint(content: bytes, at: int) -> tuple[int, int]:
    value = 0
    for _ in range(8):
        byte = content[at]
        at += 1
        value = value << 7 | byte & 0x7F
        if byte < 0x80:  # noqa: PLR2004 - the highest bit says that more follow
            return value, at
    return value << 8 | content[at], at + 1


def _decoded(number: int, row: bytes) -> Spooled | None:
    size, at = _varint(row, 0)
    kinds = []
    while at < size:
        kind, at = _varint(row, at)
        kinds.append(kind)
    values: list[bytes | None] = []
    for kind in kinds:
        length = (kind - _FIRST_BLOB) // 2 if kind >= _FIRST_BLOB else _INTEGER_BYTES.get(kind, 0)
        values.append(None if kind == _NULL else row[at : at + length])
        at += length
    if len(values) != 5:  # noqa: PLR2004 - the columns of ``records``
        return None
    _, key, hash_key, data, checksum = values
    if key is None or data is None or checksum is None:
        return None
    return spooled_of(
        (
            number,
            key.decode(),
            None if hash_key is None else hash_key.decode(),
            data,
            kinds[4] - 8 if kinds[4] in {8, 9} else int.from_bytes(checksum),
        )
    )
