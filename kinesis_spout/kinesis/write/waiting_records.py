"""The records that wait for one stream, in a queue for each shard. No I/O.

A record's shard follows from its key and the stream's shards. Until these are listed, all records are in one
queue. They are listed at the first refusal (before the first call, if records are aggregated), and again when an
answer names a shard that is not listed; then all that waits is sorted anew. A list that is out of date, or
missing, only makes the waiting coarser.

The queues take turns, so a call holds records of many shards. PutRecords answers for each record; refused ones
go back to the front of their queue. A shard that took nothing of a call rests for a while, longer each time. One
that took a part gets records at the pace that it takes them; see ``shard_pace``. It delays no other.

**Aggregates** (the KPL's format) are packed when a call is made. A consumer of that format may leave out a whole
aggregate if the hash key of one of its records lies outside the shard that it reads (the KCL does), because after
a resharding another shard may deliver that record. So an aggregate holds records of one shard, as last listed,
and its explicit hash key puts it there. If the answer names another shard, the stream was resharded in between:
the shards are listed again, and an aggregate with a record outside the shard it came to is put again as a whole.
Consumers that leave nothing out see those records twice. If the shards cannot be listed, or the list contradicts
the answers, every record is put alone. So is one that lies in no listed shard, which may happen during a
resharding.

**Order.** Records of one partition key are given out in the order in which they were held. Within one call
Kinesis may refuse a record and take a later one of the same key; the first then comes after it. The same happens
with concurrent calls. With `PutOrder.KEY` a record is given out when those before it of its key have ended,
which prevents this: only the first of each key's records is in a queue. One aggregate may have several of a key,
in their order; no call has two such aggregates.
"""

import logging
from collections import Counter
from collections.abc import Container, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kinesis_spout.kinesis.calls import ERRORS_BY_CODE
from kinesis_spout.kinesis.retry_policy import CallRetryPolicy, Tries
from kinesis_spout.kinesis.write.hash_key_ranges import HashKeyRanges
from kinesis_spout.kinesis.write.put_records import (
    Aggregate,
    CallLimits,
    PutOrder,
    Puttable,
)
from kinesis_spout.kinesis.write.shard_pace import RefusingShard
from kinesis_spout.kinesis.write.shard_queues import ShardQueue, ShardQueues
from kinesis_spout.model.errors import KinesisError, Unavailable

if TYPE_CHECKING:
    from mypy_boto3_kinesis.type_defs import PutRecordsResultEntryTypeDef as Result

_log = logging.getLogger(__name__)


class Settled(NamedTuple):
    taken: "list[tuple[Puttable, Result]]"
    """The records on the stream now, each with its answer."""
    given_up: list[tuple[list[Puttable], KinesisError]]
    """Records that are not put again: of shards that took nothing until the deadline, or with errors that do
    not pass. The rest waits again."""


