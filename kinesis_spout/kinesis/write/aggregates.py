"""The records that wait for one stream, packed several in one, in the KPL's format. No I/O.

A consumer of that format may leave out a whole aggregate if the hash key of one of its records lies outside
the shard that it reads (the KCL does), because after a resharding another shard may deliver that record. So
an aggregate holds records of one shard, as last listed, and its explicit hash key puts it there. If the
answer names another shard, the stream was resharded in between: the shards are listed again, an aggregate
with a record outside the shard it came to is put again as a whole, and what waits is packed again. Consumers
that leave nothing out see those records twice.

If the shards cannot be listed, or the list contradicts the answers, every record is put alone. So is one that
lies in no listed shard, which may happen during a resharding.

**Order.** As in `waiting_records`: what is put again comes after the later records of its key in the same
call, but before those of later calls. For consumers that leave aggregates out, this holds for a resharding
too. With `PutOrder.KEY` no call has two aggregates with records of one key; one aggregate may have several,
in their order.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import inf
from operator import attrgetter
from typing import TYPE_CHECKING, Final, cast

from kinesis_spout.kinesis.retry_policy import RetryPolicy
from kinesis_spout.kinesis.write.hash_key_ranges import HashKeyRanges, hash_key
from kinesis_spout.kinesis.write.put_records import (
    Aggregate,
    Batch,
    CallLimits,
    Columns,
    Entry,
    PutOrder,
    Puttable,
)
from kinesis_spout.kinesis.write.waiting_records import Settled, WaitingRecords

if TYPE_CHECKING:
    from mypy_boto3_kinesis.type_defs import PutRecordsResultEntryTypeDef as Result

_PYTHON_BYTES: Final = 200
"""The memory of a record besides its data, roughly: a tuple, a text, bytes."""
_KEYS_REMEMBERED: Final = 100_000
_NO_SHARD: Final = ""
"""The shard of a record that must be put alone."""

_log = logging.getLogger(__name__)


class _PlacesByShard(dict[str, Callable[[int], None]]):
    """Sorts the places of a batch's records by the shards of their keys: ``places[key](place)``. Mutable."""

    def __init__(self, shard_of_key: Callable[[str], str]) -> None:
        super().__init__()
        self._shard_of_key = shard_of_key
        self._places: dict[str, list[int]] = {}

    def __missing__(self, key: str) -> Callable[[int], None]:
        shard_id = self._shard_of_key(key)
        append = self[key] = self._places.setdefault(shard_id, []).append
        return append

    def take(self) -> Iterator[tuple[str, Sequence[int]]]:
        """Yield the places noted since the last time, by shard."""
        for shard_id, places in self._places.items():
            if places:
                yield shard_id, places.copy()
                places.clear()


