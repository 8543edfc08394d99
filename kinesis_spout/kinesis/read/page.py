"""A GetRecords reply, decoded from JSON.

The records come out ready for the user: no dictionaries in between. The native decoder takes the records from the
body, and leaves the rest to Python. Without it, or where it refuses a body, Python decodes all in one step to
typed structs, base64 included.
"""

from bisect import bisect_left
from collections.abc import Sequence
from functools import cached_property
from typing import Annotated, Final, Self

import msgspec

from kinesis_spout.kinesis import native
from kinesis_spout.model.errors import Unavailable
from kinesis_spout.model.record import Record
from kinesis_spout.ports import Page
from shard_state import Position, SequenceNumber, Shard

Body = bytes | bytearray | memoryview
"""The body of a reply. Decoded values share no memory with it."""


Millis = Annotated[int, msgspec.Meta(le=10**12)]
"""30 years, far more than any retention: a time before it can be computed."""


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
    """None: the shard is closed, and this is its last reply, which ``ReplyGetter`` verifies."""
    millis_behind_latest: Millis | None = None
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
_MOST_DIGITS: Final = 128
_LATEST_SECONDS: Final = 253_402_300_800.0
"""The year 10,000, which no calendar of Python has."""


def decode_reply(body: Body, *, stream: str = "", shard_id: str = "") -> GetRecordsReply:
    """Decode a good reply; its records get these names of their stream and shard.

    Raises Unavailable for anything else: a repeated call may help.
    """
    if native.decoder is not None:
        taken = native.decoder.records(body, Record, stream, shard_id)
        if taken is not None:
            records, size_bytes, has_aggregates, rest = taken
            reply = decode_in_python(rest)
            reply.records = records
            # These would be computed on request.
            reply.__dict__.update(size_bytes=size_bytes, may_have_aggregates=has_aggregates)
            return reply
    return decode_in_python(body).placed(stream, shard_id)


def decode_in_python(body: Body) -> GetRecordsReply:
    """Decode a reply, or what the native decoder has left of it. Raises like ``decode_reply``."""
    try:
        reply = _decoder.decode(body)
        check_records(reply.records)
        check_children(reply.announced)
        check_iterator(reply.next_shard_iterator or "")
    except Exception as error:
        raise Unavailable(
            f"expected a GetRecords reply, got {len(body)} bytes of something else: {type(error).__name__}: "
            f"{error}; the call is repeated. If this continues, check what is between here and Kinesis: a proxy, "
            "a VPC endpoint"
        ) from error
    return reply


def check_records(records: Sequence[Record]) -> None:
    """Refuse what no shard has, as the native decoder does. Raises ValueError."""
    last = -1
    for record in records:
        digits, arrival = record.sequence_number, record.arrival_timestamp
        if not (digits.isascii() and digits.isdigit() and len(digits) <= _MOST_DIGITS):
            raise ValueError(f"expected a sequence number, got {digits[:_MOST_DIGITS]!r}")
        if arrival is not None and not 0 <= arrival < _LATEST_SECONDS:
            raise ValueError(f"expected a time of arrival, got {arrival}")
        number = int(digits)
        if number <= last:
            raise ValueError(f"expected a record after {last}, got {number}")
        last = number


def check_iterator(iterator: str) -> None:
    """Refuse what no request can hold, and each would fail that does. Raises ValueError."""
    if not iterator.isascii():
        raise ValueError(f"expected an iterator, got {iterator!a}")


def check_children(children: Sequence[ChildShard] | None) -> None:
    """Refuse child shards without numbers for hash keys. Raises ValueError."""
    for child in children or ():
        child.to_shard()


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
