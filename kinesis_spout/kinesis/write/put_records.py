"""Puts records on a stream, all of them: PutRecords in batches, what it refuses in part put again.

AWS takes 500 records and 10 MiB a call, of which a record may be all. Batches stay below half of that, the
limit of older endpoints and of the emulators. A record of more than 1 MiB travels alone: streams refuse a
whole call for a record beyond their own limit, which is 1 MiB unless it was raised.
https://docs.aws.amazon.com/kinesis/latest/APIReference/API_PutRecords.html
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Self, TypeAlias, TypeVar

import msgspec

from kinesis_spout.kinesis.write.hash_key_ranges import hash_key

if TYPE_CHECKING:
    from mypy_boto3_kinesis.type_defs import PutRecordsRequestEntryTypeDef

    from kinesis_spout.kinesis.write.aggregates import Aggregate

MAX_BATCH_RECORDS: Final = 500
MAX_BATCH_BYTES: Final = 5 * 1024 * 1024

COMMON_RECORD_BYTES: Final = 1024 * 1024
"""What every stream takes; a larger record only where the stream's limit was raised."""
MAX_RECORD_BYTES: Final = 10 * 1024 * 1024
"""What no stream takes more than: data before base64, and key."""
MAX_KEY_CHARACTERS: Final = 256

T = TypeVar("T")


class PutOrder(StrEnum):
    """What of the order of records holds when Kinesis refuses some."""

    UNORDERED = "unordered"
    """Calls are full. A refused record comes behind the later ones of its key in the same call."""
    KEY = "key"
    """A record is sent when the one before it of its key is on the stream, or given up."""


class Entry(msgspec.Struct, frozen=True):
    """A record to put."""

    partition_key: str
    """Not empty, at most `MAX_KEY_CHARACTERS`."""
    data: bytes
    """At most `MAX_RECORD_BYTES`, with the key."""
    explicit_hash_key: str | None = None
    """Decides on the shard instead of the key's hash: a decimal number below 2^128."""
    row: int = 0
    """Where its owner has it from; Kinesis never sees it."""

    @property
    def size_bytes(self) -> int:
        """What it weighs against the limits: data before base64, and key."""
        return len(self.data) + len(self.partition_key.encode())

    @property
    def hash_key(self) -> int:
        """Decides on the shard it goes to."""
        return hash_key(self.partition_key, self.explicit_hash_key)

    @property
    def partition_keys(self) -> tuple[str, ...]:
        return (self.partition_key,)

    @property
    def user_records(self) -> "tuple[Self, ...]":
        return (self,)

    def request(self) -> "PutRecordsRequestEntryTypeDef":
        if self.explicit_hash_key is None:
            return {"Data": self.data, "PartitionKey": self.partition_key}
        return {
            "Data": self.data,
            "PartitionKey": self.partition_key,
            "ExplicitHashKey": self.explicit_hash_key,
        }


Puttable: TypeAlias = "Entry | Aggregate"
"""A record on its way: one user record, or several as one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallLimits:
    """What one call of PutRecords may carry."""

    records: int = MAX_BATCH_RECORDS
    size_bytes: int = MAX_BATCH_BYTES
    """A record that is larger is put nevertheless, alone."""


def batches(items: Iterable[T], size_bytes: Callable[[T], int]) -> Iterator[list[T]]:
    """Cut into runs that fit one call; an item beyond the limit is a run of its own."""
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
