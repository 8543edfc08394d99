"""The user records of a page, in place of the aggregated records that carried them.

A user record has data, a partition key and a hash key of its own, and the sequence number, the arrival and the
encryption of its carrier; its sub-sequence number is its index in there. What begins like an aggregated record and
is damaged stays the record that it is. An aggregated record with nothing in it is nothing.

A user record may lie outside its shard by its hash key: its producer had an old picture of the shards, or took no
look at them. It is delivered all the same, for its carrier is in no other shard, and it is counted.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from hashlib import md5
from typing import Final, NamedTuple

from kinesis_spout.kinesis.aggregated_record import MAGIC, Contents, contents
from kinesis_spout.kinesis.read.read_settings import ReadSettings
from kinesis_spout.model.record import Record
from kinesis_spout.ports import Page
from shard_state import Position, Shard

try:
    # A part of CPython, without stubs. OpenSSL's takes three times as long for a few bytes.
    from _md5 import md5 as md5_of_key  # type: ignore[import-not-found]
except ImportError:
    md5_of_key = md5

_MAGIC_BYTES: Final = len(MAGIC)
_MAX_DIGITS: Final = len(str(2**128 - 1))


class HashKeys(NamedTuple):
    """The first and the last hash key of a shard, as the 16 bytes that an MD5 has."""

    first: bytes
    last: bytes

    @classmethod
    def to_check(cls, shard: Shard) -> "HashKeys | None":
        """Give a shard's, if the hash keys of its user records are to be looked at; None if they are not.

        They are where a reshard has made the shard: producers may not have noticed. That costs 0.4 us for every
        different partition key of an aggregated record. A stream that was never resharded pays nothing.
        """
        if not shard.parents:
            return None
        first, last = shard.hash_range
        return cls(first.to_bytes(16), last.to_bytes(16))

    def have(self, partition_key: bytes) -> bool:
        digest: bytes = md5_of_key(partition_key).digest()
        return self.first <= digest <= self.last

    def have_explicit(self, hash_key: str) -> bool:
        """Tell whether an explicit hash key is of the shard; what is no hash key is of no shard."""
        fits = len(hash_key) <= _MAX_DIGITS and hash_key.isascii() and hash_key.isdigit()
        first, last = int.from_bytes(self.first), int.from_bytes(self.last)
        return fits and first <= int(hash_key) <= last


class TakenApart(NamedTuple):
    records: Sequence[Record]
    damaged_aggregates: int = 0
    """How many began like an aggregated record and had a wrong digest, message or key: they are records as any."""
    records_outside_shard: int = 0
    """How many user records lie outside the shard by their hash keys."""


def page_as_set(
    page: Page, settings: ReadSettings, *, start: Position | None, hash_keys: HashKeys | None
) -> Page:
    """Take the aggregated records of a page apart if the settings say so; see ``with_user_records``."""
    return with_user_records(page, start=start, hash_keys=hash_keys) if settings.deaggregate else page


def with_user_records(page: Page, *, start: Position | None, hash_keys: HashKeys | None) -> Page:
    """Take the aggregated records of a page apart. This very page is given back where none is.

    Where this may be the first page, user records before its ``start`` are left out.
    """
    apart = taken_apart(page.records, hash_keys)
    if apart.records is page.records:
        return page
    return replace(
        page,
        records=_from_start(apart.records, start),
        kinesis_records=len(page.records),
        damaged_aggregates=apart.damaged_aggregates,
        records_outside_shard=apart.records_outside_shard,
    )


def taken_apart(records: Sequence[Record], hash_keys: HashKeys | None = None) -> TakenApart:
    """Put user records in place of their carriers; gives the very list back if none is aggregated."""
    payloads = [record.data for record in records]
    # Text, and what is packed or encoded in most other ways, comes before the magic bytes: that is told at once.
    if not payloads or max(payloads) < MAGIC:
        return TakenApart(records)
    begins = [payload[:_MAGIC_BYTES] for payload in payloads]
    if MAGIC not in begins:
        return TakenApart(records)
    found: list[Record] = []
    damaged = outside = done = 0
    for at, begin in enumerate(begins):
        if begin != MAGIC:
            continue
        found += records[done:at]
        done = at + 1
        inside = contents(records[at].data)
        if inside is None:
            damaged += 1
            found.append(records[at])
        else:
            found += _user_records(records[at], inside)
            outside += 0 if hash_keys is None else outside_of(hash_keys, inside)
    found += records[done:]
    return TakenApart(found, damaged, outside)


def outside_of(hash_keys: HashKeys, inside: Contents) -> int:
    outside = {key for key in set(inside.partition_keys) if not hash_keys.have(key.encode())}
    if inside.explicit_hash_keys is None:
        return sum(map(outside.__contains__, inside.partition_keys)) if outside else 0
    return sum(
        key in outside if given is None else not hash_keys.have_explicit(given)
        for key, given in zip(inside.partition_keys, inside.explicit_hash_keys, strict=True)
    )


def _from_start(records: Sequence[Record], start: Position | None) -> Sequence[Record]:
    """Leave out user records before the one at which reading began; they are the first of the page, if any are."""
    if start is None or not records or start.includes(records[0].sequence):
        return records
    return records[bisect_left(records, True, key=lambda record: start.includes(record.sequence)) :]


def _user_records(carrier: Record, inside: Contents) -> Sequence[Record]:
    number, arrival = carrier.sequence_number, carrier.arrival_timestamp
    encryption, stream, shard_id = carrier.encryption_type, carrier.stream, carrier.shard_id
    records = [
        Record(data, number, key, arrival, encryption, stream, shard_id, 1, sub)
        for sub, (data, key) in enumerate(zip(inside.data, inside.partition_keys, strict=True))
    ]
    if inside.explicit_hash_keys is not None:
        for record, hash_key in zip(records, inside.explicit_hash_keys, strict=True):
            record.explicit_hash_key = hash_key
    return records
