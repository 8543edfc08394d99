"""Puts records on a stream, all of them: PutRecords in batches, and refused records again.

AWS takes 500 records and 10 MiB a call; one record may be that large. Batches stay below half of that, the
limit of older endpoints and of the emulators. A record of more than 1 MiB is sent alone: streams refuse a
whole call for a record beyond their limit, which is 1 MiB unless it was raised.
https://docs.aws.amazon.com/kinesis/latest/APIReference/API_PutRecords.html
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Final, Self, TypeVar

import msgspec

from kinesis_spout.kinesis.aggregated_record import (
    FRAME_BYTES,
    KEY_BYTES,
    RECORD_BYTES,
    aggregate_columns,
    tags_of,
)
from kinesis_spout.kinesis.write.hash_key_ranges import HashKeyRanges, hash_key
from kinesis_spout.model.record import TraceContext

if TYPE_CHECKING:
    from mypy_boto3_kinesis.type_defs import PutRecordsRequestEntryTypeDef

MAX_BATCH_RECORDS: Final = 500
MAX_BATCH_BYTES: Final = 5 * 1024 * 1024

COMMON_RECORD_BYTES: Final = 1024 * 1024
"""Every stream takes this; a larger record only if the stream's limit was raised."""
MAX_RECORD_BYTES: Final = 10 * 1024 * 1024
"""No stream takes more: data before base64, and key."""
MAX_KEY_CHARACTERS: Final = 256
AGGREGATE_KEY: Final = "a"
"""The key of an aggregated record. It has no meaning: the explicit hash key decides on the shard. The KPL's
choice."""

T = TypeVar("T")


class PutOrder(StrEnum):
    """The order of records that holds when Kinesis refuses some."""

    UNORDERED = "unordered"
    """Calls are full. A refused record comes after the later ones of its key in the same call."""
    KEY = "key"
    """A record is sent when the one before it of its key is on the stream, or given up."""


class Entry(msgspec.Struct, frozen=True):
    partition_key: str
    """Not empty, at most `MAX_KEY_CHARACTERS`."""
    data: bytes
    """At most `MAX_RECORD_BYTES`, with the key."""
    explicit_hash_key: str | None = None
    """Decides on the shard instead of the key's hash: a decimal number below 2^128."""
    row: int = 0
    """The place its owner has it from; not sent to Kinesis."""
    trace: TraceContext | None = None
    """Sent in an aggregated record only, as tags: an ordinary record has no place for it."""

    @property
    def size_bytes(self) -> int:
        """Its size against the limits: data before base64, and key."""
        return len(self.data) + len(self.partition_key.encode())

    @property
    def hash_key(self) -> int:
        return hash_key(self.partition_key, self.explicit_hash_key)

    def shard_in(self, ranges: HashKeyRanges) -> str:
        """Return the name of its shard."""
        return ranges.shard_of_key(self.partition_key, self.explicit_hash_key)

    @property
    def partition_keys(self) -> tuple[str, ...]:
        return (self.partition_key,)

    @property
    def is_gone(self) -> bool:
        """True if its owner has given it up while it waited: it must not be sent any more."""
        return False

    @property
    def count(self) -> int:
        """The number of user records that it is."""
        return 1

    @property
    def parts(self) -> "tuple[Self, ...]":
        """The user records that it is."""
        return (self,)

    def request(self) -> "PutRecordsRequestEntryTypeDef":
        if self.explicit_hash_key is None:
            return {"Data": self.data, "PartitionKey": self.partition_key}
        return {
            "Data": self.data,
            "PartitionKey": self.partition_key,
            "ExplicitHashKey": self.explicit_hash_key,
        }


