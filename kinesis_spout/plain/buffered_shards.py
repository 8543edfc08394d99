"""The reading half of the plain-Python door: from owned shards to the next record to deliver.

Three quarters of ``max_buffered_bytes`` are for records that are not finished, the rest for what is read
ahead, shared evenly by the shards (a page can exceed its share).
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import copy
from functools import partial
from itertools import takewhile
from math import inf
from operator import lt
from typing import Final

from kinesis_spout.consumer.consumer import Consumer
from kinesis_spout.consumer.limits.record_age import RecordAge
from kinesis_spout.consumer.ports import ShardReading
from kinesis_spout.kinesis import Prefetcher
from kinesis_spout.kinesis.read.shard_reader import Room
from kinesis_spout.kinesis.retry_policy import Action, Reaction, reaction_to
from kinesis_spout.model.errors import KinesisError
from kinesis_spout.model.handler import Failure
from kinesis_spout.model.record import Record
from kinesis_spout.plain.buffered_shard import BufferedShard
from kinesis_spout.plain.caution import Caution
from kinesis_spout.plain.retained_records import Retained, RetainedRecords
from kinesis_spout.ports import Page
from shard_state import Exhausted, Fate, Guarantee, Order, RecordState, Retry, Run, SequenceNumber

_RETAINED_SHARE: Final = 0.75
_MIN_READ_AHEAD_BYTES: Final = 64 * 1024


_ENDED: Final = Record(data=b"", sequence_number="")


class RecordRun:
    """Consecutive fresh records of one shard that may be handed out together. Mutable."""

    __slots__ = ("epoch", "has_user_records", "records", "shard_id", "sizes", "tracked", "was_late")

    def __init__(self, shard_id: str, epoch: int, records: list[Record], sizes: list[int]) -> None:
        self.shard_id = shard_id
        self.epoch = epoch
        self.records = records
        """``_ENDED`` takes the place of those that have ended: one that stays open keeps no others in memory."""
        self.sizes = sizes
        """``size_bytes`` of each."""
        self.has_user_records = {each.sub_sequence_number for each in records} != {None}
        """Whether some were inside an aggregate: then numbers and sizes say less than the whole."""
        self.tracked = Run(len(records), self.sequence_of)
        """What the tracker knows of it, once it is handed out."""
        self.was_late = False
        """Whether its message time-out has passed once."""

    def end_behind(self, count: int) -> None:
        """Let only so many records be of the run."""
        del self.records[count:], self.sizes[count:]
        self.tracked = Run(count, self.sequence_of)

    def sequence_of(self, index: int) -> SequenceNumber:
        return self.records[index].sequence


_ENDED_THE_PROCESS: Final = (
    "the process ended while it handled this record, or lost its shard before the outcome was stored"
)

DueRetry = tuple[Retained, float]
"""One that is due, and since when."""

MAX_CLAIMED: Final = 500
"""With AT_MOST_ONCE: so many records of a shard are claimed by one commit. A crash may lose as many."""


class BufferedShards:
    """A consumer's ``OwnershipListener``. Mutable; call it under the consumer's lock."""

    def __init__(self, consumer: Consumer, prefetcher: Prefetcher) -> None:
        self._consumer = consumer
        self._prefetcher = prefetcher
        self._room = Room(
            lambda: int((1 - _RETAINED_SHARE) * self._max_bytes), least_share_bytes=_MIN_READ_AHEAD_BYTES
        )
        self._getters: dict[str, BufferedShard] = {}
        """Of the shards whose end was not read yet."""
        self._turns = consumer.manager.turns
        self._claims = consumer.manager.guarantee is Guarantee.AT_MOST_ONCE
        self._age: RecordAge | None = None
        """Which records are too old to be delivered now; None: none."""
        self._is_bounded = consumer.manager.bounds is not None
        self._rate = consumer.deliveries
        self._gave_retry = False
        """Whether the last record given alone was a retry: within a rate the next is a fresh one, if possible."""
        self._caution = Caution(consumer)
        self.retained = RetainedRecords(lambda: int(_RETAINED_SHARE * self._max_bytes))
        self.forget_shards: Callable[[Collection[str]], None] = lambda _: None
        """Called with the shards that are lost."""

    # The ownership listener

    def shards_acquired(self, shard_ids: Iterable[str]) -> None:
        config, manager, ports = self._consumer.config, self._consumer.manager, self._consumer.ports
        self._room.sharers = len(self._consumer.sharing.ours)
        for shard_id in shard_ids:
            state = manager.shard(shard_id)
            assert state is not None, "the consumer reports shards that the manager owns"
            self._drop_getter(shard_id)
            self._caution.acquired(shard_id, state)
            self._getters[shard_id] = BufferedShard(
                ports.open_getter(shard_id, state.position),
                self._prefetcher,
                self._room,
                lock=self._consumer.lock,
                clock=ports.clock,
                periods=(config.poll_interval_seconds, config.idle_poll_interval_seconds),
                max_records=config.max_records_per_fetch,
                react=partial(self._reading_failed, shard_id, state.epoch),
                worked=partial(self._reading_worked, shard_id, state.epoch),
                took=partial(self._took, shard_id, state.epoch),
                came=partial(self._turns.wake, shard_id),
            )

    def shards_lost(self, shard_ids: Iterable[str]) -> None:
        gone = set(shard_ids)
        for shard_id in gone:
            self._drop_getter(shard_id)
        self.retained.drop_shards(gone)
        self._caution.lost(gone)
        self.forget_shards(gone)
        self._room.sharers = len(self._consumer.sharing.ours)

    def resumed(self) -> None:
        """Nothing to do: the next ``take`` finds it."""

    @property
    def readings(self) -> Mapping[str, ShardReading]:
        return {
            shard_id: ShardReading(getter.millis_behind_latest, getter.has_records, getter.reading_since)
            for shard_id, getter in self._getters.items()
        }

    @property
    def buffered_bytes(self) -> int:
        return self.retained.size_bytes + sum(getter.held_bytes for getter in self._getters.values())

    @property
    def turned_at(self) -> float | None:
        return None  # the caller's loop turns it

    @property
    def is_full(self) -> bool:
        return self.retained.is_full

    # What the spout asks

    def take(self, now: float) -> Retained | None:
        """The next record, tracked and retained. After a KinesisError the next call serves other shards."""
        self.retained.drop_dead_lettered(self._is_dead_lettered)
        if not self._rate.is_limited:
            return self._taken(now)
        grant = self._rate.granted(self._consumer, now, most=1)
        taken = None
        try:
            if grant.deliveries:
                taken = self._taken(now)
        finally:
            self._rate.ended(grant, int(taken is not None))
        return taken

    # Runs of records: see ``RecordsAtHand``

    @property
    def decides_one_by_one(self) -> bool:
        """Whether the settings ask for a look at each record before it is handed out."""
        return (
            self._claims
            or self._is_bounded
            or self._rate.is_limited
            or self._consumer.config.maximum_record_age_seconds is not None
        )

    def take_run(self, now: float, most: int) -> RecordRun | None:
        """Take the next fresh records of the shard whose turn it is; None if each is decided upon by itself."""
        manager, retained = self._consumer.manager, self.retained
        retained.drop_dead_lettered(self._is_dead_lettered)
        shard_id = self._turns.current(now)
        getter = None if shard_id is None else self._getters.get(shard_id)
        if shard_id is None or getter is None or self._caution.watches(shard_id):
            return None
        state = manager.shard(shard_id)
        most = min(most, manager.run_room(shard_id, now))
        if state is None or most <= 1 or retained.is_full or not getter.has_records:
            return None
        run = RecordRun(shard_id, state.epoch, *getter.take(most, retained.free_bytes))
        end = len(run.records)
        if manager.order is Order.KEY and state.retries.line_of:
            blocks = state.retries.blocks
            end = sum(1 for _ in takewhile(lambda record: not blocks(record.partition_key), run.records))
        if not _are_in_order(run, end, state.tracker.last_emitted):
            end = 0  # the first that is not is found one by one
        self._put_back(run, end)
        return run if end else None

    def _put_back(self, run: RecordRun, end: int) -> None:
        """Let the records of a run from ``end`` on be the next ones of their shard again."""
        if end < len(run.records):
            self._getters[run.shard_id].put_back(run.records[end:], sum(run.sizes[end:]))
            run.end_behind(end)

    def handed_out(self, run: RecordRun, count: int) -> None:
        """Take in that so many records of a run were handed out; put back the others."""
        self._put_back(run, count)
        if not count:
            return
        consumer, shard_id = self._consumer, run.shard_id
        size_bytes = read_bytes = sum(run.sizes)
        if run.has_user_records:
            read_bytes = sum([len(each.data) + len(each.partition_key or "") for each in run.records])
        consumer.counters.bytes_read += read_bytes
        consumer.sharing.read_bytes[shard_id] += read_bytes
        consumer.counters.delivered += count
        self._turns.took_records(shard_id, count)
        consumer.manager.emit_run(shard_id, run.tracked)
        self.retained.add_in_runs(shard_id, size_bytes)

    def acked_in_run(self, run: RecordRun, indices: list[int], now: float) -> None:
        """Take in acks of open records of a run; without effect where its shard was lost."""
        if not self._is_owned(run):
            return
        shard_id, records, sizes = run.shard_id, run.records, run.sizes
        self._consumer.manager.ack_in_run(shard_id, run.tracked, indices, now)
        self.retained.add_in_runs(shard_id, -sum([sizes[index] for index in indices]))
        self._acked([records[index] for index in indices], attempt=1)
        for index in indices:
            records[index] = _ENDED

    def single_out(self, run: RecordRun, index: int) -> None:
        """Let an open record of a run be tracked and retained by itself, without a time-out: it is to fail."""
        if not self._is_owned(run):
            return
        shard_id, record, size_bytes = run.shard_id, run.records[index], run.sizes[index]
        self._consumer.manager.single_out(shard_id, run.tracked, index)
        self.retained.add_in_runs(shard_id, -size_bytes)
        self.retained.add(record, record.sequence, size_bytes)
        run.records[index] = _ENDED

    def take_due_retries(self, now: float, most: int) -> list[DueRetry]:
        """Take the retries that are due of the shard whose turn it is, if several can be handed out together."""
        shard_id = self._turns.current(now)
        state = None if shard_id is None else self._consumer.manager.shard(shard_id)
        if (
            shard_id is None
            or state is None
            or self._caution.watches(shard_id)
            or self._consumer.manager.blame.is_slowed  # they are tried one by one
        ):
            return []
        taken: list[DueRetry] = []
        while len(taken) < most:
            due_at = state.retries.next_due()
            retained = self._due_retry(shard_id, now)
            if due_at is None or retained is None:
                break
            taken.append((retained, due_at))
        return taken

    def handed_out_retries(self, taken: Sequence[DueRetry], count: int, now: float) -> None:
        """Take in that so many of these were handed out, the last of them at ``now``.

        The others wait on as before: those that became due first come first, or some would never come.
        """
        consumer, shard_id = self._consumer, taken[0][0].record.shard_id
        state = consumer.manager.shard(shard_id)
        assert state is not None, "whoever takes the shard away gathers first"
        for retained, _ in taken[:count]:
            state.start_deadline(retained.sequence, now)
        for retained, due_at in taken[count:]:
            record = retained.record
            consumer.counters.retried -= record.attempt > 1
            record.attempt -= 1
            state.withdraw(retained.sequence, record.partition_key, due_at)
        consumer.counters.delivered += count
        self._turns.took_records(shard_id, count)

    def _is_owned(self, run: RecordRun) -> bool:
        state = self._consumer.manager.shard(run.shard_id)
        return state is not None and state.epoch == run.epoch

    def fail(
        self, shard_id: str, sequence: SequenceNumber, attempt: int, failure: Failure, now: float
    ) -> Retry | Exhausted | None:
        """Decide upon a delivery that failed, under the present ownership; None if it has ended already."""
        consumer, retained = self._consumer, self.retained.get(shard_id, sequence)
        if retained is None:
            return None
        record = retained.record
        decision = consumer.manager.fail(
            shard_id,
            sequence,
            now,
            attempt=attempt,
            fate=failure.fate,
            partition_key=record.partition_key,
            delay_seconds=failure.delay_seconds,
        )
        if decision is None:
            return None
        consumer.failures.add(failure.raised)
        if isinstance(decision, Exhausted):
            consumer.dead_letter(decision, record, failure.error_text, failure.raised)
            self.retained.given_up(shard_id, sequence)
        return decision

    def acked(self, records: Iterable[Record], now: float) -> None:
        """Take in acks of records that are tracked by themselves; without effect where that is over."""
        manager = self._consumer.manager
        by_attempt = defaultdict[int, list[Record]](list)
        for record in records:
            sequence = record.sequence
            if manager.ack(record.shard_id, sequence, now):
                self.retained.finished(record.shard_id, sequence)
                by_attempt[record.attempt].append(record)
        for attempt, acked in by_attempt.items():
            self._acked(acked, attempt)

    def _acked(self, records: Sequence[Record], attempt: int) -> None:
        self._consumer.counters.acked += len(records)
        figures = self._consumer.figures
        for at in figures.acked(len(records), attempt):
            arrived_at = records[at].arrival_timestamp
            if arrived_at is not None:
                figures.acked_at_age(self._consumer.ports.clock.time() - arrived_at)

    def rate_wait_seconds(self, now: float) -> float:
        if not self._rate.is_limited:
            return 0.0
        due_at = self._rate.due_at(self._consumer, now)
        return inf if due_at is None else max(0.0, due_at - now)

    def _taken(self, now: float) -> Retained | None:
        self._age = None
        noted = self._caution.take(now)
        if self._caution.holds_back():
            return noted
        if not self._consumer.manager.blame.is_troubled:  # otherwise nothing is given up now
            self._age = RecordAge.of(self._consumer.config, self._consumer.ports.clock.time())
        if self._consumer.manager.blame.is_slowed:
            return self._taken_slowly(now)
        while (shard_id := self._turns.current(now)) is not None:
            try:
                taken = self._next_of(shard_id, now)
            except Exception:
                self._let_rest(shard_id, now)
                raise
            if taken is not None:
                if self._rate.is_limited:
                    self._turns.served(shard_id)  # the few there are go round
                else:
                    self._turns.took_records(shard_id)
                return taken
            if self._caution.holds_back():
                return None
            self._let_rest(shard_id, now)
        return None

    def _let_rest(self, shard_id: str, now: float) -> None:
        """Let the current shard, which has nothing, rest; if only its getter can change that, let it sleep."""
        getter, state = self._getters.get(shard_id), self._consumer.manager.shard(shard_id)
        waits_for_getter = getter is not None and getter.waits and not self._is_bounded
        if waits_for_getter and state is not None and not state.retries.line_of:
            self._turns.sleep()
        else:
            self._turns.rest(now)

    def _next_of(self, shard_id: str, now: float) -> Retained | None:
        if self._rate.is_limited and self._gave_retry:
            self._gave_retry = False
            return self._fresh(shard_id, now) or self._due_retry(shard_id, now)
        retry = self._due_retry(shard_id, now)
        self._gave_retry = retry is not None
        return retry or self._fresh(shard_id, now)

    def all_over(self) -> bool:
        return self._consumer.sharing.all_over

    def is_done(self) -> bool:
        return self.all_over() or self._consumer.run_is_done

    def stop(self) -> None:
        """Fetch no more; drop fetches that are under way."""
        for getter in self._getters.values():
            getter.close()

    # Inside

    @property
    def _max_bytes(self) -> int:
        return self._consumer.config.max_buffered_bytes // self._consumer.sharers

    def _taken_slowly(self, now: float) -> Retained | None:
        """The record that is tried next while deliveries are slow, if it is time."""
        manager = self._consumer.manager
        if not manager.blame.allowance(now):
            return None
        for fresh in (True, False) if manager.blame.fresh_first else (False, True):
            give = self._fresh if fresh else self._due_retry
            for shard_id in self._turns.round():
                self._turns.served(shard_id)
                taken = give(shard_id, now)
                if taken is not None:
                    return taken
        return None

    def _due_retry(self, shard_id: str, now: float) -> Retained | None:
        while (redelivery := self._consumer.manager.take_retry(shard_id, now)) is not None:
            retained = self.retained.get(shard_id, redelivery.sequence)
            assert retained is not None, "every record that waits is retained"
            # A copy: the receiver of an earlier delivery can still hold that one.
            retained.record = copy(retained.record)
            retained.record.attempt = redelivery.attempt
            if self._age is not None and self._expires(retained, self._age, now):
                continue
            self._consumer.counters.retried += redelivery.attempt > 1
            return retained
        return None

    def _fresh(self, shard_id: str, now: float) -> Retained | None:
        manager, getter = self._consumer.manager, self._getters.get(shard_id)
        while getter is not None and not self.retained.is_full and manager.may_read(shard_id, now):
            if self._claims and not self._is_claimed(shard_id, getter):
                return None
            try:
                record = getter.poll()
            except KinesisError as error:
                if reaction_to(error).action is not Action.END_SHARD:
                    raise
                self._drop_getter(shard_id)
                self._consumer.shard_trimmed(shard_id)
                return None
            if record is None:
                self._nothing_at_hand(shard_id, getter)
                return None
            sequence = record.sequence
            if self._is_bounded and manager.ends_before(shard_id, sequence, record.arrival_timestamp):
                self._drop_getter(shard_id)  # with what it has read ahead, which is for a later run
                return None
            emission = manager.emit(shard_id, sequence, record.partition_key, now)
            read_bytes = len(record.data) + len(record.partition_key or "")
            self._consumer.counters.bytes_read += read_bytes
            self._consumer.sharing.read_bytes[shard_id] += read_bytes
            if emission.deliver or emission.held:
                record.attempt = emission.attempt
                retained = self.retained.add(record, sequence, record.size_bytes)
                if emission.deliver and self._may_go(retained, now, was_last=emission.was_last):
                    return None if self._caution.note(retained) else retained
        return None

    def _may_go(self, retained: Retained, now: float, *, was_last: bool) -> bool:
        """Whether a fresh record is still to be delivered; if not, settles it."""
        if was_last:
            self._give_up(retained, now)
            return False
        return self._age is None or not self._expires(retained, self._age, now)

    def _give_up(self, retained: Retained, now: float) -> None:
        """Fail a record whose last delivery ended with its process: it is given up."""
        record, consumer = retained.record, self._consumer
        decision = consumer.manager.fail(
            record.shard_id,
            retained.sequence,
            now,
            attempt=record.attempt,
            fate=Fate.ENDED_PROCESS,
            partition_key=record.partition_key,
        )
        if isinstance(decision, Exhausted):
            consumer.dead_letter(decision, record, _ENDED_THE_PROCESS)
            self.retained.given_up(record.shard_id, retained.sequence)

    def _expires(self, retained: Retained, age: RecordAge, now: float) -> bool:
        """Whether a record that was handed out is too old to be delivered; if so, settles it."""
        record, sequence, consumer = retained.record, retained.sequence, self._consumer
        if not age.expires(record.arrival_timestamp):
            return False
        consumer.counters.expired += 1
        if age.skips:
            consumer.counters.skipped += consumer.manager.skip(record.shard_id, sequence, now)
            self.retained.finished(record.shard_id, sequence)
            return True
        exhausted = consumer.manager.fail(
            record.shard_id, sequence, now, attempt=record.attempt, fate=Fate.EXPIRED
        )
        assert isinstance(exhausted, Exhausted), "it was handed out just now"
        consumer.dead_letter(exhausted, record, age.error(record))
        self.retained.given_up(record.shard_id, sequence)
        return True

    def _nothing_at_hand(self, shard_id: str, getter: BufferedShard) -> None:
        """End a shard without records at hand if it is at its end, or at its bound."""
        tip_seen_at = getter.tip_seen_at
        if getter.at_end:
            self._end(shard_id)
        elif tip_seen_at is not None and self._consumer.manager.ends_at_tip(shard_id, tip_seen_at):
            self._drop_getter(shard_id)

    def _is_claimed(self, shard_id: str, getter: BufferedShard) -> bool:
        """Whether the next record may be handed out; if not, claims it and some more at the next commit."""
        state, following = self._consumer.manager.shard(shard_id), getter.ahead(1)
        assert state is not None, "only owned shards are read"
        if following is None or state.may_hand_out(following[0]):
            return True  # the poll says why there is none
        ahead = getter.ahead(MAX_CLAIMED)
        if ahead is not None and state.claim(*ahead):
            self._consumer.commit_soon()
        return False

    def _end(self, shard_id: str) -> None:
        self._drop_getter(shard_id)
        self._consumer.manager.end_read(shard_id)

    def _reading_failed(self, shard_id: str, epoch: int, error: Exception) -> Reaction:
        if self._is_read(shard_id, epoch):
            return self._consumer.reading_failed(shard_id, error)
        return reaction_to(error)  # the shard was lost meanwhile: reading ends

    def _reading_worked(self, shard_id: str, epoch: int) -> None:
        if self._is_read(shard_id, epoch):
            self._consumer.read_errors.worked(shard_id)

    def _took(self, shard_id: str, epoch: int, page: Page) -> None:
        if self._is_read(shard_id, epoch):
            self._consumer.page_read(shard_id, page)

    def _is_read(self, shard_id: str, epoch: int) -> bool:
        state = self._consumer.manager.shard(shard_id)
        return shard_id in self._getters and state is not None and state.epoch == epoch

    def _drop_getter(self, shard_id: str) -> None:
        getter = self._getters.pop(shard_id, None)
        if getter is not None:
            getter.close()
        self._consumer.read_errors.drop([shard_id])

    def _is_dead_lettered(self, shard_id: str, sequence: SequenceNumber) -> bool:
        state = self._consumer.manager.shard(shard_id)
        return state is None or state.tracker.state(sequence) is not RecordState.EXHAUSTED


def _are_in_order(run: RecordRun, end: int, after: SequenceNumber) -> bool:
    """Whether each up to ``end`` comes after the one before it.

    Numbers of one length are compared as text: that takes less.
    """
    records = run.records[:end]
    numbers = [record.sequence_number for record in records]
    if run.has_user_records or len(set(map(len, numbers))) > 1:
        sequences = [record.sequence for record in records]
        return all(map(lt, [after, *sequences], sequences))
    return not records or (after < records[0].sequence and all(map(lt, numbers, numbers[1:])))
