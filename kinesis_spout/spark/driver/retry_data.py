"""The data of records that wait for another delivery: kept on the driver while there is room, else read again.

Reading again serves a restart, too. A shard gives five reads a second, so it takes time, up to a limit: what
was not reached is held, and comes with the next slice. That also holds for errors: a shard that cannot be
read now says nothing about its records, so none of them is blamed.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from kinesis_spout.consumer.ports import OpenGetter
from kinesis_spout.kinesis.retry_policy import Action, Work, reaction_to
from kinesis_spout.model.clock import Clock
from kinesis_spout.model.errors import DataLoss, KinesisError, ShardNotFound
from kinesis_spout.model.record import Record
from kinesis_spout.ports import Page, ShardGetter
from kinesis_spout.spark.tasks.work import Unfinished, WorkResult, WorkSlice
from shard_state import Fate, Position, Redelivery, SequenceNumber, UnackedRecord

TRIMMED = "its data was trimmed by the stream's retention before it could be delivered again"
_MAX_RECORDS: Final = 10_000
_OVERHEAD_BYTES: Final = 500
"""The approximate size of a record without its data."""


class RetryBuffer:
    """Waiting records. Mutable; not thread-safe. ``max_bytes`` returns the present limit."""

    def __init__(self, max_bytes: Callable[[], int]) -> None:
        self._max_bytes = max_bytes
        self._records: dict[str, dict[SequenceNumber, Record]] = {}
        self.size_bytes = 0

    def keep(self, shard_id: str, records: Iterable[tuple[SequenceNumber, Record]]) -> None:
        """Keep records under their sequence numbers, of which the caller has objects: others would cost."""
        shard, most = self._records.setdefault(shard_id, {}), self._max_bytes()
        for sequence, record in records:
            self._forget(shard, sequence)
            weight = _weight(record)
            if self.size_bytes + weight <= most:
                shard[sequence] = record
                self.size_bytes += weight

    def get(self, shard_id: str, sequence: SequenceNumber) -> Record | None:
        """None if the record's data was not kept. It stays until dropped."""
        return self._records.get(shard_id, {}).get(sequence)

    def drop(self, shard_id: str, sequences: Collection[SequenceNumber]) -> None:
        shard = self._records.get(shard_id, {})
        for sequence in sequences:
            self._forget(shard, sequence)

    def drop_shard(self, shard_id: str) -> None:
        shard = self._records.pop(shard_id, {})
        self.size_bytes -= sum(_weight(record) for record in shard.values())

    def _forget(self, shard: dict[SequenceNumber, Record], sequence: SequenceNumber) -> None:
        record = shard.pop(sequence, None)
        if record is not None:
            self.size_bytes -= _weight(record)


def _weight(record: Record) -> int:
    return len(record.data) + _OVERHEAD_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Reread:
    work: WorkSlice
    """With the records that can be delivered: the first retries, without gaps except trimmed records."""
    gone: tuple[Redelivery, ...] = ()
    """Retention has trimmed them."""
    unreached: tuple[Redelivery, ...] = ()
    """The last retries of the slice; their turn comes later."""
    error: KinesisError | None = None
    """Why they were not reached, unless the time was over."""

    def complete(self, result: WorkResult) -> WorkResult:
        """Add to the slice's outcome what was not delivered: lost records are given up, the rest is held."""
        if not (self.gone or self.unreached):
            return result
        shard_id = self.work.plan.shard_id
        kept = {record.sequence: record for record in self.work.records}
        gone = [Unfinished(record=_lost(retry, shard_id), error=TRIMMED) for retry in self.gone]
        held = [
            Unfinished(record=kept[retry.sequence], error="")
            for retry in self.unreached
            if retry.sequence in kept
        ]
        failures = [_failed(at, retry, held=False) for at, retry in enumerate(self.gone)]
        failures += [_failed(at, retry, held=True) for at, retry in enumerate(self.unreached)]
        return replace(
            result,
            outcome=replace(result.outcome, failures=(*result.outcome.failures, *failures)),
            unfinished=(*result.unfinished, *gone, *held),
            gone=len(gone),
            error=self.error,
        )