class Aggregate:
    """A `Puttable` of several records, in the order they came. Mutable while it is being filled.

    Its bytes are made for each request, so that its records are not held twice. All of its records lie in
    one shard of ``ranges``.
    """

    def __init__(self, shard_id: str, ranges: HashKeyRanges) -> None:
        self.shard_id = shard_id
        self.ranges = ranges
        self.parts: list[Entry] = []
        self.size_bytes = FRAME_BYTES + len(AGGREGATE_KEY)
        self._keys: dict[str, None] = {}
        self._hash_keys: set[str | None] = {None}
        self._has_traces = False

    def takes(self, entry: Entry, max_bytes: int) -> bool:
        """Add a record of the same shard; False: there are others, and it would weigh too much."""
        key, hash_key = entry.partition_key, entry.explicit_hash_key
        size_bytes = self.size_bytes + RECORD_BYTES + len(entry.data)
        if key not in self._keys:
            size_bytes += KEY_BYTES + (len(key) if key.isascii() else len(key.encode()))
        if hash_key not in self._hash_keys:
            size_bytes += KEY_BYTES + len(hash_key or "")
        if entry.trace is not None:
            size_bytes += len(tags_of(entry.trace))
            self._has_traces = True
        if size_bytes > max_bytes and self.parts:
            return False
        self.parts.append(entry)
        self.size_bytes = size_bytes
        self._keys[key] = None
        if hash_key is not None:
            self._hash_keys.add(hash_key)
        return True

    @property
    def count(self) -> int:
        return len(self.parts)

    @property
    def hash_key(self) -> int:
        """The first record's, which decides on the shard. Needs a record."""
        return self.parts[0].hash_key

    def shard_in(self, ranges: HashKeyRanges) -> str:
        """Return the name of its shard."""
        return self.shard_id if ranges is self.ranges else ranges.shard_of(self.hash_key)

    @property
    def partition_keys(self) -> Collection[str]:
        return self._keys.keys()

    def encoded(self) -> bytes:
        """Encode it with its records' explicit hash keys and trace contexts."""
        parts = self.parts
        return aggregate_columns(
            [entry.partition_key for entry in parts],
            [entry.data for entry in parts],
            [entry.explicit_hash_key for entry in parts] if len(self._hash_keys) > 1 else None,
            [entry.trace for entry in parts] if self._has_traces else None,
        )

    def request(self) -> "PutRecordsRequestEntryTypeDef":
        """Return what is put."""
        return {
            "Data": self.encoded(),
            "PartitionKey": AGGREGATE_KEY,
            "ExplicitHashKey": str(self.hash_key),
        }


Puttable = Entry | Aggregate
"""A record to send: one user record, or several as one."""


def requests(batch: Sequence[Puttable]) -> "list[PutRecordsRequestEntryTypeDef]":
    """Return what a call puts."""
    return [each.request() for each in batch]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallLimits:
    records: int = MAX_BATCH_RECORDS
    size_bytes: int = MAX_BATCH_BYTES
    """A larger record is put nevertheless, alone."""


class CallBatch:
    """The records of one call. Mutable."""

    def __init__(self, limits: CallLimits) -> None:
        self._limits = limits
        self.entries: list[Puttable] = []
        self._size_bytes = 0
        self.is_full = False

    def has_room(self, size_bytes: int) -> bool:
        is_beyond = (
            size_bytes > COMMON_RECORD_BYTES or self._size_bytes + size_bytes > self._limits.size_bytes
        )
        if self.entries and is_beyond:
            self.is_full = True
        return not self.is_full

    def add(self, entry: Puttable) -> None:
        """Add what there is room for."""
        self.entries.append(entry)
        self._size_bytes += entry.size_bytes
        self.is_full = entry.size_bytes > COMMON_RECORD_BYTES or len(self.entries) >= self._limits.records

    def add_from(self, waiting: deque[Entry]) -> int:
        """Take a whole call's worth of what waits, if it fits: one by one costs more. Returns its bytes."""
        entries: list[Puttable] = list(islice(waiting, self._limits.records))
        sizes = [entry.size_bytes for entry in entries]
        size_bytes = sum(sizes)
        if size_bytes > self._limits.size_bytes or max(sizes) > COMMON_RECORD_BYTES:
            return 0
        self.entries, self._size_bytes = entries, size_bytes
        self.is_full = len(entries) == self._limits.records
        for _ in entries:
            waiting.popleft()
        return size_bytes


def batches(items: Iterable[T], size_bytes: Callable[[T], int]) -> Iterator[list[T]]:
    """Cut into runs that fit one call; an item beyond the limit is a run alone."""
    batch: list[T] = []
    batch_bytes = 0
    for item in items:
        item_bytes = size_bytes(item)
        if batch and (len(batch) == MAX_BATCH_RECORDS or batch_bytes + item_bytes > MAX_BATCH_BYTES):
            yield batch
            batch, batch_bytes = [], 0
        batch.append(item)
        batch_bytes += item_bytes
    if batch:
        yield batch
