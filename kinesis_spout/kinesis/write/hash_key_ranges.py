"""The shard that a record goes to: the one whose range of hash keys holds the MD5 of its partition key.

https://docs.aws.amazon.com/streams/latest/dev/key-concepts.html#partition-key
"""

import re
from bisect import bisect_right
from collections.abc import Iterable
from hashlib import md5
from typing import Final, Self

from shard_state import Shard

_HASH_KEY: Final = re.compile(r"0|[1-9][0-9]{0,38}")
_HASH_KEYS: Final = 1 << 128
_KEYS_REMEMBERED: Final = 100_000

WHOLE_STREAM: Final = "the whole stream"
"""The name of the only shard of a stream that could not be listed."""


def hash_key(partition_key: str, explicit_hash_key: str | None = None) -> int:
    """Return the place of a record in the stream's range of 0 to 2^128 - 1."""
    if explicit_hash_key is not None:
        return int(explicit_hash_key)
    return int.from_bytes(md5(partition_key.encode(), usedforsecurity=False).digest())


def is_hash_key(text: str) -> bool:
    """Return whether PutRecords accepts a text as an explicit hash key: a decimal number below 2^128."""
    return bool(_HASH_KEY.fullmatch(text)) and int(text) < _HASH_KEYS


class HashKeyRanges:
    """The open shards of a stream when it was listed. Immutable, but for the keys that it remembers."""

    def __init__(self, shards: Iterable[Shard]) -> None:
        listed = list(shards)
        ranges = sorted((shard.hash_range[0], shard.shard_id) for shard in listed if not shard.closed)
        self._ranges = {shard.shard_id: shard.hash_range for shard in listed}
        self._starts = [start for start, _ in ranges]
        self._shard_ids = [shard_id for _, shard_id in ranges] or [WHOLE_STREAM]
        self._shard_of_key: dict[str, str] = {}
        self.are_whole: Final = self._have_no_gaps()
        """True if each hash key lies in a listed, open shard: during a resharding some may not."""

    @classmethod
    def unknown(cls) -> Self:
        """Make the ranges of a stream that cannot be listed: one, of everything."""
        return cls(())

    def shard_of_key(self, partition_key: str, explicit_hash_key: str | None = None) -> str:
        """Return the name of a record's shard, as ``shard_of``; quickly, for a key that was seen before."""
        if explicit_hash_key is not None:
            return self.shard_of(int(explicit_hash_key))
        shard_id = self._shard_of_key.get(partition_key)
        if shard_id is None:
            if len(self._shard_of_key) >= _KEYS_REMEMBERED:
                self._shard_of_key.clear()
            shard_id = self._shard_of_key[partition_key] = self.shard_of(hash_key(partition_key))
        return shard_id

    def shard_of(self, hash_key: int) -> str:
        """Return the shard's name; an old one, if the stream was resharded since the listing."""
        return self._shard_ids[max(0, bisect_right(self._starts, hash_key) - 1)]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HashKeyRanges) and self._ranges == other._ranges

    def __hash__(self) -> int:
        return hash(tuple(self._ranges))

    def __len__(self) -> int:
        """Count the distinguishable shards: at least one."""
        return len(self._shard_ids)

    def _have_no_gaps(self) -> bool:
        following = 0
        for start, shard_id in zip(self._starts, self._shard_ids, strict=False):
            if start != following:
                return False
            following = self._ranges[shard_id][1] + 1
        return following == _HASH_KEYS

    @property
    def are_known(self) -> bool:
        return bool(self._ranges)

    def are_older_than(self, shard_id: str) -> bool:
        """Return whether the shard was made since; never for ``unknown`` ranges."""
        return self.are_known and shard_id not in self._ranges

    def lies_in(self, hash_key: int, shard_id: str) -> bool:
        """Return whether a shard, open or closed, is known to hold the hash key."""
        first, last = self._ranges.get(shard_id, (0, -1))
        return first <= hash_key <= last