def read_missing(work: WorkSlice, open_getter: OpenGetter, clock: Clock, until: float) -> Reread:
    """Complete a slice of retries whose data was not kept. No read begins after ``until`` (monotonic)."""
    kept = {record.sequence: record for record in work.records}
    retries = work.plan.retries
    missing = [retry.sequence for retry in retries if retry.sequence not in kept]
    reader = _Rereader(work.plan.shard_id, missing, open_getter, clock, until)
    records: list[Record] = []
    gone: list[Redelivery] = []
    for at, retry in enumerate(retries):
        try:
            record = kept.get(retry.sequence) or reader.read(retry.sequence)
        except (DataLoss, ShardNotFound):
            record = None
        except _NotNow as not_now:
            return Reread(
                work=replace(work, records=tuple(records)),
                gone=tuple(gone),
                unreached=retries[at:],
                error=not_now.error,
            )
        if record is None:
            gone.append(retry)
        else:
            records.append(record)
    return Reread(work=replace(work, records=tuple(records)), gone=tuple(gone))


class _NotNow(Exception):  # noqa: N818 - no error: the rest is read later
    def __init__(self, error: KinesisError | None) -> None:
        super().__init__(error)
        self.error = error


class _Rereader:
    """Reads records of one shard by their sequence numbers. Mutable."""

    def __init__(
        self,
        shard_id: str,
        missing: Sequence[SequenceNumber],
        open_getter: OpenGetter,
        clock: Clock,
        until: float,
    ) -> None:
        self._shard_id = shard_id
        self._missing = set(missing)
        self._open_getter = open_getter
        self._clock = clock
        self._until = until
        self._found: dict[SequenceNumber, Record] = {}
        self._ready_at = 0.0
        """Each getter counts its own reads only; the shard counts them all."""

    def read(self, sequence: SequenceNumber) -> Record | None:
        """None if the record is gone. Raises _NotNow if the time is over, or if it cannot be read now."""
        self._missing.discard(sequence)
        found = self._found.pop(sequence, None)
        if found is not None:
            return found
        getter = self._open_getter(self._shard_id, Position.at(sequence))
        page = self._read(getter)
        while not page.records and page.millis_behind_latest and not page.at_end:
            # An empty page before the tip proves nothing yet.
            page = self._read(getter)
        # Records that failed together often lie together: one page can hold many of them.
        following = {record.sequence: record for record in page.records}
        self._found.update((wanted, following[wanted]) for wanted in self._missing & following.keys())
        return following.get(sequence)

    def _read(self, getter: ShardGetter) -> Page:
        failure: KinesisError | None = None
        while True:
            ready_at = max(getter.ready_at, self._ready_at)
            now = self._clock.monotonic()
            if max(ready_at, now) >= self._until:
                raise _NotNow(failure)
            self._clock.sleep(ready_at - now)
            try:
                return getter.read(min(_MAX_RECORDS, len(self._missing) + 1))
            except (DataLoss, ShardNotFound):
                raise
            except KinesisError as error:
                if reaction_to(error, Work.QUERY).action is not Action.RETRY:
                    raise _NotNow(error) from error
                failure = error
            finally:
                self._ready_at = getter.ready_at


def _lost(retry: Redelivery, shard_id: str) -> Record:
    sequence = retry.sequence
    return Record(
        data=b"",
        sequence_number=sequence.kinesis,
        shard_id=shard_id,
        attempt=retry.attempt,
        sub_sequence_number=None if sequence.is_whole else sequence.sub,
    )


def _failed(at: int, retry: Redelivery, *, held: bool) -> UnackedRecord:
    return UnackedRecord(
        index=at,
        sequence=retry.sequence,
        previous=None,
        attempt=retry.attempt - held,
        fate=Fate.HELD if held else Fate.REJECTED,
    )
