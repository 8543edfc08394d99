"""The reading half of the plain-Python door: from owned shards to the next record to deliver.

Records are handed out in *runs*: which shard is next, and whether something may be handed out of it, is decided
once for some of its records, and for 10 ms at most. A run ends early when the core says that there is something to
decide (``StateManager.decisions``). It has one record where a rule has to look at each: a rate, slow deliveries, a
record that may end the process.

Three quarters of ``max_buffered_bytes`` are for records that are not finished, the rest for what is read
ahead, shared evenly by the shards (a page can exceed its share).
"""

from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Final

from kinesis_spout.consumer.consumer import Consumer
from kinesis_spout.consumer.limits.record_age import RecordAge
from kinesis_spout.consumer.ports import ShardReading
from kinesis_spout.kinesis import Prefetcher
from kinesis_spout.kinesis.read.shard_reader import Room
from kinesis_spout.kinesis.retry_policy import Action, Reaction, reaction_to
from kinesis_spout.model.errors import KinesisError
from kinesis_spout.model.handler import Failure
from kinesis_spout.plain.buffered_shard import BufferedShard
from kinesis_spout.plain.caution import Caution
from kinesis_spout.plain.retained_records import Retained, RetainedRecords
from kinesis_spout.ports import Page
from shard_state import Exhausted, Fate, Guarantee, LocalShardState, RecordState, Retry

_RETAINED_SHARE: Final = 0.75
_MIN_READ_AHEAD_BYTES: Final = 64 * 1024

RECORDS_PER_RUN: Final = 100
"""Handed out of one shard before the next one that has some is served."""
_LONGEST_SECONDS: Final = 0.01
"""After that retries may be due, and it is the turn of others."""

_ENDED_THE_PROCESS: Final = (
    "the process ended while it handled this record, or lost its shard before the outcome was stored"
)

MAX_CLAIMED: Final = 500
"""With AT_MOST_ONCE: so many records of a shard are claimed by one commit. A crash may lose as many."""


@dataclass(slots=True, kw_only=True)
class _Run:
    """The records of one shard that may be handed out without another decision. Mutable."""

    shard_id: str
    state: LocalShardState
    getter: BufferedShard | None
    """None once the shard's end was read."""
    decisions: int
    """It holds while the core has no more to decide than these."""
    until: float
    full_at_bytes: int
    """The size of all unfinished records at which no fresh one follows."""
    is_watched: bool
    """True if its records may have to be noted: see ``Caution``."""
    left: int
    """The number of records that may still follow."""
    with_retries: bool = True
    """True if retries may be due."""


