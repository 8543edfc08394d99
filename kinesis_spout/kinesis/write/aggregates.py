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
from collections.abc import Iterable, Sequence
from math import inf
from operator import attrgetter
from typing import TYPE_CHECKING, Final, cast

from kinesis_spout.kinesis.retry_policy import RetryPolicy
from kinesis_spout.kinesis.write.hash_key_ranges import HashKeyRanges
from kinesis_spout.kinesis.write.put_records import (
    Aggregate,
    CallLimits,
    Entry,
    PutOrder,
    Puttable,
)
from kinesis_spout.kinesis.write.waiting_records import Settled, WaitingRecords

if TYPE_CHECKING:
    from mypy_boto3_kinesis.type_defs import PutRecordsResultEntryTypeDef as Result

_PYTHON_BYTES: Final = 200
"""The memory of a record besides its data, roughly: a tuple, a text, bytes."""

_log = logging.getLogger(__name__)


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
        ranges, opened, max_bytes = self._packed_by, self._aggregates, self._max_bytes
        for entry in cast("Sequence[Entry]", entries):
            shard_id = entry.shard_in(ranges)
            if not ranges.are_whole and not ranges.lies_in(entry.hash_key, shard_id):
                super().hold_all((entry,))
                continue
            aggregate = opened.get(shard_id)
            if aggregate is None or not aggregate.takes(entry, max_bytes):
                self._begin_another(shard_id, entry)

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
        entries = [entry for each in held for entry in each.parts]
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

    def _begin_another(self, shard_id: str, entry: Entry) -> None:
        if shard_id in self._aggregates:
            self._close(shard_id)
        aggregate = self._aggregates[shard_id] = Aggregate(shard_id, self._packed_by)
        aggregate.takes(entry, self._max_bytes)

    def _close(self, shard_id: str) -> None:
        aggregate = self._aggregates.pop(shard_id)
        # A record alone is aggregated only for its trace context, if it fits.
        is_alone = aggregate.count == 1 and (
            aggregate.parts[0].trace is None or aggregate.size_bytes > self._max_bytes
        )
        super().hold_all(aggregate.parts if is_alone else (aggregate,))

    def _explains(self, aggregate: Puttable, result: "Result") -> bool:
        """Whether all of an aggregate's records lie in the shard that it came to, by the list."""
        shard_id = result.get("ShardId", "")
        return all(self.ranges.lies_in(entry.hash_key, shard_id) for entry in aggregate.parts)

    def _pack_anew(self, again: Iterable[Puttable]) -> None:
        self._packed_by = self.ranges
        entries = [entry for each in again for entry in each.parts] + self.take_back()
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


def _is_misplaced(put: Puttable, result: "Result") -> bool:
    return isinstance(put, Aggregate) and put.shard_id != result.get("ShardId", "")


def _is_explained(aggregate: Aggregate, shard_id: str, ranges: HashKeyRanges) -> bool:
    """Whether a shard is listed, and was made after the aggregate was packed."""
    return not ranges.are_older_than(shard_id) and aggregate.ranges.are_older_than(shard_id)