class AggregatedRecords(WaitingRecords):
    """`WaitingRecords` that are packed. Call `go_by` with the shards before the first record is held.

    An aggregated record weighs at most ``max_bytes``, up to 1 MiB; a record that does not fit with another is
    put alone. The order is restored by ``row``, which grows from record to record.
    """

    def __init__(
        self,
        stream: str,
        work: str,
        *,
        max_bytes: int,
        retry_policy: RetryPolicy,
        limits: CallLimits,
        order: PutOrder,
    ) -> None:
        super().__init__(work, retry_policy=retry_policy, limits=limits, order=order)
        self._stream = stream
        self._max_bytes = max_bytes
        self.must_list_first = True
        self._packed_by = self.ranges
        """The shards by which everything that waits is packed."""
        self._is_contradicted = False
        self._aggregates: dict[str, Aggregate] = {}
        """The aggregates being filled, by shard."""
        self._shard_ids: dict[str, str] = {}
        """Shards of keys, by ``_packed_by``; bounded."""
        self._appends = _PlacesByShard(self._shard_of_key)
        self._singles = 0

    @property
    def waiting(self) -> int:
        return super().waiting + len(self._aggregates)

    @property
    def waiting_bytes(self) -> int:
        open_bytes = sum([each.size_bytes for each in self._aggregates.values()])
        return super().waiting_bytes + open_bytes + _PYTHON_BYTES * self._singles

    @property
    def ready_at(self) -> float:
        return -inf if self._aggregates else super().ready_at

    @property
    def is_packing(self) -> bool:
        return bool(self._aggregates)

    def hold_all(self, entries: Sequence[Puttable]) -> None:
        self._singles += len(entries)
        if self._is_contradicted:
            super().hold_all(entries)
            return
        ranges, shard_ids, opened, max_bytes = (
            self._packed_by,
            self._shard_ids,
            self._aggregates,
            self._max_bytes,
        )
        for entry in cast("Sequence[Entry]", entries):
            if entry.explicit_hash_key is not None:
                shard_id = _shard_of(entry.hash_key, ranges)
            elif entry.partition_key in shard_ids:
                shard_id = shard_ids[entry.partition_key]
            else:
                shard_id = self._shard_of_key(entry.partition_key)
            aggregate = opened.get(shard_id)
            if aggregate is None or not aggregate.takes(entry, max_bytes):
                self._begin_another(shard_id, entry)

    def hold_many(self, batch: Batch) -> None:
        if self._is_contradicted or not self._packed_by.are_known:
            self.hold_all(batch.split())
            return
        self._singles += len(batch.data)
        for shard_id, columns in self._by_shard(batch):
            if shard_id == _NO_SHARD:
                places, keys, data = columns
                size_bytes = sum(map(len, keys)) + sum(map(len, data))
                super().hold_all(batch.bundle(places, keys, data, size_bytes).split())
            else:
                self._pack(shard_id, batch, columns)

    def _by_shard(self, batch: Batch) -> Iterator[tuple[str, Columns]]:
        keys, data = batch.partition_keys, batch.data
        for place, append in enumerate(map(self._appends.__getitem__, keys)):
            append(place)
        for shard_id, at in self._appends.take():
            yield shard_id, (at, tuple(map(keys.__getitem__, at)), tuple(map(data.__getitem__, at)))

    def _pack(self, shard_id: str, batch: Batch, columns: Columns) -> None:
        at, count = 0, len(columns[0])
        while at < count:
            aggregate = self._aggregates.get(shard_id)
            if aggregate is None:
                aggregate = self._aggregates[shard_id] = Aggregate(shard_id, self._packed_by)
            at = aggregate.fill(batch, columns, at, self._max_bytes)
            if at < count:
                self._close(shard_id)

    def finish_packing(self) -> None:
        for shard_id in list(self._aggregates):
            self._close(shard_id)

    def take(self) -> list[Puttable]:
        batch = super().take()
        self._singles -= _count(batch)
        return batch

    def take_back(self) -> list[Puttable]:
        """Return everything that waits, in order, unpacked."""
        held = [*super().take_back(), *self._aggregates.values()]
        self._aggregates.clear()
        self._singles = 0
        entries = [entry for each in held for entry in each.split()]
        return sorted(entries, key=attrgetter("row"))

    def go_by(self, ranges: HashKeyRanges) -> None:
        """Use these shards from now on. Waiting records are packed again at the next `settle`."""
        super().go_by(ranges)
        if self.must_list_first:
            self.must_list_first = False
            self._packed_by = ranges
        if not ranges.are_known:
            _log.warning("Records of %s are not aggregated, because its shards are not known", self._stream)

    def must_list(self, results: "Sequence[Result]") -> bool:
        if self._is_contradicted:  # nothing is packed any more
            return super().must_list(results)
        return self._names_a_new_shard(results)

    def settle(self, batch: Sequence[Puttable], results: "Sequence[Result]") -> Settled:
        """Settle a call's answers.

        A misplaced aggregate that was taken but must be put again waits, and is in neither list.
        """
        taken, given_up = super().settle(batch, results)
        ended = [each for each, _ in taken] + [each for lost in given_up for each in lost.records]
        self._singles += _count(batch) - _count(ended)
        if not self._is_contradicted:
            misplaced = [pair for pair in taken if _is_misplaced(*pair)]
            again = [each for each, result in misplaced if not self._explains(each, result)]
            if again:
                gone = set(map(id, again))
                taken = [pair for pair in taken if id(pair[0]) not in gone]
            if misplaced or self._packed_by is not self.ranges:
                self._check(misplaced)
                self._pack_anew(again)
        return Settled(taken, given_up)

    def _shard_of_key(self, partition_key: str) -> str:
        shard_id = self._shard_ids.get(partition_key)
        if shard_id is None:
            if len(self._shard_ids) >= _KEYS_REMEMBERED:
                self._forget_keys()
            shard_id = self._shard_ids[partition_key] = _shard_of(hash_key(partition_key), self._packed_by)
        return shard_id

    def _forget_keys(self) -> None:
        self._shard_ids.clear()
        self._appends.clear()

    def _begin_another(self, shard_id: str, entry: Entry) -> None:
        if shard_id == _NO_SHARD:
            super().hold_all((entry,))
            return
        if shard_id in self._aggregates:
            self._close(shard_id)
        aggregate = self._aggregates[shard_id] = Aggregate(shard_id, self._packed_by)
        aggregate.takes(entry, self._max_bytes)

    def _close(self, shard_id: str) -> None:
        aggregate = self._aggregates.pop(shard_id)
        if aggregate.count == 1:
            alone = aggregate.split()
            # A record alone is aggregated only for its trace context, if it fits.
            if not alone or alone[0].trace is None or aggregate.size_bytes > self._max_bytes:
                super().hold_all(alone)
                return
        super().hold_all((aggregate,))

    def _explains(self, aggregate: Puttable, result: "Result") -> bool:
        """Whether all of an aggregate's records lie in the shard that it came to, by the list."""
        shard_id = result.get("ShardId", "")
        return all(self.ranges.lies_in(entry.hash_key, shard_id) for entry in aggregate.user_records)

    def _pack_anew(self, again: Iterable[Puttable]) -> None:
        self._packed_by = self.ranges
        self._forget_keys()
        entries = [entry for each in again for entry in each.split()] + self.take_back()
        self.hold_all(sorted(entries, key=attrgetter("row")))

    def _check(self, misplaced: "Sequence[tuple[Puttable, Result]]") -> None:
        """Find out whether the list explains why aggregates came to other shards than meant."""
        unexplained = {
            result.get("ShardId", "")
            for aggregate, result in misplaced
            if not _is_explained(cast("Aggregate", aggregate), result.get("ShardId", ""), self.ranges)
        }
        if unexplained:
            self._is_contradicted = True
            _log.warning(
                "Aggregated records of %s came to %s, which the list of its shards does not explain: from now on "
                "every record is put alone",
                self._stream,
                ", ".join(sorted(unexplained)),
            )


def _count(batch: Iterable[Puttable]) -> int:
    return sum([each.count for each in batch])


def _shard_of(hash_key: int, ranges: HashKeyRanges) -> str:
    shard_id = ranges.shard_of(hash_key)
    return shard_id if ranges.lies_in(hash_key, shard_id) else _NO_SHARD


def _is_misplaced(put: Puttable, result: "Result") -> bool:
    return isinstance(put, Aggregate) and put.shard_id != result.get("ShardId", "")


def _is_explained(aggregate: Aggregate, shard_id: str, ranges: HashKeyRanges) -> bool:
    """Whether a shard is listed, and was made after the aggregate was packed."""
    return not ranges.are_older_than(shard_id) and aggregate.ranges.are_older_than(shard_id)
