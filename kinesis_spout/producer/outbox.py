"""What a producer does next, and what follows from how it went. No I/O, no threads, no clock of its own.

Its shell asks for `next_work`, does it, and says how it ended, from as many threads as it has, one at a time: what
is asked and said is protected by one lock. Works that are under way know nothing of each other.

A record comes in by the inbox, waits with ``kinesis.write``'s records, is in a call, perhaps in several one after
the other, and ends: sent, failed or dropped. What failed for its time-out or for what it is goes to the dead
letters if there are some, and only then ends.

**Time.** A record that has not ended ``delivery_timeout_seconds`` after it was taken in fails, wherever it
waits. One that is in a call just then fails when that call does.

**The spool.** A record is confirmed when it is sent, dropped, durable in the dead letters, or refused for what
it is: to send it again would change nothing. One that failed for lack of time or of permission stays in the
spool, and is sent again when a producer opens it the next time. So it is tried once for each start, and never
in a loop.
"""

from collections.abc import Iterable, Sequence
from math import inf
from typing import TYPE_CHECKING, Final, cast

from kinesis_spout.kinesis.errors import ResourceNotFound
from kinesis_spout.kinesis.patience import Action, Jitter, Work, backoff_seconds, reaction_to
from kinesis_spout.kinesis.write.aggregate import Aggregate
from kinesis_spout.kinesis.write.hash_key_ranges import HashKeyRanges
from kinesis_spout.kinesis.write.put_calls import no_such_stream
from kinesis_spout.kinesis.write.put_records import Puttable
from kinesis_spout.kinesis.write.record_putter import is_about_its_size
from kinesis_spout.kinesis.write.waiting_records import refusal_error
from kinesis_spout.model.clock import Clock
from kinesis_spout.model.errors import (
    KinesisError,
    KinesisSpoutError,
    ProducerClosed,
    RecordDropped,
    Unavailable,
)
from kinesis_spout.producer.endings import Endings
from kinesis_spout.producer.inbox import Inbox
from kinesis_spout.producer.shares import Shares
from kinesis_spout.producer.taken_records import TakenRecords
from kinesis_spout.producer.ticket import GIVEN_UP, IN_CALL, WAITS, Ticket
from kinesis_spout.producer.works import (
    Burial,
    Call,
    Ended,
    Listing,
    OutboxSettings,
    Recovery,
    WorkToDo,
    tickets_of,
)

if TYPE_CHECKING:
    from mypy_boto3_kinesis.type_defs import PutRecordsResultEntryTypeDef as Result

    from kinesis_spout.kinesis.write.aggregates import AggregatedRecords
    from kinesis_spout.kinesis.write.waiting_records import WaitingRecords

FIRST_BACKOFF_SECONDS: Final = 0.2
BACKOFF_CAP_SECONDS: Final = 5.0
_FEW_GONE: Final = 1_000