class WaitingRecords(ShardQueues):
    """The records on their way to one stream. Mutable; for one thread at a time.

    Its owner takes a batch, makes the call, and reports: `settle` for answers, `done` for records that are
    given up, and nothing yet for a call that is made again. Several calls may be under way. Before it takes a
    batch, it asks whether it `needs_shards`; before it settles answers, whether it `must_list` first.

    Args:
        work: names the calls in errors.
        aggregate_bytes: what a record of several may weigh, up to 1 MiB; None: no aggregates. A record that fits
            with no other is put alone.
    """

    def __init__(
        self,
        work: str,
        *,
        retry_policy: CallRetryPolicy,
        limits: CallLimits,
        order: PutOrder,
        aggregate_bytes: int | None = None,
    ) -> None:
        super().__init__(retry_policy.clock, limits=limits, order=order, aggregate_bytes=aggregate_bytes)
        self._work = work
        self._retry_policy = retry_policy
        self._aggregates = aggregate_bytes is not None
        self._is_listed = False
        self._was_in_vain = False
        """True if the shards were listed again, and had not changed."""

    # The shards.

    @property
    def needs_shards(self) -> bool:
        """True if the shards must be listed before anything is taken."""
        return self._aggregate_bytes is not None and not self._is_listed

    def must_list(self, results: "Sequence[Result]") -> bool:
        """Return whether the shards must be listed before these answers are settled."""
        if self._aggregate_bytes is not None:
            return self._names_a_new_shard(results)
        if any(result.get("ErrorCode") for result in results):
            return not self._is_listed or self._names_a_new_shard(results)
        # The children of a split shard would be held to the pace of their parent.
        return bool(self._refusing) and self._names_a_new_shard(results) and not self._was_in_vain

    def _names_a_new_shard(self, results: "Sequence[Result]") -> bool:
        named = {result.get("ShardId") for result in results}
        return any(map(self.ranges.are_older_than, filter(None, named)))

    def go_by(self, ranges: HashKeyRanges) -> None:
        """Use these shards from now on. All may try again at once, with their whole deadline."""
        self._was_in_vain = self._is_listed and self.ranges == ranges
        self._is_listed = True
        waiting = self._take_back()
        self._queues.clear()
        self._refusing.clear()
        self.ranges = ranges
        self.hold_all(waiting)
        if self._aggregate_bytes is not None and not ranges.are_known:
            self._aggregate_bytes = None
            _log.warning("%s: records are not aggregated, because the shards are not known", self._work)

    # The answers of calls.

    def settle(self, batch: Sequence[Puttable], results: "Sequence[Result]") -> Settled:
        """Settle a call's answers, and take back refused records, in order.

        Records of a shard that has taken nothing until the deadline are given up, with an error of the
        failure's kind; what waits behind them may go. A misplaced aggregate that was taken but must be put again
        waits, and is in neither list.
        """
        taken: list[tuple[Puttable, Result]] = []
        refused: list[tuple[Puttable, Result]] = []
        for pair in zip(batch, results, strict=True):
            (refused if pair[1].get("ErrorCode") else taken).append(pair)
        again: set[int] = set()
        given_up: list[tuple[list[Puttable], KinesisError]] = []
        if self._refusing or refused:
            again, given_up = self._settle_refused(refused, [result for _, result in taken])
        if self._aggregates and (misplaced := self._misplaced(taken)):
            again |= misplaced
            taken = [pair for pair in taken if id(pair[0]) not in misplaced]
        if again:
            self._put_first([entry for entry in batch if id(entry) in again])
        self.done(entry for entry, _ in taken)
        return Settled(taken, given_up)

    def _settle_refused(
        self, refused: "Sequence[tuple[Puttable, Result]]", taken: "Sequence[Result]"
    ) -> tuple[set[int], list[tuple[list[Puttable], KinesisError]]]:
        """Teach the shards' paces; returns the ``id`` of each record to put again, and what is given up."""
        again: set[int] = set()
        given_up: list[tuple[list[Puttable], KinesisError]] = []
        by_shard: dict[str, list[Puttable]] = {}
        for entry, _ in refused:
            by_shard.setdefault(entry.shard_in(self.ranges), []).append(entry)
        takers = Counter([result.get("ShardId", "") for result in taken])
        shards = 1
        if not self.ranges.are_known:
            shards = max(1, len(takers))
            takers = Counter({self.ranges.shard_of(0): len(taken)})
        now = self._clock.monotonic()
        self._note_taken(takers, by_shard, now)
        for name, entries in by_shard.items():
            share = f"{len(refused)} of {len(refused) + len(taken)} records refused"
            shard = self._refusing.get(name) or self._note_refusing(name, now)
            try:
                shard.refused(
                    len(entries), refusal_error(refused[0][1], share), now, taken=takers[name], shards=shards
                )
            except KinesisError as error:
                given_up.append((entries, error))
                self._is_free(name)
                self.done(entries)
            else:
                again |= set(map(id, entries))
                if not shard.takes_all(now):
                    self._turns.pop(name, None)
        return again, given_up

    def _misplaced(self, taken: "Sequence[tuple[Puttable, Result]]") -> set[int]:
        """Return the ``id`` of each aggregate of which a record lies outside the shard that they came to.

        If the list of shards does not explain where they came to, nothing is aggregated any more.
        """
        again: set[int] = set()
        unexplained: set[str] = set()
        for entry, result in taken:
            shard_id = result.get("ShardId", "")
            if not isinstance(entry, Aggregate) or entry.shard_id == shard_id:
                continue
            if not all(self.ranges.lies_in(part.hash_key, shard_id) for part in entry.parts):
                again.add(id(entry))
            # Explained: by a shard that is listed, and was made after the aggregate was packed.
            if self.ranges.are_older_than(shard_id) or not entry.ranges.are_older_than(shard_id):
                unexplained.add(shard_id)
        if unexplained and self._aggregate_bytes is not None:
            self._aggregate_bytes = None
            _log.warning(
                "%s: aggregated records came to %s, which the list of the shards does not explain: from now on "
                "every record is put alone",
                self._work,
                ", ".join(sorted(unexplained)),
            )
        return again

    def _note_taken(self, takers: Counter[str], refusing: Container[str], now: float) -> None:
        for name, shard in list(self._refusing.items()):
            if takers[name]:
                shard.tries = self._tries(name)
                if name not in refusing:
                    shard.pace.answered(takers[name], 0, now, shards=1)
                    if not self._queues[name].records and shard.pace.is_over:
                        self._is_free(name)

    def _note_refusing(self, name: str, now: float) -> RefusingShard:
        self._queues.setdefault(name, ShardQueue(name))
        shard = self._refusing[name] = RefusingShard(self._tries(name), now)
        return shard

    def _is_free(self, name: str) -> None:
        del self._refusing[name]
        if self._queues[name].records:
            self._turns[name] = self._queues[name]

    def _tries(self, name: str) -> Tries:
        return Tries(self._retry_policy, f"{self._work}, {name}")


def refusal_error(refusal: "Result", what: str) -> KinesisError:
    code = refusal.get("ErrorCode", "")
    # Others of the call were taken: an unknown code may pass, too.
    return ERRORS_BY_CODE.get(code, Unavailable)(f"{what}, {code}: {refusal.get('ErrorMessage')}")
