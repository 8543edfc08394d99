"""The user records of a page, in place of the aggregated records that carried them.

A user record has its data, partition key and hash key, and its carrier's sequence number, arrival and
encryption; its sub-sequence number is its index in the carrier. A damaged aggregated record stays an ordinary
record. An empty one gives no record.

A user record may lie outside its shard by its hash key: its producer had an old list of the shards, or none.
It is delivered all the same, because its carrier is in no other shard, and it is counted.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from hashlib import md5
from typing import Final, NamedTuple

import msgspec

from kinesis_spout.kinesis.aggregated_record import MAGIC, Contents, contents
from kinesis_spout.kinesis.read.read_settings import ReadSettings
from kinesis_spout.model.record import Record, TraceContext, TracedRecord
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
    """The first and the last hash key of a shard, as the 16 bytes of an MD5."""

    first: bytes
    last: bytes

    @classmethod
    def to_check(cls, shard: Shard) -> "HashKeys | None":
        """Return a shard's, if its user records are to be checked; else None.

        They are checked where a reshard has made the shard: producers may not have noticed. That costs 0.4 us
        for each different partition key of an aggregated record. A stream that was never resharded pays nothing.
        """
        if not shard.parents:
            return None
        first, last = shard.hash_range
        return cls(first.to_bytes(16), last.to_bytes(16))

    def have(self, partition_key: bytes) -> bool:
        digest: bytes = md5_of_key(partition_key).digest()
        return self.first <= digest <= self.last

    def have_explicit(self, hash_key: str) -> bool:
        """True if an explicit hash key is in the shard; an invalid one is in no shard."""
        fits = len(hash_key) <= _MAX_DIGITS and hash_key.isascii() and hash_key.isdigit()
        first, last = int.from_bytes(self.first), int.from_bytes(self.last)
        return fits and first <= int(hash_key) <= last


class TakenApart(NamedTuple):
    records: Sequence[Record]
    damaged_aggregates: int = 0
    """The number that began like an aggregated record but had a wrong digest, message or key: ordinary ones."""
    records_outside_shard: int = 0
    """The number of user records that lie outside the shard by their hash keys."""


def page_as_set(
    page: Page, settings: ReadSettings, *, start: Position | None, hash_keys: HashKeys | None
) -> Page:
    if not settings.deaggregate:
        return page
    return with_user_records(page, start=start, hash_keys=hash_keys, with_traces=settings.tracing)


def with_user_records(
    page: Page, *, start: Position | None, hash_keys: HashKeys | None, with_traces: bool = False
) -> Page:
    """Take the aggregated records of a page apart. Returns the same page if it has none.

    If this may be the first page, user records before its ``start`` are left out.
    """
    apart = taken_apart(page.records, hash_keys, with_traces=with_traces)
    if apart.records is page.records:
        return page
    return replace(
        page,
        records=_from_start(apart.records, start),
        kinesis_records=len(page.records),
        damaged_aggregates=apart.damaged_aggregates,
        records_outside_shard=apart.records_outside_shard,
    )


def taken_apart(
    records: Sequence[Record], hash_keys: HashKeys | None = None, *, with_traces: bool = False
) -> TakenApart:
    """Put user records in place of their carriers; returns the same list if none is aggregated.

    ``with_traces``: those that a producer gave a sampled trace context are `TracedRecord`s.
    """
    payloads = [record.data for record in records]
    # Text, and most other packed or encoded data, sorts before the magic bytes: that is checked first.
    if not payloads or max(payloads) < MAGIC:
        return TakenApart(records)
    suspects = [at for at, payload in enumerate(payloads) if payload[:_MAGIC_BYTES] == MAGIC]
    if not suspects:
        return TakenApart(records)
    found: list[Record] = []
    damaged = outside = done = 0
    for at in suspects:
        inside = contents(payloads[at], with_traces=with_traces)
        if inside is None:
            damaged += 1
            continue
        found += records[done:at]
        found += _user_records(records[at], inside)
        outside += 0 if hash_keys is None else outside_of(hash_keys, inside)
        done = at + 1
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
    """Leave out user records before the one at which reading began, at the beginning of the page."""
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
    if inside.traces is None:
        return records
    return [
        record if trace is None else _traced(record, trace)
        for record, trace in zip(records, inside.traces, strict=True)
    ]


def _traced(record: Record, trace: TraceContext) -> TracedRecord:
    return TracedRecord(
        **msgspec.structs.asdict(record), traceparent=trace.traceparent, tracestate=trace.tracestate
    )
