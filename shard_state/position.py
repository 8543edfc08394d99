"""From where, or up to where, shards are read: the five kinds of position that GetShardIterator knows.

LATEST is only ever a wish. It is resolved once, to the time of the first start, and stored before the first
read (invariant 9): resolved again after a restart it would skip what was written in between.

Kinesis cannot start to read inside an aggregated record. A position there is read AT the whole aggregate, whose
first user records must then be skipped: ``includes`` says of each record that comes whether it was asked for.
So ``at`` and ``after`` the user record ``(7, sub 2)`` are read alike, and differ in whether they include it.

Kinesis gives an iterator for a sequence number that retention has trimmed, without an error, and reads on at the
oldest record. So what follows a record is asked for AT that record: if it comes again, nothing behind it was
trimmed. If it does not, only time can tell: ``since`` says that nothing from here on arrived earlier, so all of it
is there while the stream keeps records that old.

A position of some shards of a stream is said of those that it has when reading begins. Shards that are born later
are children, which are read from their oldest record on (invariant 7).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Self

from shard_state.sequence_number import SHARD_START, SequenceNumber
from shard_state.stored_form import mapping, number, text


class PositionType(StrEnum):
    """AWS: the values of ``ShardIteratorType``."""

    TRIM_HORIZON = "TRIM_HORIZON"
    LATEST = "LATEST"
    AT_TIMESTAMP = "AT_TIMESTAMP"
    AT_SEQUENCE_NUMBER = "AT_SEQUENCE_NUMBER"
    AFTER_SEQUENCE_NUMBER = "AFTER_SEQUENCE_NUMBER"


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """The place from which to read a shard. Make one with the class methods, which keep the parts consistent."""

    type: PositionType
    sequence_number: SequenceNumber | None = None
    timestamp: float | None = None
    """Seconds since the epoch; with AT_TIMESTAMP only."""
    is_done: bool = False
    """The user record inside an aggregate that the position names is not of it; with AT_SEQUENCE_NUMBER only."""
    since: float | None = field(default=None, compare=False)
    """No promised record from here on arrived earlier (seconds since the epoch); None: nobody knows. Not stored
    with it."""

    @classmethod
    def trim_horizon(cls) -> "Position":
        """The oldest record that retention has left."""
        return cls(type=PositionType.TRIM_HORIZON)

    @classmethod
    def latest(cls) -> "Position":
        """Just after the newest record, at the moment this is resolved."""
        return cls(type=PositionType.LATEST)

    @classmethod
    def at_timestamp(cls, seconds: float) -> "Position":
        """The first record that arrived at or after ``seconds`` since the epoch."""
        return cls(type=PositionType.AT_TIMESTAMP, timestamp=seconds)

    @classmethod
    def at(cls, sequence_number: SequenceNumber) -> "Position":
        """That very record. In an aggregate: the aggregate, the user records before this one skipped."""
        return cls(type=PositionType.AT_SEQUENCE_NUMBER, sequence_number=sequence_number)

    @classmethod
    def after(cls, sequence_number: SequenceNumber) -> "Position":
        """The record that follows. In an aggregate: the aggregate again, this user record skipped as well."""
        if sequence_number.is_whole:
            return cls(type=PositionType.AFTER_SEQUENCE_NUMBER, sequence_number=sequence_number)
        return cls(type=PositionType.AT_SEQUENCE_NUMBER, sequence_number=sequence_number, is_done=True)

    def includes(self, sequence: SequenceNumber) -> bool:
        """Tell whether a record that was read from here on is of what was asked for, and not to be skipped.

        An aggregate as a whole is, if any of its user records is.
        """
        begin = self.sequence_number
        if begin is None:
            return True
        if begin.is_whole:
            excluded = self.type is PositionType.AFTER_SEQUENCE_NUMBER
            return sequence.number > begin.number or (sequence.number == begin.number and not excluded)
        return sequence > begin or (sequence == begin and not self.is_done)

    @property
    def with_its_record(self) -> "Position":
        """The position to ask Kinesis for: the record before this one too, as proof that nothing is missing."""
        if self.type is not PositionType.AFTER_SEQUENCE_NUMBER or self.sequence_number is None:
            return self
        return Position.at(self.sequence_number)

    def is_met_by(self, first: SequenceNumber | None) -> bool:
        """Tell whether the first record that ``with_its_record`` gave proves that nothing is missing."""
        begin = self.sequence_number
        return begin is not None and first is not None and first.number <= begin.number

    def resolved(self, now: float) -> "Position":
        """This position as reading begins: LATEST turned into the time ``now`` (seconds since the epoch).

        TRIM_HORIZON promises what arrives from now on, and of what came before whatever retention has left.
        """
        if self.type is PositionType.LATEST:
            return Position.at_timestamp(now).known_since(now)
        if self.type is PositionType.TRIM_HORIZON and self.since is None:
            return self.known_since(now)
        return self

    def known_since(self, since: float | None) -> "Position":
        return self if since is None or since == self.since else replace(self, since=since)

    def advanced_to(self, base: SequenceNumber) -> "Position":
        """The position from which to go on once everything up to ``base`` is done: this one, if nothing is."""
        return self if base == SHARD_START else Position.after(base)

    def as_document(self) -> dict[str, Any]:
        document: dict[str, Any] = {"type": self.type.value}
        if self.sequence_number is not None:
            document["sequence_number"] = str(self.sequence_number)
        if self.timestamp is not None:
            document["timestamp"] = self.timestamp
        if self.is_done:
            # Code that does not know of it reads one user record again, and loses no record.
            document["is_done"] = True
        return document

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> "Position":
        """Read the stored form of a resolved position.

        Raises:
            ValueError, KeyError, TypeError: it is no position, or it is LATEST, which is never stored.
        """
        match PositionType(document["type"]):
            case PositionType.TRIM_HORIZON:
                return cls.trim_horizon()
            case PositionType.AT_TIMESTAMP:
                return cls.at_timestamp(number(document["timestamp"], "seconds since the epoch"))
            case PositionType.LATEST:
                raise ValueError("expected a resolved start, got LATEST")
            case (PositionType.AT_SEQUENCE_NUMBER | PositionType.AFTER_SEQUENCE_NUMBER) as type_:
                sequence_number = SequenceNumber.parse(document["sequence_number"])
                if document.get("is_done", False) is True:
                    return cls.after(sequence_number)
                return cls(type=type_, sequence_number=sequence_number)

    def __str__(self) -> str:
        detail = self.sequence_number if self.sequence_number is not None else self.timestamp
        type_ = PositionType.AFTER_SEQUENCE_NUMBER if self.is_done else self.type
        return type_.value if detail is None else f"{type_.value}({detail})"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardPositions:
    """A position for each shard."""

    default: Position
    """The position of shards that ``shards`` does not name."""
    shards: Mapping[str, Position] = field(default_factory=dict, hash=False)

    def of_shard(self, shard_id: str) -> Position:
        return self.shards.get(shard_id, self.default)

    @property
    def every(self) -> tuple[Position, ...]:
        """All the positions, that of unnamed shards first."""
        return (self.default, *self.shards.values())

    def resolved(self, now: float) -> Self:
        named = {shard_id: position.resolved(now) for shard_id, position in self.shards.items()}
        return replace(self, default=self.default.resolved(now), shards=named)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartPositions(ShardPositions):
    """From where each shard is read when reading begins."""

    def shards_as_document(self) -> dict[str, Any]:
        return {shard_id: position.as_document() for shard_id, position in self.shards.items()}

    @classmethod
    def from_documents(cls, default: dict[str, Any], shards: object) -> Self:
        """Read the stored forms of resolved positions: of unnamed shards, and of those that are named.

        Raises:
            ValueError, KeyError, TypeError: they are none, or one is LATEST, which is never stored.
        """
        return cls(
            default=Position.from_document(default),
            shards={
                text(shard_id): Position.from_document(mapping(position))
                for shard_id, position in mapping(shards).items()
            },
        )

    def __str__(self) -> str:
        named = (f"{shard_id}: {position}" for shard_id, position in self.shards.items())
        return ", ".join((*named, f"others: {self.default}")) if self.shards else str(self.default)
