"""Puts records on a stream, all of them: PutRecords in batches, and refused records again.

AWS takes 500 records and 10 MiB a call; one record may be that large. Batches stay below half of that, the
limit of older endpoints and of the emulators. A record of more than 1 MiB is sent alone: streams refuse a
whole call for a record beyond their limit, which is 1 MiB unless it was raised.
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
"""Every stream takes this; a larger record only if the stream's limit was raised."""
MAX_RECORD_BYTES: Final = 10 * 1024 * 1024
"""No stream takes more: data before base64, and key."""
MAX_KEY_CHARACTERS: Final = 256

T = TypeVar("T")


class PutOrder(StrEnum):
    """Which order of records holds when Kinesis refuses some."""

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
    """Where its owner has it from; not sent to Kinesis."""

    @property
    def size_bytes(self) -> int:
        """Its size against the limits: data before base64, and key."""
        return len(self.data) + len(self.partition_key.encode())

    @property
    def hash_key(self) -> int:
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
"""A record to send: one user record, or several as one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallLimits:
    records: int = MAX_BATCH_RECORDS
    size_bytes: int = MAX_BATCH_BYTES
    """A larger record is put nevertheless, alone."""


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
