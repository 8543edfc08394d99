"""Puts records on one stream, several in one, in the KPL's format.

A consumer of that format may leave out a whole aggregate if the hash key of one of its records lies outside the
shard that it reads (the KCL does), because after a resharding another shard may deliver that one. So an aggregate
holds records of one shard, as the shards were last listed, and its explicit hash key puts it there. When the
answer names another shard, the stream was resharded in between: the shards are listed again, an aggregate with a
record outside the shard it came to is put again, all of it, and what waits is packed anew. Consumers that leave
nothing out see those records twice.

Where the shards cannot be listed, or the list contradicts the answers, every record goes by itself. So does one
that lies in no shard of the list, which may be one in the middle of a resharding.

**Order.** As in `record_putter`: what is put again comes behind the later records of its key in the same call, and
never behind those of later calls. For consumers that leave aggregates out, this holds for a resharding too. With
`PutOrder.KEY` no call has two aggregates with records of one key; one aggregate may have several, in their order.
"""

import logging
from math import inf
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from kinesis_spout.kinesis.write.aggregate import Aggregate
from kinesis_spout.kinesis.write.hash_key_ranges import HashKeyRanges
from kinesis_spout.kinesis.write.put_records import CallLimits, Entry, PutOrder, Puttable
from kinesis_spout.kinesis.write.record_putter import OnRefused, PutCounts, RecordPutter

if TYPE_CHECKING:
    from mypy_boto3_kinesis import KinesisClient

    from kinesis_spout.kinesis.patience import Patience

_PYTHON_BYTES: Final = 200
"""What a record in memory takes beside its data, roughly: a tuple, a text, bytes."""

_log = logging.getLogger(__name__)


