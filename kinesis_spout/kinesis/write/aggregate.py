"""Records of one shard on their way as one record of Kinesis."""

from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from kinesis_spout.kinesis.aggregated_record import (
    FRAME_BYTES,
    KEY_BYTES,
    RECORD_BYTES,
    aggregate_columns,
)
from kinesis_spout.kinesis.write.hash_key_ranges import HashKeyRanges
from kinesis_spout.kinesis.write.put_records import Single

if TYPE_CHECKING:
    from mypy_boto3_kinesis.type_defs import PutRecordsRequestEntryTypeDef

PARTITION_KEY: Final = "a"
"""Of an aggregated record. It says nothing: the explicit hash key decides on the shard. The KPL's choice."""


class Aggregate:
    """A `Puttable` of several records, in the order they came. Mutable as long as it is being filled.

    Its bytes are made for each request: what waits is not held twice.

    Args:
        shard_id: what all of its records lie in, by ``ranges``.
        ranges: the shards as it knows them.
    """

    def __init__(self, shard_id: str, ranges: HashKeyRanges) -> None:
        self.shard_id = shard_id
        self.ranges = ranges
        self.user_records: list[Single] = []
        self.size_bytes = FRAME_BYTES + len(PARTITION_KEY)
        self._keys: dict[str, None] = {}
        self._hash_keys: set[str | None] = {None}

    def takes(self, entry: Single, max_bytes: int) -> bool:
        """Take a record in, of the shard of those before; False: others are in, and it would weigh too much."""
        key, hash_key = entry.partition_key, entry.explicit_hash_key
        size_bytes = self.size_bytes + RECORD_BYTES + len(entry.data)
        if key not in self._keys:
            size_bytes += KEY_BYTES + (len(key) if key.isascii() else len(key.encode()))
        if hash_key not in self._hash_keys:
            size_bytes += KEY_BYTES + len(hash_key or "")
        if size_bytes > max_bytes and self.user_records:
            return False
        self.user_records.append(entry)
        self.size_bytes = size_bytes
        self._keys[key] = None
        if hash_key is not None:
            self._hash_keys.add(hash_key)
        return True

    @property
    def hash_key(self) -> int:
        """What decides on the shard it goes to: the first record's. Needs one."""
        return self.user_records[0].hash_key

    @property
    def partition_keys(self) -> Collection[str]:
        """Those of its records, each once."""
        return self._keys.keys()

    def request(self) -> "PutRecordsRequestEntryTypeDef":
        """Give it as PutRecords takes it."""
        records = self.user_records
        data = aggregate_columns(
            [entry.partition_key for entry in records],
            [entry.data for entry in records],
            [entry.explicit_hash_key for entry in records],
        )
        return {
            "Data": data,
            "PartitionKey": PARTITION_KEY,
            "ExplicitHashKey": str(self.hash_key),
        }
