"""A GetRecords reply, decoded: JSON or CBOR, by its content type.

The records come out ready for the user: no dictionaries in between. The native decoder takes the records from the
body, and leaves the rest to Python. Without it, or where it refuses a body, Python decodes all: JSON in one step
to typed structs, base64 included.
"""

from bisect import bisect_left
from collections.abc import Mapping
from datetime import datetime
from functools import cached_property
from typing import Any, Final, Self

import msgspec

from kinesis_spout.kinesis import native
from kinesis_spout.kinesis.calls import JSON, expected
from kinesis_spout.kinesis.read import cbor
from kinesis_spout.model.errors import Unavailable
from kinesis_spout.model.record import Record
from kinesis_spout.ports import Page
from shard_state import Position, SequenceNumber, Shard

Body = bytes | bytearray | memoryview
"""Of a reply. What is decoded from it shares no memory with it."""


class HashKeyRange(msgspec.Struct, frozen=True, rename="pascal"):
    starting_hash_key: str
    ending_hash_key: str


class ChildShard(msgspec.Struct, frozen=True, rename="pascal"):
    shard_id: str
    parent_shards: list[str]
    hash_key_range: HashKeyRange

    @classmethod
    def of(cls, shard: Shard) -> "ChildShard":
        first, last = map(str, shard.hash_range)
        hash_keys = HashKeyRange(starting_hash_key=first, ending_hash_key=last)
        return cls(shard_id=shard.shard_id, parent_shards=list(shard.parents), hash_key_range=hash_keys)

    def to_shard(self) -> Shard:
        return Shard(
            shard_id=self.shard_id,
            parents=tuple(self.parent_shards),
            hash_range=(int(self.hash_key_range.starting_hash_key), int(self.hash_key_range.ending_hash_key)),
        )


class GetRecordsReply(msgspec.Struct, rename="pascal", dict=True):
    """A reply as it comes over the wire. ``Record`` has its wire names itself."""

    records: list[Record]
    next_shard_iterator: str | None = None
    """None: the shard is closed, and this is its last reply."""
    millis_behind_latest: int | None = None
    announced: list[ChildShard] | None = msgspec.field(default=None, name="ChildShards")

    @cached_property
    def size_bytes(self) -> int:
        keys = "".join([record.partition_key or "" for record in self.records])
        return sum([len(record.data) for record in self.records]) + len(keys.encode())

    def placed(self, stream: str, shard_id: str) -> Self:
        """Tell the records their stream and shard; returns the same reply."""
        for record in self.records:
            record.stream = stream
            record.shard_id = shard_id
        return self

    @cached_property
    def may_have_aggregates(self) -> bool:
        """False only where the native decoder has looked for aggregated records and found none."""
        return True

    @property
    def first(self) -> SequenceNumber | None:
        return self.records[0].sequence if self.records else None

    @property
    def last(self) -> SequenceNumber | None:
        return self.records[-1].sequence if self.records else None

    @property
    def first_arrival(self) -> float | None:
        return self.records[0].arrival_timestamp if self.records else None

    @property
    def last_arrival(self) -> float | None:
        return self.records[-1].arrival_timestamp if self.records else None

    @property
    def at_end(self) -> bool:
        return self.next_shard_iterator is None

    def from_position(self, position: Position) -> "GetRecordsReply":
        first = bisect_left(self.records, True, key=lambda record: position.includes(record.sequence))
        return self if first == 0 else msgspec.structs.replace(self, records=self.records[first:])

    @property
    def child_shards(self) -> tuple[Shard, ...]:
        """The shards that continue this one, on the last page of a closed shard."""
        return tuple(child.to_shard() for child in self.announced or ())


_decoder: Final = msgspec.json.Decoder(GetRecordsReply)


def is_cbor(content_type: str) -> bool:
    return "cbor" in content_type


def decode_reply(
    body: Body, content_type: str = JSON, *, stream: str = "", shard_id: str = ""
) -> GetRecordsReply:
    """Decode a good reply; its records get these names of their stream and shard.

    Raises Unavailable for anything else: a repeated call may help.
    """
    if native.decoder is not None:
        taken = native.decoder.records(body, is_cbor(content_type), Record, stream, shard_id)
        if taken is not None:
            records, size_bytes, has_aggregates, rest = taken
            reply = decode_rest(rest, content_type)
            if reply is not None:
                reply.records = records
                # What would be computed when it is asked for.
                reply.__dict__.update(size_bytes=size_bytes, may_have_aggregates=has_aggregates)
                return reply
    return _decoded(body, content_type).placed(stream, shard_id)


def decode_rest(rest: bytes, content_type: str) -> GetRecordsReply | None:
    """Decode a reply without its records; None if it has some: it named them more than once."""
    reply = _decoded(rest, content_type)
    return None if reply.records else reply


def _decoded(body: Body, content_type: str) -> GetRecordsReply:
    try:
        return _of_cbor(body) if is_cbor(content_type) else _decoder.decode(body)
    except ValueError as error:  # msgspec's errors, and of text that is no UTF-8
        raise Unavailable(
            f"expected a GetRecords reply as {content_type}, got {len(body)} bytes of something else: "
            f"{error}; the call is repeated. If this continues, check what is between here and Kinesis: a proxy, "
            "a VPC endpoint"
        ) from error


def _of_cbor(body: Body) -> GetRecordsReply:
    reply = cbor.decode(body)
    for record in reply.get("Records") or () if isinstance(reply, dict) else ():
        arrival = record.get("ApproximateArrivalTimestamp") if isinstance(record, dict) else None
        if isinstance(arrival, int):
            # Whole numbers are milliseconds, tagged as a time or not; others are seconds, as anywhere in CBOR.
            record["ApproximateArrivalTimestamp"] = arrival / 1000
    return msgspec.convert(reply, GetRecordsReply)


def reply_from_botocore(response: Mapping[str, Any]) -> GetRecordsReply:
    """Convert a reply that botocore has parsed (another content type than ours)."""
    return GetRecordsReply(
        records=[
            Record(
                data=record["Data"],
                sequence_number=record["SequenceNumber"],
                partition_key=record.get("PartitionKey"),
                arrival_timestamp=_seconds(record.get("ApproximateArrivalTimestamp")),
                encryption_type=record.get("EncryptionType"),
            )
            for record in expected(response, "Records", "GetRecords")
        ],
        next_shard_iterator=response.get("NextShardIterator"),
        millis_behind_latest=response.get("MillisBehindLatest"),
        announced=msgspec.convert(response.get("ChildShards") or [], list[ChildShard]),
    )


def page_of(reply: GetRecordsReply, *, since: float | None = None, data_losses: int = 0) -> Page:
    """Make a page that owns the reply's records. Aggregated records are left as they are."""
    return Page(
        records=reply.records,
        size_bytes=reply.size_bytes,
        millis_behind_latest=reply.millis_behind_latest or 0,
        at_end=reply.at_end,
        child_shards=reply.child_shards,
        data_losses=data_losses,
        since=since,
    )


def _seconds(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()