class AggregatingPutter:
    """The records on their way to one stream, in aggregates. Mutable; for one thread.

    It is used like a `RecordPutter`, and takes what that takes.

    Args:
        order: what of the records' order holds.
        max_bytes: what an aggregated record may weigh, up to 1 MiB. A record that does not fit with another
            goes by itself.
    """

    def __init__(
        self,
        client: "KinesisClient",
        stream: str,
        *,
        max_bytes: int,
        patience: "Patience",
        limits: CallLimits | None = None,
        order: PutOrder = PutOrder.UNORDERED,
        on_refused: OnRefused | None = None,
    ) -> None:
        self._putter = RecordPutter(
            client,
            stream,
            patience=patience,
            limits=limits,
            order=order,
            on_refused=on_refused,
            on_taken=self._look_where_it_came_to,
        )
        self._stream = stream
        self._max_bytes = max_bytes
        self._ranges: HashKeyRanges | None = None
        """By which everything that waits is packed."""
        self._is_contradicted = False
        self._open: dict[str, Aggregate] = {}
        self._open_bytes = 0
        self._added = 0
        self._misplaced: list[tuple[Aggregate, str]] = []

    @property
    def counts(self) -> PutCounts:
        """What became of the records so far."""
        return self._putter.counts

    @property
    def waiting(self) -> int:
        """How many records of Kinesis are held, full or not."""
        return self._putter.waiting + len(self._open)

    @property
    def waiting_bytes(self) -> int:
        """What is held, in memory."""
        records = self._added - self.counts.taken - self.counts.refused
        return self._putter.waiting_bytes + self._open_bytes + _PYTHON_BYTES * records

    @property
    def ready_at(self) -> float:
        """When ``put`` need not wait, as monotonic time: minus infinity for now, infinity if nothing is held."""
        return -inf if self._open else self._putter.ready_at

    def add(self, entry: Entry) -> None:
        """Take a record over; put those that fill a call. Raises like ``put``.

        Args:
            entry: its ``row`` is greater than that of every one before: the order is restored by it.
        """
        self._added += 1
        if self._ranges is None:
            self._ranges = self._putter.list_shards()
            self._warn_if_unknown()
        self._pack(entry, self._ranges)
        while self._putter.has_a_full_call:
            self._put_a_call()

    def put(self) -> None:
        """Make one call with what may go; where nothing may, close the aggregates, or wait. Needs ``waiting``.

        Raises:
            KinesisError, InvalidConfig: as `RecordPutter.put`.
        """
        if self._open and self._putter.ready_at > -inf:
            for shard_id in list(self._open):
                self._close(shard_id)
        else:
            self._put_a_call()

    def _put_a_call(self) -> None:
        self._putter.put()
        was_resharded = self._misplaced or self._ranges is not self._putter.ranges
        if was_resharded and not self._is_contradicted:  # what goes by itself is not packed
            self._pack_anew()

    def _pack(self, entry: Entry, ranges: HashKeyRanges) -> None:
        if self._is_contradicted:
            self._putter.hold(entry)
            return
        hash_key = entry.hash_key
        shard_id = ranges.shard_of(hash_key)
        if not ranges.lies_in(hash_key, shard_id):
            self._putter.hold(entry)
            return
        aggregate = self._open.get(shard_id) or self._open_one(shard_id)
        cost = aggregate.cost_bytes(entry)
        if aggregate.user_records and aggregate.size_bytes + cost > self._max_bytes:
            self._close(shard_id)
            aggregate = self._open_one(shard_id)
            cost = aggregate.cost_bytes(entry)
        aggregate.add(entry, cost)
        self._open_bytes += cost

    def _open_one(self, shard_id: str) -> Aggregate:
        aggregate = self._open[shard_id] = Aggregate()
        self._open_bytes += aggregate.size_bytes
        return aggregate

    def _close(self, shard_id: str) -> None:
        aggregate = self._open.pop(shard_id)
        self._open_bytes -= aggregate.size_bytes
        first, *others = aggregate.user_records
        self._putter.hold(aggregate if others else first)

    def _look_where_it_came_to(self, put: Puttable, shard_id: str) -> None:
        assert self._ranges is not None, "add lists before anything is put"
        if isinstance(put, Aggregate) and self._ranges.shard_of(put.hash_key) != shard_id:
            self._misplaced.append((put, shard_id))
            self._count(put, -1)

    def _pack_anew(self) -> None:
        misplaced, self._misplaced = self._misplaced, []
        ranges = self._ranges = self._ranges_after({shard_id for _, shard_id in misplaced})
        again: list[Puttable] = []
        for aggregate, shard_id in misplaced:
            if all(ranges.lies_in(entry.hash_key, shard_id) for entry in aggregate.user_records):
                self._count(aggregate, +1)
            else:
                again.append(aggregate)
        again += [*self._putter.take_back(), *self._open.values()]
        self._open.clear()
        self._open_bytes = 0
        entries = [entry for each in again for entry in each.user_records]
        for entry in sorted(entries, key=attrgetter("row")):
            self._pack(entry, ranges)

    def _count(self, aggregate: Aggregate, sign: int) -> None:
        self.counts.taken += sign * len(aggregate.user_records)
        self.counts.taken_bytes += sign * sum(entry.size_bytes for entry in aggregate.user_records)

    def _ranges_after(self, named: set[str]) -> HashKeyRanges:
        """List the shards again unless that was done already, and find out whether the list explains the answers.

        Args:
            named: the shards that aggregates came to, and were not meant for.
        """
        before, ranges = self._ranges, self._putter.ranges
        assert before is not None, "add lists before anything is put"
        assert ranges is not None, "add lists before anything is put"
        if any(map(ranges.are_older_than, named)):
            ranges = self._putter.list_shards()
        if any(ranges.are_older_than(shard_id) or not before.are_older_than(shard_id) for shard_id in named):
            self._is_contradicted = True
            _log.warning(
                "Aggregated records of %s came to %s, which the list of its shards does not explain: from now on "
                "every record goes by itself",
                self._stream,
                ", ".join(sorted(named)),
            )
        self._warn_if_unknown()
        return ranges

    def _warn_if_unknown(self) -> None:
        if self._putter.ranges is not None and not self._putter.ranges.are_known:
            _log.warning("Records of %s are not aggregated, because its shards are not known", self._stream)
