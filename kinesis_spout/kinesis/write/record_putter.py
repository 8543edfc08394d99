"""Puts records on one stream, in full calls; a shard that refuses holds up its own records only.

PutRecords answers for each record of a call. What is refused is put again, after a wait that grows; meanwhile
the records of that shard queue up here, and those of other shards go on. Which shard a record goes to follows
from its key and the stream's shards, which are listed at the first refusal, and again when an answer names a
shard that is not among them. A list that is out of date, or may not be had, only makes the waiting coarser.

**Order.** Records of one partition key are sent in the order in which they were added, one call after the
other. Within one call Kinesis may refuse a record and take a later one of the same key; the first then comes
behind. With `PutOrder.KEY` no call has two records of one key, so that this cannot happen.

**Copies.** A call whose answer is lost is made again, and may have put its records before.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Final

from kinesis_spout.errors import KinesisError, StreamNotFound, Unavailable
from kinesis_spout.kinesis.errors import ERRORS_BY_CODE, ResourceNotFound, expected
from kinesis_spout.kinesis.lister import KinesisShardLister
from kinesis_spout.kinesis.naming import stream_arguments
from kinesis_spout.kinesis.patience import Patience, Tries
from kinesis_spout.kinesis.write.hash_key_ranges import HashKeyRanges
from kinesis_spout.kinesis.write.put_records import COMMON_RECORD_BYTES, CallLimits, Entry, PutOrder, Puttable
from kinesis_spout.kinesis.write.shard_queues import ShardQueues

if TYPE_CHECKING:
    from mypy_boto3_kinesis import KinesisClient
    from mypy_boto3_kinesis.type_defs import PutRecordsResultEntryTypeDef as Result

LISTING_SECONDS: Final = 5.0
"""How long ListShards is tried for. The stream can be written without it."""

MAX_BUFFERED_RECORDS: Final = 10_000
MAX_BUFFERED_BYTES: Final = 32 * 1024 * 1024

OnRefused = Callable[[Entry, KinesisError], None]
OnTaken = Callable[[Puttable, str], None]

_log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class PutCounts:
    """What became of the (user) records so far. Mutable."""

    taken: int = 0
    """How many are on the stream."""
    taken_bytes: int = 0
    """Their data and keys."""
    refused: int = 0
    """How many were given to ``on_refused``."""
    sent: int = 0
    """How many were in calls; one that was put again counts again."""


class RecordPutter:
    """The records on their way to one stream. Mutable; for one thread.

    It holds what waits for a shard without a bound: the owner looks at ``waiting`` and ``waiting_bytes``, and
    has them ``drain``.

    Args:
        client: from ``KinesisClientSettings.connect``.
        stream: a name or an ARN.
        patience: for each shard that refuses, and for each call that fails.
        limits: of one call.
        order: what of the records' order holds.
        on_refused: is given a record of more than 1 MiB that this stream never takes; None: that is an error
            like any other.
        on_taken: is told of each record that is on the stream now, and of its shard.
    """

    def __init__(
        self,
        client: "KinesisClient",
        stream: str,
        *,
        patience: Patience,
        limits: CallLimits | None = None,
        order: PutOrder = PutOrder.UNORDERED,
        on_refused: OnRefused | None = None,
        on_taken: OnTaken | None = None,
    ) -> None:
        self._client = client
        self._stream = stream
        self._work = f"PutRecords on {stream}"
        self._patience = patience
        self._on_refused = on_refused
        self._on_taken = on_taken
        self._queues = ShardQueues(limits or CallLimits(), patience, self._work, order)
        self.counts = PutCounts()
        self.ranges: HashKeyRanges | None = None
        """The shards as they were last listed; None if they were not yet."""

    @property
    def waiting(self) -> int:
        """How many records are held."""
        return self._queues.records

    @property
    def waiting_bytes(self) -> int:
        """What they weigh."""
        return self._queues.size_bytes

    @property
    def ready_at(self) -> float:
        """When ``put`` need not wait, as monotonic time: minus infinity for now, infinity if nothing is held."""
        return -inf if self._queues.has_open else self._queues.unblocks_at

    @property
    def has_a_full_call(self) -> bool:
        """Whether what may go now fills a call."""
        return self._queues.has_a_full_call

    def add(self, entry: Puttable) -> None:
        """Take a record over; put those that fill a call. Raises like ``put``."""
        self.hold(entry)
        while self.has_a_full_call:
            self.put()

    def hold(self, entry: Puttable) -> None:
        """Take a record over."""
        self._queues.add(entry)
        if self._queues.unblocks_at < inf:
            self._queues.unblock(self._patience.clock.monotonic())

    def drain(self, *, records: int = 0, size_bytes: int = 0) -> None:
        """Return when no more than so much is held. Raises like ``put``."""
        while self.waiting > records or self.waiting_bytes > size_bytes:
            self.put()

    def list_shards(self) -> HashKeyRanges:
        """List the stream's shards, and go by them from now on; where they cannot be had, by none."""
        self.ranges = self._listed()
        self._queues.regroup(self.ranges)
        return self.ranges

    def take_back(self) -> list[Puttable]:
        """Give back everything that waits, each shard's in order."""
        return self._queues.take_all()

    def put(self) -> None:
        """Make one call with what may go; where nothing may, wait for the first shard. Needs ``waiting``.

        Raises:
            KinesisError, InvalidConfig: a shard, or every call, failed until the deadline, or the answer is
                one that time does not change. ``counts`` says how much is on the stream.
        """
        batch = self._next_batch()
        try:
            results = Tries(self._patience, self._work).call(partial(self._request, batch))
        except ResourceNotFound as error:
            raise StreamNotFound(
                f"{error}; check the stream's name, the region, the endpoint and the account of the credentials"
            ) from error.__cause__
        except KinesisError as error:
            if self._on_refused is None or not _is_about_its_size(batch, error):
                raise
            for record in batch[0].user_records:
                self.counts.refused += 1
                self._on_refused(record, error)
            self._queues.done(batch)
        else:
            self._settle(batch, results)

    def _next_batch(self) -> list[Puttable]:
        clock = self._patience.clock
        self._queues.unblock(clock.monotonic())
        while not (batch := self._queues.take()):
            clock.sleep(self._queues.unblocks_at - clock.monotonic())
            self._queues.unblock(clock.monotonic())
        return batch

    def _request(self, batch: Sequence[Puttable]) -> "Sequence[Result]":
        self.counts.sent += sum(len(entry.user_records) for entry in batch)
        reply = self._client.put_records(
            Records=[entry.request() for entry in batch], **stream_arguments(self._stream)
        )
        results: Sequence[Result] = expected(reply, "Records", self._work)
        if len(results) != len(batch):
            raise Unavailable(
                f"{self._work} expected an answer for each of {len(batch)} records, got {len(results)}"
            )
        return results

    def _settle(self, batch: Sequence[Puttable], results: "Sequence[Result]") -> None:
        taken: list[tuple[Puttable, str]] = []
        refused: list[tuple[Puttable, Result]] = []
        for entry, result in zip(batch, results, strict=True):
            if result.get("ErrorCode"):
                refused.append((entry, result))
            else:
                taken.append((entry, result.get("ShardId", "")))
        if refused and self._must_list({result["ShardId"] for result in results if result.get("ShardId")}):
            self.list_shards()
        self._take_note_of(taken)
        if refused:
            self._queues.refused(
                [entry for entry, _ in refused],
                _failure(refused[0][1], f"{len(refused)} of {len(results)} records refused"),
                self._patience.clock.monotonic(),
            )

    def _take_note_of(self, taken: Sequence[tuple[Puttable, str]]) -> None:
        entries = [entry for entry, _ in taken]
        records = [record for entry in entries for record in entry.user_records]
        self.counts.taken += len(records)
        self.counts.taken_bytes += sum(record.size_bytes for record in records)
        self._queues.taken(entries)
        if self._on_taken is not None:
            for entry, shard_id in taken:
                self._on_taken(entry, shard_id)

    def _must_list(self, shards_named: set[str]) -> bool:
        return self.ranges is None or any(map(self.ranges.are_older_than, shards_named))

    def _listed(self) -> HashKeyRanges:
        lister = KinesisShardLister(
            self._client,
            self._stream,
            deadline_seconds=min(LISTING_SECONDS, self._patience.deadline_seconds),
            clock=self._patience.clock,
            jitter=self._patience.jitter,
        )
        try:
            return HashKeyRanges(lister.list_shards())
        except KinesisError as error:  # no record is at stake
            _log.warning(
                "The shards of %s cannot be listed, so one that throttles holds up the others: %s",
                self._stream,
                error,
            )
            return HashKeyRanges.unknown()


