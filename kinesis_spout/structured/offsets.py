"""The position of a query: the JSON that Spark keeps in its offset log.

::

    {"version": 1, "streams": {"orders": {"created": 1730000000.0, "shards": {
        "shardId-000000000000": {"after": "495903", "drained": true, "read": {"first": "495901", "rows": 3}},
        "shardId-000000000001": {"at": {"type": "TRIM_HORIZON"}, "parents": ["shardId-000000000000"]}}}}}

An entry says where reading its shard continues: ``at`` its start while nothing was read, then ``after`` a
record. LATEST and timestamps are resolved when the entry is made, and carried.

``read`` says what the batch that ends here has of the shard: everything from ``first`` to ``after``. So an
end offset alone defines a batch's data exactly: Spark does not store the start of the first batch, and a
replay that started at TRIM_HORIZON could not notice that records were trimmed meanwhile.

``since`` is when nothing that follows had arrived yet (seconds since the epoch): once the record at ``after`` is
gone, it tells a shard that was idle from one whose records retention took.

A shard at its end (``drained``: its last page was read) stays in the offset while the stream lists it. So a
child that is found later shows whether its parents were read to their end, also when the query was down at
the split. Shards that are not in the offset were born after it was made: they are read from their beginning.

An offset lies between records of Kinesis: all user records of one aggregated record are in one batch.
``deaggregated``, next to ``streams``, says that the batch that ends here has its aggregated records taken
apart: then ``rows`` counts user records. A replay does the same, whatever the option says now.

``began``, next to ``streams``, exists where the options have patterns: when the query first began, in seconds
since the epoch. It decides where a stream begins that is found later. Such an offset can have other streams
than the one before it.

Key order is fixed: Spark compares offsets as text.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kinesis_spout.model.errors import CheckpointUnreadable
from kinesis_spout.settings.grammar.stream_names import covers, is_pattern
from shard_state import Position, SequenceNumber

VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRange:
    first: SequenceNumber
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardOffset:
    position: Position
    """The position of its next record. Never LATEST."""
    at_end: bool = False
    """Closed, and read to its end. ``drained`` in the JSON form."""
    parents: tuple[str, ...] = ()
    """The shards that must be at their end in an earlier batch."""
    read: ReadRange | None = None
    """The part of it that the batch that ends here has read."""

    @property
    def last(self) -> SequenceNumber | None:
        # A start given by number has a number too, and is not a record that was read.
        return self.position.sequence_number if self.read is not None else None

    def as_document(self) -> dict[str, Any]:
        document: dict[str, Any] = {}
        if self.read is None:
            document["at"] = self.position.as_document()
        else:
            document["after"] = str(self.position.sequence_number)
        if self.at_end:
            document["drained"] = True
        if self.parents:
            document["parents"] = list(self.parents)
        if self.position.since is not None:
            document["since"] = self.position.since
        if self.read is not None:
            document["read"] = {"first": str(self.read.first), "rows": self.read.rows}
        return document

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "ShardOffset":
        """Raises ValueError, KeyError or TypeError if it is not an offset."""
        read, since = document.get("read"), document.get("since")
        if read is None:
            position = Position.from_document(document["at"])
        else:
            position = Position.after(SequenceNumber.parse(document["after"]))
        return cls(
            position=position.known_since(None if since is None else float(since)),
            at_end=bool(document.get("drained", False)),
            parents=tuple(document.get("parents", ())),
            read=None
            if read is None
            else ReadRange(first=SequenceNumber.parse(read["first"]), rows=int(read["rows"])),
        )

    def without_read(self) -> "ShardOffset":
        """The entry for an end whose batch has nothing of the shard."""
        if self.read is None:
            return self
        return ShardOffset(position=self.position, at_end=self.at_end, parents=self.parents)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOffset:
    created: float
    """The stream's creation time, seconds since the epoch: distinguishes a re-created stream."""
    shards: Mapping[str, ShardOffset] = field(default_factory=dict)

    def readable(self) -> list[str]:
        """The shards that may be read: not at their end, but all their parents are (invariant 7)."""
        return [
            shard_id
            for shard_id, shard in self.shards.items()
            if not shard.at_end
            and all(parent not in self.shards or self.shards[parent].at_end for parent in shard.parents)
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryOffset:
    streams: Mapping[str, StreamOffset]
    """By the name or ARN that the options gave."""
    unlogged: bool = False
    """LATEST was resolved for it, or a stream left out; no end offset in Spark has that yet."""
    deaggregated: bool = False
    """The batch that ends here has its aggregated records taken apart."""
    began: float | None = None
    """When the query first began; None where the options name every stream."""

    def as_document(self) -> dict[str, Any]:
        """Keys are in a fixed order."""
        document: dict[str, Any] = {
            "version": VERSION,
            "streams": {
                name: {
                    "created": stream.created,
                    "shards": {
                        shard_id: stream.shards[shard_id].as_document() for shard_id in sorted(stream.shards)
                    },
                }
                for name, stream in sorted(self.streams.items())
            },
        }
        if self.unlogged:
            document["unlogged"] = True
        if self.deaggregated:
            document["deaggregated"] = True
        if self.began is not None:
            document["began"] = self.began
        return document

    def without_read(self) -> "QueryOffset":
        """The end of an empty batch at the same place."""
        streams = {
            name: StreamOffset(
                created=stream.created,
                shards={shard_id: shard.without_read() for shard_id, shard in stream.shards.items()},
            )
            for name, stream in self.streams.items()
        }
        return QueryOffset(streams=streams, began=self.began)

    @classmethod
    def from_document(cls, document: Any, streams: Collection[str]) -> "QueryOffset":
        """Read the JSON form.

        ``streams`` are the names, ARNs and patterns of the present options. Without a pattern they equal
        those of the offset; with one, they name or find every stream in it. Raises CheckpointUnreadable: not
        an offset of this source, of a newer version, or of other streams.
        """
        try:
            if document["version"] != VERSION:
                raise CheckpointUnreadable(
                    f"expected a Kinesis offset of version {VERSION} in the query's checkpoint, got version "
                    f"{document['version']!r}; upgrade kinesis-spout to the version that wrote it"
                )
            offset = cls(
                streams={
                    name: StreamOffset(
                        created=float(stream["created"]),
                        shards={
                            shard_id: ShardOffset.from_document(shard)
                            for shard_id, shard in stream["shards"].items()
                        },
                    )
                    for name, stream in document["streams"].items()
                },
                unlogged=bool(document.get("unlogged", False)),
                deaggregated=bool(document.get("deaggregated", False)),
                began=None if document.get("began") is None else float(document["began"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CheckpointUnreadable(
                f"expected a Kinesis offset (JSON, version {VERSION}) in the query's checkpoint, got "
                f"{str(document)[:200]}: {error!r}. Was the checkpointLocation made by another source?"
            ) from error
        if not _are_same(offset.streams, streams):
            raise CheckpointUnreadable(
                f"expected the streams of the query's checkpoint, {sorted(offset.streams)}, in the options, got "
                f"{sorted(streams)}; a query with other streams needs a checkpointLocation of its own"
            )
        return offset


def _are_same(read: Collection[str], asked: Collection[str]) -> bool:
    if not any(map(is_pattern, asked)):
        return set(read) == set(asked)
    return all(any(covers(part, stream) for part in asked) for stream in read)