class BufferedShards:
    """A consumer's ``OwnershipListener``. Mutable; call it under the consumer's lock."""

    def __init__(self, consumer: Consumer, prefetcher: Prefetcher) -> None:
        self._consumer = consumer
        self._manager = manager = consumer.manager
        self._prefetcher = prefetcher
        self._room = Room(
            lambda: int((1 - _RETAINED_SHARE) * self._max_bytes), least_share_bytes=_MIN_READ_AHEAD_BYTES
        )
        self._getters: dict[str, BufferedShard] = {}
        """The readers of the shards whose end was not read yet."""
        self._turns = manager.turns
        self._claims = manager.guarantee is Guarantee.AT_MOST_ONCE
        self._is_bounded = manager.bounds is not None
        self._rate = consumer.deliveries
        self._run: _Run | None = None
        self._age: RecordAge | None = None
        """The rule that says which records are too old to be delivered in this run; None: none are."""
        self._gave_retry = False
        """True if the last record was a retry: within a rate the next is a fresh one, if possible."""
        self._caution = Caution(consumer)
        self.retained = RetainedRecords()

    # The ownership listener

    def shards_acquired(self, shard_ids: Iterable[str]) -> None:
        config, manager, ports = self._consumer.config, self._manager, self._consumer.ports
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
        return self.retained.size_bytes >= self._full_at_bytes

    # Asked by the spout

    def next_of_run(self, now: float) -> Retained | None:
        """The next record of the present run, tracked and retained; None: there is none, or the run has ended."""
        run, self._run = self._run, None
        if run is None or not run.left or now >= run.until or run.decisions != self._manager.decisions:
            return None
        taken = self._next_of(run, now) if run.with_retries else self._fresh(run, now)
        if taken is not None:
            self._run = run
        return taken

    def end_run(self) -> None:
        self._run = None

    def first_of_run(self, now: float) -> Retained | None:
        """Decide what comes next, and return it. After a KinesisError the next call serves other shards."""
        if self.retained.given_up:
            self.retained.drop_dead_lettered(self._is_dead_lettered)
        if not self._rate.is_limited:
            return self._decided(now)
        grant = self._rate.granted(self._consumer, now, most=1)
        taken = None
        try:
            if grant.deliveries:
                taken = self._decided(now)
        finally:
            self._rate.ended(grant, int(taken is not None))
        return taken

    def fail(self, retained: Retained, failure: Failure, now: float) -> Retry | Exhausted | None:
        """Decide upon the latest delivery of a record, which failed; None if it has ended already."""
        consumer, record = self._consumer, retained.record
        decision = self._manager.fail(
            record.shard_id,
            retained.sequence,
            now,
            attempt=record.attempt,
            fate=failure.fate,
            partition_key=record.partition_key,
            delay_seconds=failure.delay_seconds,
        )
        if decision is None:
            return None
        if not (failure.put_off or failure.rejected):
            consumer.failures.add(failure.raised)
        if isinstance(decision, Exhausted):
            consumer.dead_letter(decision, record, failure.error_text, failure.raised)
            self.retained.give_up(retained)
        return decision

    def rate_wait_seconds(self, now: float) -> float:
        if not self._rate.is_limited:
            return 0.0
        due_at = self._rate.due_at(self._consumer, now)
        return inf if due_at is None else max(0.0, due_at - now)

    def is_done(self) -> bool:
        return self._consumer.sharing.all_over or self._consumer.run_is_done

    def stop(self) -> None:
        """Fetch no more, and hand out no more of a run; drop fetches that are under way."""
        self.end_run()
        for getter in self._getters.values():
            getter.close()

    # Turns

    @property
    def _max_bytes(self) -> int:
        return self._consumer.config.max_buffered_bytes // self._consumer.sharers

    @property
    def _full_at_bytes(self) -> int:
        return int(_RETAINED_SHARE * self._max_bytes)

    def _decided(self, now: float) -> Retained | None:
        """Decide whose turn it is; begin a run of that shard, and take its first record."""
        noted = self._caution.take(now)
        if self._caution.holds_back():
            return noted
        blame, self._age = self._manager.blame, None
        if not blame.is_troubled:  # otherwise nothing is given up now
            self._age = RecordAge.of(self._consumer.config, self._consumer.ports.clock.time())
        if blame.is_slowed:
            return self._taken_slowly(now)
        while (shard_id := self._turns.current(now)) is not None:
            run = self._begun(shard_id, now)
            try:
                fresh_first = self._rate.is_limited and self._gave_retry
                taken = None if run is None else self._first_of(run, now, fresh_first=fresh_first)
            except Exception:
                self._let_rest(shard_id, now)
                raise
            if taken is not None:
                self._turns.served(shard_id)
                self._run = run
                return taken
            if self._caution.holds_back():
                return None
            self._let_rest(shard_id, now)
        return None

    def _taken_slowly(self, now: float) -> Retained | None:
        """The record that is tried next while deliveries are slow, if it is time."""
        blame = self._manager.blame
        if not blame.allowance(now):
            return None
        for fresh in (True, False) if blame.fresh_first else (False, True):
            give = self._fresh if fresh else self._due_retry
            for shard_id in self._turns.round():
                self._turns.served(shard_id)
                run = self._begun(shard_id, now)
                taken = None if run is None else give(run, now)
                if taken is not None or self._caution.holds_back():
                    return taken
        return None

    def _let_rest(self, shard_id: str, now: float) -> None:
        """Let the current shard, which has nothing, rest; if only its getter can change that, let it sleep."""
        getter, state = self._getters.get(shard_id), self._manager.shard(shard_id)
        waits_for_getter = getter is not None and getter.waits and not self._is_bounded
        if waits_for_getter and state is not None and not state.retries.line_of:
            self._turns.sleep()
        else:
            self._turns.rest(now)

    # The records of a run

    def _begun(self, shard_id: str, now: float) -> _Run | None:
        state = self._manager.staying(shard_id)
        if state is None:
            return None
        is_watched = self._caution.watches(shard_id)
        looks_at_each = is_watched or self._rate.is_limited or self._manager.blame.is_slowed
        return _Run(
            shard_id=shard_id,
            state=state,
            getter=self._getters.get(shard_id),
            decisions=self._manager.decisions,
            until=now + _LONGEST_SECONDS,
            full_at_bytes=self._full_at_bytes,
            is_watched=is_watched,
            left=1 if looks_at_each else RECORDS_PER_RUN,
        )

    def _first_of(self, run: _Run, now: float, *, fresh_first: bool) -> Retained | None:
        fresh = self._fresh(run, now) if fresh_first else None
        self._gave_retry = False
        return fresh or self._next_of(run, now)

    def _next_of(self, run: _Run, now: float) -> Retained | None:
        if run.with_retries:
            retry = self._due_retry(run, now)
            run.with_retries = self._gave_retry = retry is not None
            if retry is not None:
                return retry
        return self._fresh(run, now)

    def _due_retry(self, run: _Run, now: float) -> Retained | None:
        while (redelivery := self._manager.take_retry(run.shard_id, now)) is not None:
            retained = self.retained.at(run.shard_id, redelivery.sequence)
            assert retained is not None, "every record that waits is retained"
            # A copy: the receiver of an earlier delivery can still hold that one.
            retained.record = copy(retained.record)
            retained.record.attempt = redelivery.attempt
            if self._age is not None and self._expires(retained, self._age, now):
                continue
            self._consumer.counters.retried += redelivery.attempt > 1
            run.left -= 1
            return retained
        return None

    def _fresh(self, run: _Run, now: float) -> Retained | None:
        manager, shard_id, state, getter = self._manager, run.shard_id, run.state, run.getter
        while getter is not None and state.may_read and self.retained.size_bytes < run.full_at_bytes:
            if self._claims and not self._is_claimed(state, getter):
                return None
            try:
                polled = getter.poll()
            except KinesisError as error:
                if reaction_to(error).action is not Action.END_SHARD:
                    raise
                self._drop_getter(shard_id)
                self._consumer.shard_trimmed(shard_id)
                return None
            if polled is None:
                self._nothing_at_hand(shard_id, getter)
                return None
            record, size_bytes = polled
            sequence = record.sequence
            if self._is_bounded and manager.ends_before(shard_id, sequence, record.arrival_timestamp):
                self._drop_getter(shard_id)  # with what it has read ahead, which is for a later run
                return None
            emission = manager.emit(shard_id, sequence, record.partition_key, now)
            if not (emission.deliver or emission.held):
                continue
            record.attempt = emission.attempt
            retained = Retained(record, record.message_id, sequence, size_bytes, state.epoch)
            self.retained.add(retained)
            if emission.was_last:
                self._give_up(retained, Fate.ENDED_PROCESS, _ENDED_THE_PROCESS, now)
            elif emission.deliver and (self._age is None or not self._expires(retained, self._age, now)):
                run.left -= 1
                return None if run.is_watched and self._caution.note(retained) else retained
        return None

    def _nothing_at_hand(self, shard_id: str, getter: BufferedShard) -> None:
        """End a shard without records at hand if it is at its end, or at its bound."""
        tip_seen_at = getter.tip_seen_at
        if getter.at_end:
            self._drop_getter(shard_id)
            self._manager.end_read(shard_id)
        elif tip_seen_at is not None and self._manager.ends_at_tip(shard_id, tip_seen_at):
            self._drop_getter(shard_id)

    def _expires(self, retained: Retained, age: RecordAge, now: float) -> bool:
        """True if a record that was handed out is too old to be delivered; if so, settles it."""
        record, consumer = retained.record, self._consumer
        if not age.expires(record.arrival_timestamp):
            return False
        consumer.counters.expired += 1
        if age.skips:
            consumer.counters.skipped += self._manager.skip(record.shard_id, retained.sequence, now)
            self.retained.finished(retained)
        else:
            self._give_up(retained, Fate.EXPIRED, age.error(record), now)
        return True

    def _give_up(self, retained: Retained, fate: Fate, error: str, now: float) -> None:
        """Dead-letter a record that is to be delivered no more."""
        record = retained.record
        decision = self._manager.fail(
            record.shard_id,
            retained.sequence,
            now,
            attempt=record.attempt,
            fate=fate,
            partition_key=record.partition_key,
        )
        assert isinstance(decision, Exhausted), "it was handed out just now"
        self._consumer.dead_letter(decision, record, error)
        self.retained.give_up(retained)

    def _is_claimed(self, state: LocalShardState, getter: BufferedShard) -> bool:
        """True if the next record may be handed out; if not, claims it and some more at the next commit."""
        following = getter.ahead(1)
        if following is None or state.may_hand_out(following[0]):
            return True  # the poll says why there is none
        ahead = getter.ahead(MAX_CLAIMED)
        if ahead is not None and state.claim(*ahead):
            self._consumer.commit_soon()
        return False

    # Reports of the readers

    def _reading_failed(self, shard_id: str, epoch: int, error: Exception) -> Reaction:
        if self._is_read(shard_id, epoch):
            return self._consumer.reading_failed(shard_id, error)
        return reaction_to(error)  # the shard was lost meanwhile: reading ends

    def _reading_worked(self, shard_id: str, epoch: int) -> None:
        if self._is_read(shard_id, epoch):
            self._consumer.read_errors.worked(shard_id)

    def _took(self, shard_id: str, epoch: int, page: Page) -> None:
        if self._is_read(shard_id, epoch):
            self._consumer.counters.bytes_read += page.size_bytes
            self._consumer.sharing.read_bytes[shard_id] += page.size_bytes
            self._consumer.page_read(shard_id, page)

    def _is_read(self, shard_id: str, epoch: int) -> bool:
        state = self._manager.shard(shard_id)
        return shard_id in self._getters and state is not None and state.epoch == epoch

    def _drop_getter(self, shard_id: str) -> None:
        getter = self._getters.pop(shard_id, None)
        if getter is not None:
            getter.close()
        self._consumer.read_errors.drop([shard_id])

    def _is_dead_lettered(self, retained: Retained) -> bool:
        state = self._manager.shard(retained.record.shard_id)
        return state is None or state.tracker.state(retained.sequence) is not RecordState.EXHAUSTED
