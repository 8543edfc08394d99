"""Puts records on one stream, one call after the other, in the caller's thread.

``waiting_records`` decides what goes into a call and what an answer means; the calls are made, and waited for,
here.

**Copies.** A call whose answer is lost is made again, and may have put its records before.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Final

from kinesis_spout.kinesis.calls import ResourceNotFound, expected, stream_arguments, translated
from kinesis_spout.kinesis.lister import KinesisShardLister
from kinesis_spout.kinesis.retry_policy import CallRetryPolicy, Tries
from kinesis_spout.kinesis.write.hash_key_ranges import HashKeyRanges
from kinesis_spout.kinesis.write.put_records import (
    COMMON_RECORD_BYTES,
    CallLimits,
    Entry,
    PutOrder,
    Puttable,
    requests,
)
from kinesis_spout.kinesis.write.waiting_records import WaitingRecords
from kinesis_spout.model.distribution import CALLS, Counted, Distribution
from kinesis_spout.model.errors import KinesisError, StreamNotFound, Unavailable

if TYPE_CHECKING:
    from mypy_boto3_kinesis import KinesisClient
    from mypy_boto3_kinesis.type_defs import PutRecordsResultEntryTypeDef as Result

LISTING_SECONDS: Final = 5.0
"""The time for which ListShards is tried. The stream can be written without it."""
MAX_BUFFERED_RECORDS: Final = 10_000
MAX_BUFFERED_BYTES: Final = 32 * 1024 * 1024

OnRefused = Callable[[Entry, KinesisError], None]

_log = logging.getLogger(__name__)


class PutCalls:
    """Calls that put records on one stream (a name or an ARN). Thread-safe, like the client."""

    def __init__(self, client: "KinesisClient", stream: str, retry_policy: CallRetryPolicy) -> None:
        self._client = client
        self._stream = stream
        self._retry_policy = retry_policy
        self.work: Final = f"PutRecords on {stream}"
        self._seconds = Distribution(CALLS)
        self._measuring = threading.Lock()

    @property
    def seconds(self) -> Counted:
        """The durations of the calls, failed ones included."""
        with self._measuring:
            return self._seconds.counted()

    def put(self, batch: Sequence[Puttable]) -> "Sequence[Result]":
        """Make one call, without retries, and return the answer for each record.

        Raises:
            KinesisSpoutError: as ``kinesis.calls`` translates it.
            Unavailable: the reply is invalid, or not for these records.
        """
        with translated(self.work):
            began = monotonic()
            try:
                reply = self._client.put_records(Records=requests(batch), **stream_arguments(self._stream))
            finally:
                with self._measuring:
                    self._seconds.add(monotonic() - began)
            results: Sequence[Result] = expected(reply, "Records", self.work, list)
            for each in results:  # texts, or it is no answer
                "".join((each.get("ErrorCode") or each["SequenceNumber"], each.get("ShardId") or ""))
        if len(results) != len(batch):
            raise Unavailable(
                f"{self.work} expected an answer for each of {len(batch)} records, got {len(results)}"
            )
        return results

    def shards(self) -> HashKeyRanges:
        """List the stream's shards; if that fails, it is logged, and none are known."""
        lister = KinesisShardLister(
            self._client,
            self._stream,
            deadline_seconds=min(LISTING_SECONDS, self._retry_policy.deadline_seconds),
            clock=self._retry_policy.clock,
            jitter=self._retry_policy.jitter,
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


@dataclass(slots=True, kw_only=True)
class PutCounts:
    """Counts (user) records. Mutable."""

    taken: int = 0
    taken_bytes: int = 0
    """Their data and keys."""
    refused: int = 0
    """Records given to ``on_refused``."""
    sent: int = 0
    """Records in calls; one that was put again counts again."""


class RecordPutter:
    """The records on their way to one stream. Mutable; for one thread.

    It holds any number of records that wait for a shard: the owner checks ``waiting`` and ``waiting_bytes``,
    and calls ``drain``.

    Args:
        retry_policy: for each shard that refuses, and for each call that fails.
        on_refused: gets a record of more than 1 MiB that this stream never takes; None: that is an error.
        aggregate_bytes: what a record of several may weigh, up to 1 MiB. None: no aggregates.
    """

    def __init__(
        self,
        client: "KinesisClient",
        stream: str,
        *,
        retry_policy: CallRetryPolicy,
        limits: CallLimits | None = None,
        order: PutOrder = PutOrder.UNORDERED,
        on_refused: OnRefused | None = None,
        aggregate_bytes: int | None = None,
    ) -> None:
        self._calls = PutCalls(client, stream, retry_policy)
        self._retry_policy = retry_policy
        self._on_refused = on_refused
        self._records = WaitingRecords(
            self._calls.work,
            retry_policy=retry_policy,
            limits=limits or CallLimits(),
            order=order,
            aggregate_bytes=aggregate_bytes,
        )
        self.counts = PutCounts()

    @property
    def waiting(self) -> int:
        return self._records.waiting

    @property
    def waiting_bytes(self) -> int:
        return self._records.waiting_bytes

    @property
    def ready_at(self) -> float:
        """When ``put`` need not wait, monotonic: minus infinity for now, infinity if nothing is held."""
        return self._records.ready_at

    def add(self, entry: Entry) -> None:
        """Hold a record; put those that fill a call. Raises like ``put``."""
        if self._records.needs_shards:
            self._records.go_by(self._calls.shards())
        self._records.hold_all((entry,))
        while self._records.has_a_full_call:
            batch = self._records.take()
            if not batch:  # all of it is for shards that refuse
                return
            self._put(batch)

    def drain(self, *, records: int = 0, size_bytes: int = 0) -> None:
        """Return when no more than this is held. Raises like ``put``."""
        while self.waiting > records or self.waiting_bytes > size_bytes:
            self.put()

    def put(self) -> None:
        """Make one call with what may go; if nothing may, wait for the first shard. Needs ``waiting``.

        Raises:
            KinesisError, InvalidConfig: a shard, or every call, failed until the deadline, or the error is not
                retriable. ``counts`` says how much is on the stream.
        """
        clock = self._retry_policy.clock
        while not (batch := self._records.take()):
            clock.sleep(max(0.0, self._records.ready_at - clock.monotonic()))
        self._put(batch)

    def _put(self, batch: list[Puttable]) -> None:
        try:
            tries = Tries(self._retry_policy, self._calls.work)
            results = tries.call(partial(self._request, batch))
        except ResourceNotFound as error:
            raise no_such_stream(error) from error.__cause__
        except KinesisError as error:
            if self._on_refused is None or not is_about_its_size(batch, error):
                raise
            for record in batch[0].parts:
                self.counts.refused += 1
                self._on_refused(record, error)
            self._records.done(batch)
        else:
            self._settle(batch, results)

    def _request(self, batch: Sequence[Puttable]) -> "Sequence[Result]":
        self.counts.sent += sum([entry.count for entry in batch])
        return self._calls.put(batch)

    def _settle(self, batch: Sequence[Puttable], results: "Sequence[Result]") -> None:
        if self._records.must_list(results):
            self._records.go_by(self._calls.shards())
        taken, given_up = self._records.settle(batch, results)
        for entry, _ in taken:
            self.counts.taken += entry.count
            self.counts.taken_bytes += sum(record.size_bytes for record in entry.parts)
        if given_up:
            raise given_up[0][1]


def put_all(
    client: "KinesisClient", stream: str, entries: Iterable[Entry], retry_policy: CallRetryPolicy
) -> None:
    """Put every entry on the stream (a name or an ARN) before returning. At least once.

    Raises:
        KinesisError, InvalidConfig: none, some or all of them are on the stream.
    """
    putter = RecordPutter(client, stream, retry_policy=retry_policy)
    for entry in entries:
        putter.add(entry)
        if is_too_much(putter.waiting, putter.waiting_bytes):
            putter.drain(records=MAX_BUFFERED_RECORDS // 2, size_bytes=MAX_BUFFERED_BYTES // 2)
    putter.drain()


def is_too_much(records: int, size_bytes: int) -> bool:
    return records > MAX_BUFFERED_RECORDS or size_bytes > MAX_BUFFERED_BYTES


def is_about_its_size(batch: Sequence[Puttable], error: KinesisError) -> bool:
    """Return whether one large record was refused as such: other failures of calls have another type."""
    return len(batch) == 1 and batch[0].size_bytes > COMMON_RECORD_BYTES and type(error) is KinesisError


def no_such_stream(error: ResourceNotFound) -> StreamNotFound:
    return StreamNotFound(
        f"{str(error).rstrip('.')}; check the stream's name, the region, the endpoint and the account of the "
        "credentials"
    )
