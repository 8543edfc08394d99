"""A Kinesis stream in memory, for the tests of this package and of its users.

It does what the service does where it matters to a reader, and where stand-ins often differ:

* a record goes to the shard whose hash-key range holds the MD5 of its partition key;
* an iterator is a bookmark: it can be used again, lives 300 s, and LATEST is fixed when it is made;
* a closed shard keeps its records; its end (no next iterator, the child shards) comes with its last
  page, not before, and not with the split;
* retention removes records, and then closed and empty shards; an iterator for a number that it removed is given
  without an error, and reads from the oldest record left;
* a page has at most 10 MiB, unless its only record has more, and says how far behind the tip it ends.

Sequence numbers start short and have gaps, so that code which compares them as text, or adds one, fails.
"""

import hashlib
import itertools
import math
import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from kinesis_spout.kinesis.aggregated_record import UserRecord, aggregate
from kinesis_spout.kinesis.read.user_records import HashKeys, taken_apart
from kinesis_spout.model.clock import Clock, SystemClock
from kinesis_spout.model.errors import (
    DataLoss,
    ExpiredIterator,
    InvalidIterator,
    KinesisError,
    ShardNotFound,
    StreamNotFound,
    Throttled,
    Unavailable,
)
from kinesis_spout.model.record import Record
from kinesis_spout.ports import Page, StreamSummary
from shard_state import Position, PositionType, SequenceNumber, Shard

ITERATOR_SECONDS: Final = 300.0
HASH_KEYS: Final = 1 << 128
_FIRST_NUMBER: Final = 7
_NUMBER_STEP: Final = 3
_PAGE_BYTES: Final = 10 * 1024 * 1024


@dataclass(slots=True)
class _ShardLog:
    shard: Shard
    first_number: int
    records: list[Record] = field(default_factory=list)
    last: int = -1
    """The last number ever put."""
    closed_at: float | None = None
    children: tuple[Shard, ...] = ()


