"""The one object a shell holds: events go in, decisions come out.

A shell (the plain-Python spout, the micro-batch engine) does all the I/O and calls this in between:

    listed(...)       what ListShards and the store say      -> to_acquire()   which shards to try to own
    acquired(...)     an ownership, with its checkpoint
    lost(...)         an ownership that ended
    then either, record by record:   turns, take_retry, emit, ack, fail
    or, slice by slice:              plan, settle, died
    dead_lettered(.)  a dead letter is durable
    leave(...)        shards are to be another's              -> has_left(.)    once nothing of one is out
    to_commit()       what to store now                      -> committed(...)
    blame             whether the handler is at fault, and deliveries are slow
    pause_by_operator(...)  what an operator has paused

The obligations of the shell: call from one thread; pass a ``now`` that never goes back; write a dead letter for
every ``Exhausted`` it is given, and report it; give a record to the user only on ``Emission.deliver`` or from
``take_retry``, and with AT_MOST_ONCE report a fresh one to ``emit`` only if its shard ``may_hand_out`` it; report
shards as listed again after an end was read, so that the children are found; make one commit at a time, the next
``to_commit`` only when the outcome of the last is known and was reported: of two that are under way the older
could be stored last, and move the checkpoint back (invariant 1); report a ``fail`` only of a delivery that was
made under the present epoch of its shard (invariant 17).

The limit on deliveries (invariant 4) counts deliveries whose end was reported, by ``fail``, ``settle`` or
``died``, and committed. One that is under way when the whole process dies was never reported. A first
delivery is not stored, so the record comes again as for the first time, unless the shell had it *noted*
(``LocalShardState.note``) and stored before; the number of a later one is stored. If it is above the limit,
the last delivery had no outcome: ``Emission.was_last`` says so, and a shell whose handlers may end it gives
the record up.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from shard_state.blame import Blame, Counts
from shard_state.checkpoint.checkpoint import Checkpoint
from shard_state.lineage import KnownShards, Shard, ShardPhase
from shard_state.local_shard.guarantee import Guarantee
from shard_state.local_shard.local_shard_state import Capacity, Emission, LocalShardState
from shard_state.local_shard.shard_slices import ShardSlices, SliceLimits
from shard_state.owned_shards import OperatorPause, OwnedShards, ShardStatus
from shard_state.retries.ordered_retries import Order
from shard_state.retries.retry_policy import Retry, RetryPolicy
from shard_state.run_bounds import RunBounds
from shard_state.sequence_number import SequenceNumber
from shard_state.slices.slices import Exhausted, Fate, Redelivery, SliceOutcome, SlicePlan


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingCommit:
    """A checkpoint to be stored, and what identifies it when it is."""

    shard_id: str
    checkpoint: Checkpoint
    revision: int


class StateManager:
    """All shards of one stream, as one consumer sees them. Mutable; not thread-safe.

    Args:
        app_instance: which start of which application this is; stored with each checkpoint.
        random: numbers from [0, 1), for the delays of retries.
        retry: the rule for what fails.
        order: what waits behind a failure.
        capacity: how much may be open, in each shard.
        limits: how large slices may be.
        message_timeout_seconds: of a delivery whose outcome comes by itself; None: it takes what it takes.
        max_spared_seconds: for how long a record is spared while the handler is at fault; 0: never.
        guarantee: when a record counts as finished.
        bounds: up to where this run reads; None: on and on.
    """

    def __init__(
        self,
        *,
        app_instance: str,
        random: Callable[[], float],
        retry: RetryPolicy | None = None,
        order: Order = Order.UNORDERED,
        capacity: Capacity | None = None,
        limits: SliceLimits | None = None,
        message_timeout_seconds: float | None = None,
        max_spared_seconds: float = 0.0,
        guarantee: Guarantee = Guarantee.AT_LEAST_ONCE,
        bounds: RunBounds | None = None,
    ) -> None:
        self._app_instance = app_instance
        self._random = random
        self._retry = retry or RetryPolicy()
        self.order = order
        self.guarantee = guarantee
        self.bounds = bounds
        self._capacity = capacity or Capacity()
        self._limits = limits or SliceLimits()
        self._timeout_seconds = message_timeout_seconds
        self.blame = Blame(
            max_spared_seconds,
            retry_seconds=self._retry.all_seconds,
            limit=self._retry.limit,
            by_key=order is not Order.UNORDERED,
            by_shard=order is Order.SHARD,
        )
        """To look at; what deliveries come to is reported here."""
        self.expires_at = math.inf if message_timeout_seconds is None else -math.inf
        """No delivery times out before: ``expired`` names none. A plain attribute, too."""
        self._shards = OwnedShards(self.blame)
        self._owned = self._shards.slices
        """The same mapping: it is looked up for every record."""
        self._known = KnownShards(self._owned)
        self.turns = self._shards.turns
        """The turns of the owned shards (invariant 15). ``fail`` wakes a shard; so does the shell."""
        self.decisions = 0
        """Grows when the shell has to decide anew what it may hand out: a shard came or went, its records are held
        back, or one of them failed. A plain attribute: it is looked at for each record."""

    # The shards

    def listed(self, shards: Iterable[Shard], stored: Mapping[str, Checkpoint]) -> None:
        """Take in what the stream lists and what the store holds. Both may lag behind the truth.

        Raises:
            InvalidLineage: a shard is its own ancestor.
        """
        self._known.listed(shards, stored)

    def to_acquire(self) -> list[Shard]:
        """Name the shards to try to own now: not owned, their parents over; parents before children."""
        return self._known.to_acquire()

    def fresh_checkpoint(self, shard_id: str) -> Checkpoint:
        """Give the checkpoint of a known shard that was found after the application began.

        Always at TRIM_HORIZON, whatever the configured start: at any other position, what was written
        before the shard was noticed would be lost (invariant 7).
        """
        return self._known.fresh_checkpoint(shard_id)

    def acquired(self, shard_id: str, checkpoint: Checkpoint) -> None:
        """Take in that this consumer owns a shard, from ``checkpoint`` on, under its epoch."""
        self.lost([shard_id])  # under an older epoch
        self.decisions += 1
        if checkpoint.is_shard_end:
            self._known.found_over(shard_id)
            return
        state = LocalShardState(
            self._known.acquired(shard_id),
            checkpoint,
            retry=self._retry,
            random=self._random,
            order=self.order,
            capacity=self._capacity,
            blame=self.blame,
            message_timeout_seconds=self._timeout_seconds,
            guarantee=self.guarantee,
            bound=None if self.bounds is None else self.bounds.of_shard(shard_id),
        )
        self._shards.add(shard_id, ShardSlices(state, self._limits))
        if checkpoint.experience is not None:
            self.blame.inherit(checkpoint.experience)

    def lost(self, shard_ids: Iterable[str]) -> None:
        """Take in that ownerships ended. Their records in flight are the next owner's."""
        shard_ids = set(shard_ids)
        for shard_id in shard_ids & self._owned.keys():
            self._shards.remove(shard_id)
            self._known.lost(shard_id)
            self.decisions += 1

    def leave(self, shard_ids: Collection[str]) -> None:
        """Hand out nothing more of these owned shards, and of all others again: another is to own them."""
        before, self._shards.leaving = self._shards.leaving, frozenset(shard_ids)
        self.decisions += self._shards.leaving != before

    def pause_by_operator(self, pause: OperatorPause) -> bool:
        """Hand out nothing of what an operator has paused, and of all else again; False if that is as before."""
        changed, self._shards.operator_pause = pause != self._shards.operator_pause, pause
        self.decisions += changed
        return changed

    @property
    def paused_shards(self) -> frozenset[str]:
        """The owned shards that an operator has paused, and of which this run has something left to do."""
        pause = self._shards.operator_pause
        return frozenset(
            shard_id
            for shard_id, slices in self._owned.items()
            if pause.covers(shard_id) and not slices.is_done
        )

    def has_left(self, shard_id: str) -> bool:
        """Tell whether nothing of a shard is in flight, or waits for its dead letter to be durable."""
        slices = self._owned.get(shard_id)
        if slices is None:
            return True
        tracker = slices.state.tracker
        return slices.is_idle and not tracker.in_flight and not tracker.exhausted

    @property
    def owned(self) -> frozenset[str]:
        """The shards this consumer owns, those that only wait for their last commit included."""
        return frozenset(self._owned)

    def shard(self, shard_id: str) -> LocalShardState | None:
        """Give the state of an owned shard."""
        slices = self._owned.get(shard_id)
        return None if slices is None else slices.state

    # One record at a time

    def staying(self, shard_id: str) -> LocalShardState | None:
        """Give the state of an owned shard whose records are not held back; None otherwise."""
        slices = self._shards.staying(shard_id)
        return None if slices is None else slices.state

    def end_claims(self, shard_ids: Iterable[str]) -> None:
        """Take back what was claimed of owned shards and not handed out, before their last commit."""
        for shard_id in self._owned.keys() & set(shard_ids):
            self._owned[shard_id].state.end_claims()

    def emit(
        self, shard_id: str, sequence: SequenceNumber, partition_key: str | None, now: float
    ) -> Emission:
        """Decide upon a record just read of an owned shard, and track it."""
        emission = self._owned[shard_id].state.emit(sequence, partition_key, now)
        if self.blame.is_slowed and emission.deliver:
            self.blame.tried(now)
        return emission

    def take_retry(self, shard_id: str, now: float) -> Redelivery | None:
        """Hand out the record of a shard whose retry is due first, if any is and may be tried."""
        slices = self._shards.staying(shard_id)
        if slices is None or (self.blame.is_slowed and not self.blame.allowance(now)):
            return None
        retry = slices.state.take_retry(now)
        if retry is not None:
            self.blame.tried(now)
        return retry

    def ack(self, shard_id: str, sequence: SequenceNumber, now: float) -> bool:
        """Finish a record. False if that changes nothing: late, duplicate, unknown, or not ours any more.

        The ack of an earlier delivery finishes the record too.
        """
        slices = self._owned.get(shard_id)
        if slices is None:
            return False
        attempt = slices.state.ack(sequence, now)
        if attempt is None:
            return False
        self._handled(attempt, now)
        return True

    def fail(
        self,
        shard_id: str,
        sequence: SequenceNumber,
        now: float,
        *,
        attempt: int,
        fate: Fate = Fate.FAILED,
        partition_key: str | None = None,
        delay_seconds: float | None = None,
    ) -> Retry | Exhausted | None:
        """Decide upon a record whose delivery number ``attempt`` came to ``fate``, under the present ownership.

        Returns:
            When it comes again, or that it is exhausted. None if nothing changes: that delivery has ended.
        """
        slices = self._owned.get(shard_id)
        if slices is None or not slices.state.is_out(sequence, attempt):
            return None
        self.decisions += 1
        if fate is Fate.REJECTED:
            self._handled(attempt, now)
        elif fate not in (Fate.PUT_OFF, Fate.ENDED_PROCESS, Fate.EXPIRED):
            self._failed(attempt, now)
        decision = slices.state.fail(
            sequence,
            now,
            attempt=attempt,
            fate=fate,
            partition_key=partition_key,
            delay_seconds=delay_seconds,
        )
        self.turns.wake(shard_id)
        return decision

    def skip(self, shard_id: str, sequence: SequenceNumber, now: float) -> bool:
        """Finish a record that was handed out and is too old to be delivered; nobody tried it."""
        slices = self._owned.get(shard_id)
        return slices is not None and slices.state.ack(sequence, now) is not None

    def expired(self, now: float) -> list[tuple[str, SequenceNumber]]:
        """Name the records, and their shards, whose message time-out has passed. The shell fails them."""
        if self._timeout_seconds is None or now < self.expires_at:
            return []
        late: list[tuple[str, SequenceNumber]] = []
        self.expires_at = now + self._timeout_seconds
        for shard_id, slices in self._owned.items():
            tracker = slices.state.tracker
            late.extend((shard_id, sequence) for sequence in tracker.expired(now))
            if tracker.next_deadline is not None:
                self.expires_at = min(self.expires_at, tracker.next_deadline)
        return late

    def reached(
        self, shard_id: str, end: SequenceNumber | None, since: float | None, losses: int = 0
    ) -> None:
        """Note what a page of a shard says of what follows it.

        Args:
            shard_id: the shard; nothing happens if it is not owned.
            end: its last record; None if it is empty.
            since: nothing behind it arrived earlier, in seconds since the epoch; None: nobody knows.
            losses: how often records can have been trimmed unread before it.
        """
        slices = self._owned.get(shard_id)
        if slices is not None:
            slices.state.reached(end, since, losses)

    def store_since(self, after_seconds: float) -> None:
        """Have ``LocalShardState.since`` stored where it is later by so much than what is stored."""
        for slices in self._owned.values():
            slices.state.store_since(after_seconds)

    def end_read(self, shard_id: str) -> None:
        """Note that the end of a closed shard was read, or that retention trimmed the shard away.

        Nothing follows what was handed out so far: records that were fetched and are still in the shell's
        hands must be handed out first.

        Raises:
            OutOfOrder: a fresh slice of the shard is out.
        """
        slices = self._owned.get(shard_id)
        if slices is not None:
            slices.end_read()

    # Up to a bound

    def ends_before(self, shard_id: str, sequence: SequenceNumber, arrived_at: float | None) -> bool:
        """Tell whether the record that comes next of an owned shard ends it for this run; then it has ended.

        Args:
            shard_id: the shard.
            sequence: where the record is.
            arrived_at: its arrival, in seconds since the epoch; None if it has none.
        """
        slices = self._owned[shard_id]
        bound = slices.state.bound
        if bound is None or not bound.ends_before(sequence, arrived_at):
            return False
        slices.reach_bound()
        return True

    def ends_at_tip(self, shard_id: str, begun_at: float) -> bool:
        """Tell whether the tip of an owned shard ends it for this run; then it has ended.

        Args:
            shard_id: the shard. Everything that was read of it is handed out.
            begun_at: when the read began that found nothing at the tip, in seconds since the epoch.
        """
        slices = self._owned[shard_id]
        bound = slices.state.bound
        if bound is None or begun_at < bound.tip_counts_from:
            return False
        slices.reach_bound()
        return True

    def reach_bound(self, shard_id: str) -> None:
        """Note that the record behind those handed out ends an owned shard for this run."""
        slices = self._owned.get(shard_id)
        if slices is not None:
            slices.reach_bound()

    @property
    def is_done(self) -> bool:
        """True if this run has nothing left to do with the owned shards, and all it has done is stored."""
        return all(slices.is_done for slices in self._owned.values())

    # Slice by slice

    def wants_page(self, shard_id: str) -> bool:
        """Tell whether the driver should fetch a shard's next page, if it holds none of the shard's."""
        slices = self._shards.staying(shard_id)
        return slices is not None and slices.wants_page and not self._shards.keeps_fresh_back

    def is_for_executors(self, shard_id: str) -> bool:
        """Tell whether executors read a shard, and not the driver."""
        slices = self._shards.staying(shard_id)
        return slices is not None and slices.is_for_executors

    def is_suspect(self, shard_id: str) -> bool:
        """Tell whether the driver has to carry a shard's records, as one of the next may kill its worker."""
        slices = self._owned.get(shard_id)
        return slices is not None and slices.is_suspect

    def may_carry(self, shard_id: str) -> bool:
        """Tell whether records of a shard that the driver holds are on their way, or may be planned now."""
        slices = self._owned.get(shard_id)
        if slices is None:
            return False
        return slices.fresh_is_out or (
            slices.state.may_read and not self._shards.operator_pause.covers(shard_id)
        )

    def page_fetched(self, shard_id: str, *, full: bool) -> None:
        """Note what the driver's page says of the backlog: a full page says that executors should read on."""
        slices = self._owned.get(shard_id)
        if slices is not None:
            slices.backlog = full

    def plan(
        self,
        now: float,
        carried: Mapping[str, int],
        resting: Collection[str] = (),
        barred: Collection[str] = (),
        most: int | None = None,
    ) -> list[SlicePlan]:
        """Plan every slice that may go out now: of each shard in turn the due retries, then a fresh slice.

        Args:
            now: the time.
            carried: how many fetched records the driver holds, by shard.
            resting: shards that an executor must not read yet, for their read limits.
            barred: shards of which nothing may go out yet: a job of theirs died a moment ago.
            most: so many deliveries may be planned; None: any number. The shards that have something to plan have
                equal parts, and one part is left over, so that one whose slices take long never has all.
        """
        return self._shards.plan(now, carried, resting, barred, most)

    def settle(
        self, plan: SlicePlan, outcome: SliceOutcome, now: float, *, delivered: int | None = None
    ) -> list[Exhausted]:
        """Take in the outcome of a slice, of which so many records reached the handler (None: all not held).

        Its open records are in flight from now on: each is acked or failed by itself, or times out. A slice
        of an ownership that ended, or one that settled or died before, changes nothing.
        """
        slices = self._shards.of_epoch(plan)
        if slices is None or not slices.is_out(plan):
            return []
        self._note_slice(plan, outcome, delivered, now)
        return slices.settle(plan, outcome, now)

    def died(self, plan: SlicePlan, held: SliceOutcome | None, now: float) -> list[Exhausted]:
        """Take in that the job of a slice died, or outlived the message time-out, nobody knows at which record.

        Args:
            plan: the slice.
            held: its records, as far as the driver knows them, all of them held: None for a READ slice. If the
                slice is a suspect one, it moves the shard forward by them: they wait, to be halved.
            now: the time.
        """
        slices = self._shards.of_epoch(plan)
        if slices is None or not slices.is_out(plan):
            return []
        attempt = slices.blames(plan, held)
        if attempt is not None:
            self._failed(attempt, now)
        return slices.died(plan, held, now)

    def withdraw(self, plan: SlicePlan) -> None:
        """Take back a slice whose job could not run, through no fault of its records; it is planned again."""
        slices = self._shards.of_epoch(plan)
        if slices is not None and slices.is_out(plan):
            slices.withdraw(plan)

    def isolates(self, plan: SlicePlan, held: SliceOutcome | None) -> bool:
        """Tell whether the death of a slice blames its one record; the arguments are those of ``died``."""
        slices = self._shards.of_epoch(plan)
        return slices is not None and slices.blames(plan, held) is not None

    def suspect(self, plan: SlicePlan, count: int) -> None:
        """Note that the worker of a slice, which is settled, died with the next ``count`` records in its hands."""
        slices = self._shards.of_epoch(plan)
        if slices is not None:
            slices.suspect(plan, count)

    # Finishing and storing

    def dead_lettered(self, shard_id: str, sequence: SequenceNumber, now: float) -> bool:
        """Finish an exhausted record whose dead letter is durable; False if nothing changes."""
        slices = self._owned.get(shard_id)
        return slices is not None and slices.state.dead_lettered(sequence, now)

    def dirty(self) -> list[str]:
        """Name the shards whose progress is not stored as it is now."""
        return [shard_id for shard_id, slices in self._owned.items() if slices.state.is_dirty]

    def to_commit(self, shard_ids: Iterable[str] | None = None) -> list[PendingCommit]:
        """Copy the progress of every dirty shard, or of the dirty ones among ``shard_ids``."""
        experience = self.blame.experience()
        named = self._owned.keys() if shard_ids is None else shard_ids
        owned = ((shard_id, self._owned.get(shard_id)) for shard_id in named)
        return [
            PendingCommit(
                shard_id=shard_id,
                checkpoint=slices.state.checkpoint(self._app_instance, experience),
                revision=slices.state.revision,
            )
            for shard_id, slices in owned
            if slices is not None and slices.state.is_dirty
        ]

    def committed(self, pending: Sequence[PendingCommit]) -> list[str]:
        """Take in that copies are stored. Returns the shards that are over now: release them."""
        over: list[str] = []
        for commit in pending:
            slices = self._owned.get(commit.shard_id)
            if slices is None or slices.state.epoch != commit.checkpoint.epoch:
                continue
            slices.state.mark_committed(commit.checkpoint, commit.revision)
            if slices.state.phase is ShardPhase.OVER:
                over.append(commit.shard_id)
                self._shards.remove(commit.shard_id)
                self._known.found_over(commit.shard_id)
        return over

    # Looking in

    def next_due(self) -> float | None:
        """Tell when the next retry is due, over all shards that have no retries out, and may be tried."""
        soonest = self._shards.next_due()
        if not self.blame.is_slowed:
            return soonest
        at = self.blame.next_try_at
        return at if soonest is None else max(soonest, at)

    @property
    def unresolved(self) -> int:
        """The number of handed-out records that are not finished, over all shards."""
        return sum(slices.state.tracker.unresolved for slices in self._owned.values())

    def unresolved_of(self, shard_id: str) -> int:
        """Count the handed-out records of a shard that are not finished; 0 if it is not owned."""
        slices = self._owned.get(shard_id)
        return 0 if slices is None else slices.state.tracker.unresolved

    @property
    def idle(self) -> bool:
        """True if no slice is out."""
        return all(slices.is_idle for slices in self._owned.values())

    def status(self) -> list[ShardStatus]:
        """Describe every known shard, parents before children."""
        return [
            self._shards.status(shard_id)
            or ShardStatus(
                shard_id=shard_id,
                phase=phase,
                paused_by_operator=self._shards.operator_pause.covers(shard_id),
            )
            for shard_id, phase in self._known.phases().items()
        ]

    # Inside

    def _handled(self, attempt: int, now: float) -> None:
        if attempt == 1:
            self.blame.passed_first(now)
        else:
            second = attempt == 2  # noqa: PLR2004 - the second try
            self.blame.note(now, Counts(passed_again=second), passed_late=not second)

    def _failed(self, attempt: int, now: float) -> None:
        counts = Counts(failed=attempt == 1, failed_again=attempt == 2)  # noqa: PLR2004 - the second try
        self.blame.note(now, counts, failed_late=not any(counts))

    def _note_slice(self, plan: SlicePlan, outcome: SliceOutcome, delivered: int | None, now: float) -> None:
        """Tell the blame the outcomes of all records of a slice, before any is decided upon."""
        held = sum(not failure.was_delivered for failure in outcome.failures)
        handled = (outcome.count if plan.is_fresh else len(plan.retries)) - held
        reached = handled if delivered is None else min(handled, delivered)
        if not reached:
            self.blame.tried_nothing()
            return
        unfinished = outcome.unfinished
        passed = Counter(
            attempt for sequence, attempt in _delivered_before(plan, outcome) if sequence not in unfinished
        )
        failed = Counter[int]()
        nothing_known = len(outcome.open_records)
        for failure in outcome.failures:
            if failure.fate is Fate.PUT_OFF:
                nothing_known += 1
            elif failure.was_delivered:
                (passed if failure.fate is Fate.REJECTED else failed)[failure.attempt] += 1
        if plan.is_fresh:
            others = passed.total() - passed[1] + failed.total() + nothing_known
            passed[1] = max(0, reached - others)
        self.blame.note(
            now,
            Counts(passed[1], failed[1], passed[2], failed[2]),
            passed_late=passed.total() - passed[1] - passed[2],
            failed_late=failed.total() - failed[1] - failed[2],
        )


def _delivered_before(plan: SlicePlan, outcome: SliceOutcome) -> list[Redelivery]:
    """Name the records of a slice that failed before, with the number of this delivery."""
    if not plan.is_fresh or outcome.last is None:
        return list(plan.retries)
    last = outcome.last
    return [Redelivery(sequence, count + 1) for sequence, count in plan.attempts if sequence <= last]
