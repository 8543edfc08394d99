"""A Kinesis record as the user sees it, and as GetRecords sends it: one struct serves both.

The decoder fills the fields that come over the wire in place; ``stream``, ``shard_id`` and ``attempt`` are
added by the getter. One object per record, no copy in between.
"""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Self

import msgspec

from shard_state import SequenceNumber
from shard_state.sequence_number import WHOLE

_USER_RECORD_BYTES: Final = 200
"""What the objects of a user record take, roughly."""


class Record(msgspec.Struct, gc=False):
    """One record of a shard. Not frozen, because that is faster to decode; a handler gets a copy of its own.

    The garbage collector passes over it: it holds only what refers to nothing, and there are millions of it.
    """

    data: bytes = msgspec.field(name="Data")
    """The payload, at most 10 MiB."""
    sequence_number: str = msgspec.field(name="SequenceNumber")
    """Decimal text of up to 129 digits. Compare as integers: ``record.sequence``."""
    partition_key: str | None = msgspec.field(name="PartitionKey", default=None)
    """At most 256 characters; None where the stream distributes records by itself (strategy AUTO)."""
    arrival_timestamp: float | None = msgspec.field(name="ApproximateArrivalTimestamp", default=None)
    """Seconds since the epoch. Not guaranteed to grow from record to record."""
    encryption_type: str | None = msgspec.field(name="EncryptionType", default=None)
    """"KMS", "NONE", or None where the endpoint does not say."""
    stream: str = ""
    shard_id: str = ""
    attempt: int = 1
    """Which delivery this is: 1 at first, 2 for the first retry."""
    sub_sequence_number: int | None = None
    """The index inside the aggregated record that carried it (the KPL's format), from 0; None for a record that
    came by itself."""
    explicit_hash_key: str | None = None
    """What its producer gave to choose the shard, as decimal text. Only aggregated records tell."""

    if TYPE_CHECKING:  # every struct has it, which msgspec's stubs do not say

        def __copy__(self) -> Self: ...

    @property
    def sequence(self) -> SequenceNumber:
        """The sequence number, in its order."""
        sub = self.sub_sequence_number
        return SequenceNumber(int(self.sequence_number), WHOLE if sub is None else sub)

    @property
    def sequence_text(self) -> str:
        """What ``str(self.sequence)`` gives: ``"123"``, or ``"123:4"`` of a user record in an aggregate."""
        if self.sub_sequence_number is None:
            return self.sequence_number
        return f"{self.sequence_number}:{self.sub_sequence_number}"

    @property
    def size_bytes(self) -> int:
        """What it takes of a buffer: its data and key, and of a user record also the objects around them.

        Of user records a page may hold hundreds of thousands, which weigh little else.
        """
        size = len(self.data) + len(self.partition_key or "")
        return size if self.sub_sequence_number is None else size + _USER_RECORD_BYTES

    @property
    def message_id(self) -> str:
        """``shardId:sequence``: unique within the stream, the same at every delivery, and in a dead letter.

        Of a user record in an aggregate: ``shardId:sequence:sub``. What ``RecordSpout.next_tuple`` gives adds
        which delivery it is.
        """
        return f"{self.shard_id}:{self.sequence_text}"

    @property
    def arrival(self) -> datetime | None:
        """The approximate arrival as an aware UTC datetime."""
        return None if self.arrival_timestamp is None else datetime.fromtimestamp(self.arrival_timestamp, UTC)
