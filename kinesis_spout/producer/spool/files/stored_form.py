"""The file of a spool: a SQLite database with one row a record. Version 1.

SQLite keeps checksums of its log, but none of its pages. So each row has one of its own: what comes back from the
file is what was put, or is known to be damaged.
"""

import zlib
from typing import Any, Final

from kinesis_spout.kinesis.write.put_records import Entry
from kinesis_spout.producer.spool.port import Spooled

VERSION: Final = 1
APPLICATION_ID: Final = 0x4B53_7031
"""Says in the header of the file whose it is: ``KSp1``."""
PAGE_BYTES: Final = 4096

TABLES: Final = (
    "CREATE TABLE spool (stream TEXT NOT NULL)",
    """CREATE TABLE records (
        number INTEGER PRIMARY KEY, partition_key TEXT NOT NULL, explicit_hash_key TEXT, data BLOB NOT NULL,
        crc32 INTEGER NOT NULL)""",
)
INSERT: Final = "INSERT INTO records VALUES (?, ?, ?, ?, ?)"
SELECT: Final = (
    "SELECT number, partition_key, explicit_hash_key, data, crc32 FROM records "
    "WHERE number > ? ORDER BY number LIMIT ?"
)
DELETE: Final = "DELETE FROM records WHERE number BETWEEN ? AND ?"

Row = tuple[int, str, str | None, bytes, int]


def row_of(number: int, entry: Entry) -> Row:
    """Give a record as it is stored. Its ``row`` is left out: the owner that knows it is gone when this is read.

    Raises:
        UnicodeEncodeError: the partition key cannot be stored, nor sent.
    """
    key, hash_key, data = entry.partition_key, entry.explicit_hash_key, entry.data
    return number, key, hash_key, data, _checksum(number, key, hash_key, data)


def spooled_of(row: tuple[Any, ...]) -> Spooled | None:
    """Give the record that is stored; None if it is not what was put."""
    number, key, hash_key, data, checksum = row
    if not (isinstance(key, str) and isinstance(data, bytes)):  # a damaged row can hold anything
        return None
    if _checksum(number, key, hash_key, data) != checksum:
        return None
    return Spooled(number, Entry(key, data, hash_key))


def _checksum(number: int, key: str, hash_key: str | None, data: bytes) -> int:
    return zlib.crc32(data, zlib.crc32(f"{number} {hash_key} {key}".encode()))