def put_all(client: "KinesisClient", stream: str, entries: Iterable[Entry], patience: Patience) -> None:
    """Put every entry on the stream (a name or an ARN) before returning. At least once.

    Raises:
        KinesisError, InvalidConfig: none, some or all of them are on the stream.
    """
    putter = RecordPutter(client, stream, patience=patience)
    for entry in entries:
        putter.add(entry)
        if is_too_much(putter.waiting, putter.waiting_bytes):
            putter.drain(records=MAX_BUFFERED_RECORDS // 2, size_bytes=MAX_BUFFERED_BYTES // 2)
    putter.drain()


def is_too_much(records: int, size_bytes: int) -> bool:
    """Say whether so much is more than one task should hold."""
    return records > MAX_BUFFERED_RECORDS or size_bytes > MAX_BUFFERED_BYTES


def _failure(refusal: "Result", what: str) -> KinesisError:
    code = refusal.get("ErrorCode", "")
    # Others of the call were taken: a code that nobody knows may pass, too.
    return ERRORS_BY_CODE.get(code, Unavailable)(f"{what}, {code}: {refusal.get('ErrorMessage')}")


def _is_about_its_size(batch: Sequence[Puttable], error: KinesisError) -> bool:
    """Say whether one large record was refused as such: what else a call fails with has a name in the table."""
    return len(batch) == 1 and batch[0].size_bytes > COMMON_RECORD_BYTES and type(error) is KinesisError
