"""The records that wait for one stream, packed several in one, in the KPL's format. No I/O.

A consumer of that format may leave out a whole aggregate if the hash key of one of its records lies outside the
shard that it reads (the KCL does), because after a resharding another shard may deliver that one. So an aggregate
holds records of one shard, as the shards were last listed, and its explicit hash key puts it there. When the
answer names another shard, the stream was resharded in between: the shards are listed again, an aggregate with a
record outside the shard it came to is put again, all of it, and what waits is packed anew. Consumers that leave
nothing out see those records twice.

Where the shards cannot be listed, or the list contradicts the answers, every record goes by itself. So does one
that lies in no shard of the list, which may be one in the middle of a resharding.

**Order.** As in `waiting_records`: what is put again comes behind the later records of its key in the same
call, and never behind those of later calls. For consumers that leave aggregates out, this holds for a
resharding too. With `PutOrder.KEY` no call has two aggregates with records of one key; one aggregate may have
several, in their order.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from math import inf
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Unpack, cast

from kinesis_spout.kinesis.write.aggregate import Aggregate
from kinesis_spout.kinesis.write.hash_key_ranges import HashKeyRanges
from kinesis_spout.kinesis.write.put_records import Puttable, Single
from kinesis_spout.kinesis.write.waiting_records import Settled, WaitingOptions, WaitingRecords

if TYPE_CHECKING:
    from mypy_boto3_kinesis.type_defs import PutRecordsResultEntryTypeDef as Result

_PYTHON_BYTES: Final = 200
"""What a record in memory takes beside its data, roughly: a tuple, a text, bytes."""

_KEYS_REMEMBERED: Final = 100_000
_NO_SHARD: Final = ""
"""Where a record lies that must go by itself."""

_log = logging.getLogger(__name__)


class AggregatedRecords:
    """The records on their way to one stream, in aggregates. Mutable; for one thread at a time.

    It is used like `WaitingRecords`, and takes what that takes. Before the first record is held, the shards are to
    be listed, and given to `go_by`.

    Args:
        stream: its name or ARN, for the log.
        work: what is done, for errors.
        max_bytes: what an aggregated record may weigh, up to 1 MiB. A record that does not fit with another
            goes by itself.
    """

    def __init__(self, stream: str, work: str, *, max_bytes: int, **options: Unpack[WaitingOptions]) -> None:
        self._records = WaitingRecords(work, **options)
        self._stream = stream
        self._max_bytes = max_bytes
        self._packed_by: HashKeyRanges | None = None
        """By which everything that waits is packed."""
        self._is_contradicted = False
        self._open: dict[str, Aggregate] = {}
        self._shards: dict[str, str] = {}
        """Of keys, by ``packed_by``; as many as are worth remembering."""
        self._singles = 0

    @property
    def ranges(self) -> HashKeyRanges | None:
        """The shards as they were last listed; None if they were not yet."""
        return self._records.ranges

    @property
    def waiting(self) -> int:
        """How many records of Kinesis are held, full or not, those in calls left out."""
        return self._records.waiting + len(self._open)

    @property
    def waiting_bytes(self) -> int:
        """What is held, in memory."""
        open_bytes = sum([each.size_bytes for each in self._open.values()])
        return self._records.waiting_bytes + open_bytes + _PYTHON_BYTES * self._singles

    @property
    def ready_at(self) -> float:
        """When something can be put, as monotonic time: minus infinity for now, infinity if nothing is held.

        Infinity also if all that is held waits, for its order, for records in calls.
        """
        return -inf if self._open else self._records.ready_at

    @property
    def paced_at(self) -> float:
        """When a shard that refused may be given what waits for it, as monotonic time: infinity if none waits."""
        return self._records.paced_at

    def backlogs(self) -> Iterator[tuple[str, int, int]]:
        """Give how many (user) records and bytes wait for each shard that refused of late, apart."""
        return self._records.backlogs()

    @property
    def has_a_full_call(self) -> bool:
        """Whether what may go now fills a call."""
        return self._records.has_a_full_call

    @property
    def has_ready(self) -> bool:
        """Whether ``take`` may give something although no shard that refused is due."""
        return self._records.has_ready

    @property
    def must_list_first(self) -> bool:
        """Whether the shards are needed before anything is held."""
        return self._packed_by is None

    @property
    def is_packing(self) -> bool:
        """Whether some of what is held may be taken only after ``finish_packing``."""
        return bool(self._open)

    def hold(self, entry: Single) -> None:
        """Take a record over. Its ``row`` is greater than that of every one before."""
        self.hold_all((entry,))

    def hold_all(self, entries: Sequence[Single]) -> None:
        """Take records over, in their order."""
        ranges = self._packed_by
        assert ranges is not None, "what must be listed first, is"
        self._singles += len(entries)
        if self._is_contradicted:
            self._records.hold_all(entries)
            return
        shards, opened, max_bytes = self._shards, self._open, self._max_bytes
        for entry in entries:
            if entry.explicit_hash_key is not None:
                shard_id = _shard_of(entry, ranges)
            elif entry.partition_key in shards:
                shard_id = shards[entry.partition_key]
            else:
                shard_id = self._note_shard(entry, ranges)
            aggregate = opened.get(shard_id)
            if aggregate is None or not aggregate.takes(entry, max_bytes):
                self._begin_another(shard_id, entry, ranges)

    def finish_packing(self) -> None:
        """Let all that is held go, full or not."""
        for shard_id in list(self._open):
            self._close(shard_id)

    def take(self) -> list[Puttable]:
        """Give what goes into the next call; empty if nothing may go now."""
        batch = self._records.take()
        self._singles -= sum([len(each.user_records) for each in batch])
        return batch

    def take_back(self) -> list[Single]:
        """Give back everything that waits, in its order."""
        held = [*self._records.take_back(), *self._open.values()]
        self._open.clear()
        self._singles = 0
        entries = [entry for each in held for entry in each.user_records]
        return sorted(entries, key=attrgetter("row"))

    def go_by(self, ranges: HashKeyRanges) -> None:
        """Go by these shards from now on. What waits is packed anew when the next answers are settled."""
        self._records.go_by(ranges)
        if self._packed_by is None:
            self._packed_by = ranges
        self._warn_if_unknown()

    def must_list(self, results: "Sequence[Result]") -> bool:
        """Say whether the shards must be listed before these answers are settled."""
        if self._is_contradicted:  # nothing is packed any more
            return self._records.must_list(results)
        return self._records.names_a_new_shard(results)

    def settle(self, batch: Sequence[Puttable], results: "Sequence[Result]") -> Settled:
        """Learn what was answered for the records of a call.

        What was taken, and is to be put again because it is misplaced, waits, and is in no list.
        """
        settled = self._records.settle(batch, results)
        self._singles += self._waits_again(batch, settled)
        taken = settled.taken
        if not self._is_contradicted:
            misplaced = [pair for pair in taken if _is_misplaced(*pair)]
            again = [each for each, result in misplaced if not self._explains(each, result)]
            if again:
                gone = set(map(id, again))
                taken = [pair for pair in taken if id(pair[0]) not in gone]
            if misplaced or self._packed_by is not self._records.ranges:
                self._check(misplaced)
                self._pack_anew(again)
        return Settled(taken, settled.given_up)

    def done(self, batch: Iterable[Puttable]) -> None:
        """Learn that records of a call are given up: what they held back may go."""
        self._records.done(batch)

    def _note_shard(self, entry: Single, ranges: HashKeyRanges) -> str:
        if len(self._shards) >= _KEYS_REMEMBERED:
            self._shards.clear()
        shard_id = self._shards[entry.partition_key] = _shard_of(entry, ranges)
        return shard_id

    def _begin_another(self, shard_id: str, entry: Single, ranges: HashKeyRanges) -> None:
        """Begin an aggregate with a record, unless it lies in no shard."""
        if shard_id == _NO_SHARD:
            self._records.hold(entry)
            return
        if shard_id in self._open:
            self._close(shard_id)
        aggregate = self._open[shard_id] = Aggregate(shard_id, ranges)
        aggregate.takes(entry, self._max_bytes)

    def _close(self, shard_id: str) -> None:
        aggregate = self._open.pop(shard_id)
        first, *others = aggregate.user_records
        self._records.hold(aggregate if others else first)

    @staticmethod
    def _waits_again(batch: Sequence[Puttable], settled: Settled) -> int:
        """Count the user records that a call did not put, and that are not given up."""
        ended = sum([len(each.user_records) for each, _ in settled.taken])
        ended += sum([len(each.user_records) for given_up in settled.given_up for each in given_up.records])
        return sum([len(each.user_records) for each in batch]) - ended

    def _explains(self, aggregate: Puttable, result: "Result") -> bool:
        """Say whether all of an aggregate's records lie in the shard that it came to, as the shards are listed."""
        ranges = self._records.ranges
        assert ranges is not None, "what must be listed first, is"
        shard_id = result.get("ShardId", "")
        return all(ranges.lies_in(entry.hash_key, shard_id) for entry in aggregate.user_records)

    def _pack_anew(self, again: Iterable[Puttable]) -> None:
        ranges = self._packed_by = self._records.ranges
        assert ranges is not None, "what must be listed first, is"
        self._shards.clear()
        entries = [entry for each in again for entry in each.user_records] + self.take_back()
        self.hold_all(sorted(entries, key=attrgetter("row")))

    def _check(self, misplaced: "Sequence[tuple[Puttable, Result]]") -> None:
        """Find out whether the list explains to which shards aggregates came that were not meant for them."""
        ranges = self._records.ranges
        assert ranges is not None, "what must be listed first, is"
        unexplained = {
            result.get("ShardId", "")
            for aggregate, result in misplaced
            if not _is_explained(cast("Aggregate", aggregate), result.get("ShardId", ""), ranges)
        }
        if unexplained:
            self._is_contradicted = True
            _log.warning(
                "Aggregated records of %s came to %s, which the list of its shards does not explain: from now on "
                "every record goes by itself",
                self._stream,
                ", ".join(sorted(unexplained)),
            )

    def _warn_if_unknown(self) -> None:
        if self._records.ranges is not None and not self._records.ranges.are_known:
            _log.warning("Records of %s are not aggregated, because its shards are not known", self._stream)


def _shard_of(entry: Single, ranges: HashKeyRanges) -> str:
    hash_key = entry.hash_key
    shard_id = ranges.shard_of(hash_key)
    return shard_id if ranges.lies_in(hash_key, shard_id) else _NO_SHARD


def _is_misplaced(put: Puttable, result: "Result") -> bool:
    return isinstance(put, Aggregate) and put.shard_id != result.get("ShardId", "")


def _is_explained(aggregate: Aggregate, shard_id: str, ranges: HashKeyRanges) -> bool:
    """Say whether a shard is listed, and was made after the aggregate was packed."""
    return not ranges.are_older_than(shard_id) and aggregate.ranges.are_older_than(shard_id)