class InMemoryStream:
    """A stream to put records into, to split, merge and trim, and to read as the API would. Thread-safe.

    Args:
        name: of the stream.
        shards: how many it starts with, dividing the hash keys evenly.
        retention_seconds: how long records are kept by the clock.
        clock: dates records and iterators.
        ignores_keys: as with the record distribution strategy AUTO, open shards take turns. May be changed
            at any time.
    """

    def __init__(
        self,
        name: str = "stream",
        *,
        shards: int = 1,
        retention_seconds: float = 24 * 3600.0,
        clock: Clock | None = None,
        ignores_keys: bool = False,
    ) -> None:
        self.name = name
        self.ignores_keys = ignores_keys
        self.clock = clock or SystemClock()
        self._retention_seconds = retention_seconds
        self._created = self.clock.time()
        self._lock = threading.RLock()
        self._logs: dict[str, _ShardLog] = {}
        self._next_number = _FIRST_NUMBER
        self._next_shard = 0
        self._keyless = 0
        self._generation = 0
        self._faults: dict[str | None, deque[KinesisError]] = {}
        self._refusals = 0
        self._deleted = False
        for index in range(shards):
            self._open_shard((index * HASH_KEYS // shards, (index + 1) * HASH_KEYS // shards - 1), parents=())

    def put(
        self, data: bytes, partition_key: str | None = None, *, explicit_hash_key: str | None = None
    ) -> Record:
        """Append a record to its shard. Without a key, open shards take turns, as with the strategy AUTO."""
        with self._lock:
            self._check_exists()
            log = self._log_for(partition_key, explicit_hash_key)
            number = self._take_number()
            record = Record(
                data=data,
                sequence_number=str(number),
                partition_key=partition_key,
                arrival_timestamp=math.floor(self.clock.time() * 1000) / 1000,
                stream=self.name,
                shard_id=log.shard.shard_id,
            )
            log.records.append(record)
            log.last = number
            return record

    def put_aggregated(self, records: Iterable[UserRecord]) -> list[Record]:
        """Append user records as one aggregated record, as the KPL does; it lies where the first of them would.

        Returns:
            The user records, as a reader gets them.
        """
        inside = tuple(records)
        if not inside:
            raise ValueError("expected at least one user record, got none")
        carrier = self.put(
            aggregate(inside), inside[0].partition_key, explicit_hash_key=inside[0].explicit_hash_key
        )
        return list(taken_apart([carrier]).records)

    def split(self, shard_id: str, at: int | None = None) -> tuple[Shard, Shard]:
        """Close a shard and open two. ``at`` is the second one's first hash key; the middle by default."""
        with self._lock:
            first, last = self._open_log(shard_id).shard.hash_range
            middle = (first + last + 1) // 2 if at is None else at
            if not first < middle <= last:
                raise ValueError(
                    f"expected a hash key in {first + 1}..{last} to split {shard_id} at, got {middle}"
                )
            children = (
                self._open_shard((first, middle - 1), parents=(shard_id,)),
                self._open_shard((middle, last), parents=(shard_id,)),
            )
            self._close(shard_id, children)
            return children

    def merge(self, shard_id: str, adjacent_shard_id: str) -> Shard:
        """Close two shards with adjacent hash keys and open one."""
        with self._lock:
            low, high = sorted(
                self._open_log(each).shard.hash_range for each in (shard_id, adjacent_shard_id)
            )
            if low[1] + 1 != high[0]:
                raise ValueError(f"expected adjacent shards, got {shard_id} and {adjacent_shard_id}")
            child = self._open_shard((low[0], high[1]), parents=(shard_id, adjacent_shard_id))
            self._close(shard_id, (child,))
            self._close(adjacent_shard_id, (child,))
            return child

    def trim(self, shard_id: str, up_to: SequenceNumber) -> None:
        """Let retention take every record of a shard up to and including ``up_to``, now."""
        with self._lock:
            log = self._log(shard_id)
            log.records = [record for record in log.records if record.sequence.number > up_to.number]

    @property
    def is_deleted(self) -> bool:
        """True if it was deleted."""
        return self._deleted

    def delete(self) -> None:
        """Delete the stream: every call from now on finds nothing."""
        with self._lock:
            self._deleted = True

    def fail_next(self, error: KinesisError, *, times: int = 1, shard_id: str | None = None) -> None:
        """Answer the next ``times`` calls of GetRecords with ``error``: of one shard, or of any."""
        with self._lock:
            self._faults.setdefault(shard_id, deque()).extend([error] * times)

    def throttle(self, *, times: int = 1, shard_id: str | None = None) -> None:
        """Refuse the next reads for their rate."""
        error = Throttled("ProvisionedThroughputExceededException: Rate exceeded (injected)")
        self.fail_next(error, times=times, shard_id=shard_id)

    def make_unavailable(self, *, times: int = 1, shard_id: str | None = None) -> None:
        """Fail the next reads as a server does."""
        self.fail_next(Unavailable("InternalFailure (injected)"), times=times, shard_id=shard_id)

    def refuse_sequence_numbers(self, *, times: int = 1) -> None:
        """Refuse the next ``times`` positions by a sequence number as invalid, although the record is there."""
        with self._lock:
            self._refusals = times

    def expire_iterators(self) -> None:
        """Let every iterator made so far be expired."""
        with self._lock:
            self._generation += 1

    def summary(self) -> StreamSummary:
        """Describe the stream."""
        with self._lock:
            self._check_exists()
            arn = f"arn:aws:kinesis:us-east-1:000000000000:stream/{self.name}"
            return StreamSummary(
                name=self.name,
                arn=arn,
                created=self._created,
                ignores_keys=self.ignores_keys,
                retention_hours=max(1, round(self._retention_seconds / 3600)),
            )

    def list_shards(self) -> list[Shard]:
        """List the shards that retention has left."""
        with self._lock:
            self._check_exists()
            self._expire()
            return [log.shard for log in self._logs.values()]

    def hash_keys(self, shard_id: str) -> HashKeys | None:
        """Give what ``HashKeys.to_check`` says of a shard; None of one that is not there."""
        with self._lock:
            log = self._logs.get(shard_id)
            return None if log is None else HashKeys.to_check(log.shard)

    def records(self, shard_id: str) -> list[Record]:
        """Give what a shard holds now, in order."""
        with self._lock:
            return list(self._log(shard_id).records)

    def unread(self, shard_id: str, position: Position) -> int:
        """Count the records of a shard that follow a position, those in aggregated records one by one."""
        with self._lock:
            log = self._log(shard_id)
            after = self._after(log, position) if position.sequence_number is None else -1
            following = [
                record
                for record in log.records
                if record.sequence.number > after and position.includes(record.sequence)
            ]
            return sum(position.includes(record.sequence) for record in taken_apart(following).records)

    def shard_iterator(self, shard_id: str, position: Position) -> str:
        """Make an iterator, as GetShardIterator does.

        Raises:
            DataLoss: the position names a record that is not of this shard.
            ShardNotFound, StreamNotFound: there is no such shard or stream.
        """
        with self._lock:
            log = self._log(shard_id)
            after = self._after(log, position)
            return f"{shard_id} {after} {self.clock.monotonic()} {self._generation}"

    def get_records(self, iterator: str, limit: int) -> tuple[Page, str | None]:
        """Read, as GetRecords does: a page, and the next iterator, or None at the end of a closed shard.

        Raises:
            ExpiredIterator, InvalidIterator: ask for a new one.
            KinesisError: what was injected.
        """
        with self._lock:
            try:
                shard_id, after_text, made_text, generation = iterator.split(" ")
            except ValueError as error:
                raise InvalidIterator(f"expected an iterator of this stream, got {iterator!r}") from error
            log = self._log(shard_id)
            self._raise_injected(shard_id)
            now = self.clock.monotonic()
            if int(generation) != self._generation or now - float(made_text) > ITERATOR_SECONDS:
                raise ExpiredIterator(f"iterator of shard {shard_id} expired; ask for a new one")
            unread = [record for record in log.records if record.sequence.number > int(after_text)]
            # Copies: a reader may count attempts on its own.
            records = [_copy(record) for record in _within_a_page(unread[:limit])]
            after = records[-1].sequence_number if records else after_text
            has_all = len(records) == len(unread)
            at_end = has_all and log.closed_at is not None
            behind_seconds = self.clock.time() - (records[-1].arrival_timestamp or 0.0) if records else 0.0
            page = Page(
                records=records,
                size_bytes=sum(map(_size_bytes, records)),
                millis_behind_latest=0 if has_all else max(1, int(behind_seconds * 1000)),
                at_end=at_end,
                child_shards=log.children if at_end else (),
            )
            return page, None if at_end else f"{shard_id} {after} {now} {generation}"

    def _after(self, log: _ShardLog, position: Position) -> int:
        """Find the number after which a position begins: fixed now, whatever is put later."""
        if position.type is PositionType.TRIM_HORIZON:
            return -1
        if position.type is PositionType.LATEST:
            return log.last
        if position.sequence_number is None:
            since = position.timestamp or 0.0
            early = [record for record in log.records if (record.arrival_timestamp or 0.0) < since]
            return early[-1].sequence.number if early else -1
        if self._refusals:
            self._refusals -= 1
            raise DataLoss("InvalidArgumentException: the sequence number is refused (injected)")
        number = position.sequence_number.number
        is_at = position.type is PositionType.AT_SEQUENCE_NUMBER
        after = number - 1 if is_at else number
        newest = self._next_number if log.closed_at is None else log.last
        if not log.first_number <= number <= newest:
            raise DataLoss(
                f"InvalidArgumentException: {position} is outside of {log.shard.shard_id}, or of its retention"
            )
        return after

    def _raise_injected(self, shard_id: str) -> None:
        for key in (shard_id, None):
            waiting = self._faults.get(key)
            if waiting:
                raise waiting.popleft()

    def _log_for(self, partition_key: str | None, explicit_hash_key: str | None = None) -> _ShardLog:
        open_logs = [log for log in self._logs.values() if log.closed_at is None]
        if self.ignores_keys or (partition_key is None and explicit_hash_key is None):
            self._keyless += 1
            return open_logs[self._keyless % len(open_logs)]
        if explicit_hash_key is not None:
            hash_key = int(explicit_hash_key)
        else:
            digest = hashlib.md5(str(partition_key).encode(), usedforsecurity=False).digest()
            hash_key = int.from_bytes(digest, "big")
        return next(
            log for log in open_logs if log.shard.hash_range[0] <= hash_key <= log.shard.hash_range[1]
        )

    def _open_shard(self, hash_range: tuple[int, int], parents: tuple[str, ...]) -> Shard:
        shard = Shard(shard_id=f"shardId-{self._next_shard:012d}", parents=parents, hash_range=hash_range)
        self._next_shard += 1
        self._logs[shard.shard_id] = _ShardLog(shard, first_number=self._take_number())
        return shard

    def _close(self, shard_id: str, children: tuple[Shard, ...]) -> None:
        log = self._log(shard_id)
        log.shard = replace(log.shard, closed=True)
        log.closed_at = self.clock.time()
        log.children = children

    def _open_log(self, shard_id: str) -> _ShardLog:
        log = self._log(shard_id)
        if log.closed_at is not None:
            raise ValueError(f"expected an open shard, got {shard_id}, which is closed")
        return log

    def _log(self, shard_id: str) -> _ShardLog:
        self._check_exists()
        self._expire_log(shard_id)
        log = self._logs.get(shard_id)
        if log is None:
            raise ShardNotFound(f"expected one of {sorted(self._logs)}, got {shard_id!r}")
        return log

    def _expire(self) -> None:
        for shard_id in list(self._logs):
            self._expire_log(shard_id)

    def _expire_log(self, shard_id: str) -> None:
        log, horizon = self._logs.get(shard_id), self.clock.time() - self._retention_seconds
        if log is None:
            return
        while log.records and (log.records[0].arrival_timestamp or 0.0) < horizon:
            del log.records[0]
        if log.closed_at is not None and log.closed_at < horizon and not log.records:
            del self._logs[shard_id]

    def _take_number(self) -> int:
        number = self._next_number
        self._next_number += _NUMBER_STEP
        return number

    def _check_exists(self) -> None:
        if self._deleted:
            raise StreamNotFound(f"expected a stream {self.name!r}, but it was deleted")


def _within_a_page(records: list[Record]) -> list[Record]:
    sizes = itertools.accumulate(map(_size_bytes, records))
    fitting = sum(1 for _ in itertools.takewhile(lambda size: size <= _PAGE_BYTES, sizes))
    return records[: max(1, fitting)]


def _size_bytes(record: Record) -> int:
    return len(record.data) + len(record.partition_key or "")


def _copy(record: Record) -> Record:
    return Record(
        data=record.data,
        sequence_number=record.sequence_number,
        partition_key=record.partition_key,
        arrival_timestamp=record.arrival_timestamp,
        stream=record.stream,
        shard_id=record.shard_id,
    )