class Outbox:
    """Mutable; for one thread at a time.

    Args:
        records: what fills the calls.
        inbox: where records come in, and are counted.
        settings: what it decides by.
        clock: what time it is.
        jitter: of the waits before a call is made again.
    """

    def __init__(
        self,
        records: "WaitingRecords | AggregatedRecords",
        inbox: Inbox,
        settings: OutboxSettings,
        *,
        clock: Clock,
        jitter: Jitter,
    ) -> None:
        self._records = records
        self._inbox = inbox
        self._settings = settings
        self._clock = clock
        self._jitter = jitter
        self._taken = TakenRecords(drops=settings.drops_oldest)
        self._endings = Endings(inbox)
        self._gone = 0
        """How many that have ended are still among those that wait, roughly."""
        self._rows = 0
        self._to_repeat: list[Call] = []
        self._burials: list[Burial] = []
        self._unsettled: list[tuple[Call, Sequence[Result]]] = []
        self._open_calls = 0
        self._is_listing = False
        self._is_recovering = settings.recovers
        self._is_fetching = False
        self._lingers_until = inf
        """When what is held is put, full or not; infinite if nothing new is held."""
        self._hurries = False
        """Whether what can be taken is put at once: it has lingered, or was in a call before."""
        self._flushes = 0
        self._has_shares = False
        self._was_answered = False
        self._last_failure: KinesisSpoutError | None = None

    # What the shell asks.

    def next_work(self) -> WorkToDo | None:
        """Take in what came, and give what to do now; None: nothing before ``due_at``, or until more comes."""
        now = self._clock.monotonic()
        if self._must_list and not self._is_listing:
            self._is_listing = True
            return Listing()
        if self._may_fetch and (self._inbox.has_room or not self._taken):
            # What was put meanwhile may fill the buffer, and goes behind: without this it would wait for ever.
            self._is_fetching = True
            return Recovery()
        self._take_in(now)
        self._expire(now)
        for burial in self._burials:
            if burial.repeat_at <= now and not burial.is_under_way:
                burial.is_under_way = True
                return burial
        call = self._next_call(now)
        self._share()
        return call

    @property
    def due_at(self) -> float:
        """When there may be something to do although nothing comes, as monotonic time."""
        due = min([each.repeat_at for each in self._to_repeat], default=inf)
        due = min([due, *(each.repeat_at for each in self._burials if not each.is_under_way)])
        due = min(due, self._taken.next_expiry)
        if self._open_calls >= self._settings.max_concurrent_calls:
            return due
        if (self._hurries or self._flushes) and self._records.ready_at == -inf:
            return -inf
        return min(due, self._lingers_until, self._records.paced_at)

    @property
    def wakes_at(self) -> tuple[float, float]:
        """When somebody should look again, in records and bytes that have come."""
        if self._is_recovering or self._open_calls >= self._settings.max_concurrent_calls:
            return inf, inf
        if self._lingers_until == inf or self._flushes:
            return 1, inf
        return self._settings.wake_records, self._settings.wake_bytes

    def ended(self) -> Ended:
        """Give what ended since it was asked the last time."""
        return self._endings.take()

    # What the shell says.

    def listed(self, ranges: HashKeyRanges) -> None:
        """Learn which shards there are."""
        self._is_listing = False
        self._records.go_by(ranges)
        unsettled, self._unsettled = self._unsettled, []
        for call, results in unsettled:
            self._settle(call, results)

    def answered(self, call: Call, results: "Sequence[Result]") -> None:
        """Learn how Kinesis answered for the records of a call."""
        self._was_answered = True
        if self._unsettled or self._records.must_list(results):
            self._unsettled.append((call, results))
        else:
            self._settle(call, results)

    def failed(self, call: Call, error: KinesisSpoutError) -> None:
        """Learn that a call got no answer, or an error for an answer."""
        now = self._clock.monotonic()
        # Who never was answered has a wrong set-up; who was may be again.
        reaction = reaction_to(error, Work.CONSUME if self._was_answered else Work.CALL)
        self._last_failure = error
        for each in call.batch:
            for ticket in tickets_of(each):
                ticket.tries += 1
        self._inbox.retried += sum(len(each.user_records) for each in call.batch)
        if reaction.action is not Action.RETRY:
            self._give_up_call(call, error)
            return
        self._expire(now)
        self._expire_in_call(call)
        if not call.batch:
            self._open_calls -= 1
            return
        call.failures += 1
        call.repeat_at = now + max(reaction.wait_seconds, self._backoff_seconds(call.failures))
        # A last time when the time of some is over.
        call.repeat_at = min(call.repeat_at, self._taken.next_expiry)
        self._to_repeat.append(call)

    def buried(self, burial: Burial) -> None:
        """Learn that records are durable in the dead letters."""
        self._burials.remove(burial)
        self._end_all(burial.tickets, burial.error, is_over=True, dead_lettered=True)

    def not_buried(self, burial: Burial, error: Exception) -> None:
        """Learn that records could not be made dead letters now. For as long as a delivery, it is tried again."""
        now = self._clock.monotonic()
        if burial.failures == 0:
            burial.give_up_at = now + self._settings.delivery_timeout_seconds
        burial.failures += 1
        burial.repeat_at = now + self._backoff_seconds(burial.failures)
        burial.is_under_way = False
        if burial.repeat_at < burial.give_up_at:
            return
        self._burials.remove(burial)
        failure = type(burial.error)(f"{burial.error}; nor did the dead letters take it: {error}")
        failure.__cause__ = error
        self._end_all(burial.tickets, failure, is_over=False)

    def recovered(self, tickets: list[Ticket]) -> None:
        """Learn what an earlier producer left; none when that is all."""
        self._is_fetching = False
        if not tickets:
            self._is_recovering = False
            return
        self._inbox.recovered(tickets)
        self._hold(tickets, self._clock.monotonic())

    # What the producer wants.

    def begin_flush(self) -> None:
        """Let nothing linger, until ``end_flush``."""
        self._flushes += 1

    def end_flush(self) -> None:
        """Let records linger again."""
        self._flushes -= 1

    def drop_oldest(self, size_bytes: int) -> bool:
        """Make room for a record by dropping the oldest; False: what is not in calls is not enough."""
        self._take_in(self._clock.monotonic())
        records, more_bytes = self._inbox.missing(size_bytes)
        dropped = self._taken.take_oldest(records, more_bytes)
        if not dropped:
            return records <= 0 and more_bytes <= 0
        error = RecordDropped(
            "the record was dropped, the oldest of a full buffer, for a newer one; raise `max_buffered_records` "
            "or `max_buffered_bytes`, or set `when_full=block`"
        )
        self._endings.dropped(dropped, error)
        self._forget_ended()
        self._leave_out_gone(len(dropped))
        return True

    def abandon(self, reason: str) -> int:
        """Let everything that has not ended fail now, and give how much that is. Nothing is asked for after it."""
        left = [*self._not_ended_here(), *self._inbox.shut()]
        in_calls = [ticket for ticket in left if ticket.place == IN_CALL]
        others = [ticket for ticket in left if ticket.place != IN_CALL]
        self._end_all(others, ProducerClosed(f"{reason}; the record was not sent"), is_over=False)
        unknown = f"{reason} while the record was in a call without an answer; it may be on the stream"
        self._end_all(in_calls, ProducerClosed(unknown), is_over=False)
        return len(left)

    def not_ended(self) -> list[Ticket]:
        """Give all that was taken over and has not ended."""
        return [*self._not_ended_here(), *self._inbox.peek()]

    @property
    def is_recovering(self) -> bool:
        """Whether the spool may have more of what an earlier producer left."""
        return self._is_recovering

    def _not_ended_here(self) -> list[Ticket]:
        held = self._taken.not_ended()
        held += [ticket for burial in self._burials for ticket in burial.tickets]
        # One that is given up may be there twice.
        not_ended = {id(ticket): ticket for ticket in held if not ticket.done()}
        return list(not_ended.values())

    # How it goes on.

    @property
    def _must_list(self) -> bool:
        return bool(self._unsettled) or self._records.must_list_first

    @property
    def _may_fetch(self) -> bool:
        return self._is_recovering and not self._is_fetching and not self._records.must_list_first

    def _take_in(self, now: float) -> None:
        if self._is_recovering or self._records.must_list_first:
            return
        tickets = self._inbox.take()
        if tickets:
            self._hold(tickets, now)

    def _hold(self, tickets: list[Ticket], now: float) -> None:
        row = self._rows
        for ticket in tickets:
            row += 1
            ticket.row = row
        self._rows = row
        self._taken.add(tickets, now + self._settings.delivery_timeout_seconds)
        if self._lingers_until == inf:
            self._lingers_until = now + self._settings.linger_seconds
        self._records.hold_all(tickets)

    def _next_call(self, now: float) -> Call | None:
        for call in self._to_repeat:
            if call.repeat_at <= now:
                self._to_repeat.remove(call)
                self._inbox.calls += 1
                return call
        if self._open_calls >= self._settings.max_concurrent_calls:
            return None
        batch = self._next_batch(now)
        if not batch:
            return None
        for each in batch:
            for ticket in tickets_of(each):
                ticket.place = IN_CALL
        self._open_calls += 1
        self._inbox.calls += 1
        return Call(batch)

    def _next_batch(self, now: float) -> list[Puttable]:
        records = self._records
        if self._flushes or now >= self._lingers_until:
            records.finish_packing()
            self._lingers_until = inf
            self._hurries = True
        refused_before = records.paced_at <= now
        if not (self._hurries or refused_before or records.has_a_full_call):
            return []
        batch: list[Puttable] = []
        while not batch and (taken := records.take()):
            batch = self._without_gone(taken)
        if not records.has_ready:
            self._hurries = False
            if not records.is_packing:
                self._lingers_until = inf
        elif refused_before:
            self._hurries = True
        elif not self._hurries:
            self._lingers_until = now + self._settings.linger_seconds
        return batch

    def _settle(self, call: Call, results: "Sequence[Result]") -> None:
        settled = self._records.settle(call.batch, results)
        self._open_calls -= 1
        self._endings.sent(settled.taken)
        self._forget_ended()
        if len(settled.taken) < len(call.batch):
            self._note_refusals(call, results)
        for given_up in settled.given_up:
            lost = [ticket for each in given_up.records for ticket in tickets_of(each)]
            self._give_up(lost, given_up.error, is_over=False)
        if self._settings.is_ordered or len(settled.taken) < len(call.batch):
            self._hurries |= self._records.has_ready  # what was in a call, or waited for one of its key
        self._expire_overdue()

    def _note_refusals(self, call: Call, results: "Sequence[Result]") -> None:
        tickets = [ticket for each in call.batch for ticket in tickets_of(each) if not ticket.done()]
        for ticket in tickets:
            ticket.place = WAITS
            ticket.tries += 1
        self._taken.wait_again(tickets)
        self._inbox.retried += len(tickets)
        refusal = next((each for each in results if each.get("ErrorCode")), None)
        if refusal is not None:
            self._last_failure = refusal_error(refusal, "refused")

    def _give_up_call(self, call: Call, error: KinesisSpoutError) -> None:
        self._open_calls -= 1
        self._records.done(call.batch)
        self._hurries |= self._records.has_ready
        if isinstance(error, ResourceNotFound):
            error = no_such_stream(error)
        is_over = isinstance(error, KinesisError) and is_about_its_size(call.batch, error)
        self._give_up([ticket for each in call.batch for ticket in tickets_of(each)], error, is_over=is_over)

    def _give_up(self, tickets: Iterable[Ticket], error: KinesisSpoutError, *, is_over: bool) -> None:
        """Let records fail, by way of the dead letters if there are some.

        ``is_over`` says whether to send them again would change nothing.
        """
        left = [ticket for ticket in tickets if not ticket.is_gone]
        if left and self._settings.has_dead_letters:
            for ticket in left:
                ticket.place = GIVEN_UP
            self._burials.append(Burial(left, error, "rejected" if is_over else "exhausted"))
        elif left:
            self._end_all(left, error, is_over=is_over)

    def _end_all(
        self,
        tickets: Iterable[Ticket],
        error: KinesisSpoutError,
        *,
        is_over: bool,
        dead_lettered: bool = False,
    ) -> None:
        self._endings.failed(tickets, error, is_over=is_over, dead_lettered=dead_lettered)
        self._forget_ended()

    def _forget_ended(self) -> None:
        self._taken.forget_ended(self._inbox.waiting)

    def _share(self) -> None:
        """Tell the inbox what of the buffer the shards that refuse may have."""
        ranges, shares = self._records.ranges, None
        if ranges is not None and len(ranges) > 1 and not self._settings.drops_oldest:
            settings = self._settings
            records, size_bytes = settings.max_records // len(ranges), settings.max_bytes // len(ranges)
            left = {
                name: (records - has, size_bytes - of_bytes)
                for name, has, of_bytes in self._records.backlogs()
            }
            shares = Shares(ranges, left) if left else None
        if shares is not None or self._has_shares:
            self._inbox.share(shares)
        self._has_shares = shares is not None

    # Records whose time is over.

    def _expire(self, now: float) -> None:
        self._fail_expired(self._taken.expire(now))

    def _expire_overdue(self) -> None:
        self._fail_expired(self._taken.expire_overdue())

    def _expire_in_call(self, call: Call) -> None:
        """Let those of a call that failed fail whose time is over."""
        expired = self._taken.overdue_among(ticket for each in call.batch for ticket in tickets_of(each))
        if expired:
            for ticket in expired:
                ticket.place = WAITS
            self._expire_overdue()
            call.batch = self._left_of(call.batch)

    def _fail_expired(self, expired: list[Ticket]) -> None:
        if not expired:
            return
        last = self._last_failure
        kind = Unavailable if last is None else type(last)
        error = kind(
            f"expected the record to be put within {self._settings.delivery_timeout_seconds:g} s, got no success; "
            + ("it waited for others" if last is None else f"the last failure: {last}")
        )
        error.__cause__ = last
        self._give_up(expired, error, is_over=False)
        self._leave_out_gone(len(expired))

    # Records that wait although they have ended.

    def _without_gone(self, batch: list[Puttable]) -> list[Puttable]:
        return self._left_of(batch) if self._gone else batch

    def _left_of(self, batch: list[Puttable]) -> list[Puttable]:
        left: list[Puttable] = []
        for each in batch:
            if isinstance(each, Aggregate):
                each.user_records = [
                    ticket for ticket in each.user_records if not cast("Ticket", ticket).is_gone
                ]
            if all(ticket.is_gone for ticket in tickets_of(each)):
                self._records.done((each,))
            else:
                left.append(each)
        return left

    def _leave_out_gone(self, more: int) -> None:
        self._gone += more
        if self._gone > self._inbox.waiting // 2 + _FEW_GONE:
            waiting = [ticket for each in self._records.take_back() for ticket in tickets_of(each)]
            self._records.hold_all([ticket for ticket in waiting if not ticket.is_gone])
            self._gone = 0

    def _backoff_seconds(self, failures: int) -> float:
        return backoff_seconds(
            failures, first=FIRST_BACKOFF_SECONDS, cap=BACKOFF_CAP_SECONDS, jitter=self._jitter
        )
