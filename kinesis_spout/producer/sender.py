"""Decides what a producer does next, and what follows from each outcome. No I/O, no threads.

Its shell asks for `next_work`, does it, and reports the outcome, from any number of threads under one lock.
Works that are under way are independent.

A record comes in by the buffer, waits in the queue of its shard (``kinesis/write``), goes in one or several calls,
and ends: sent, failed or dropped; see ``endings``. A full call is made at once. Other records linger for a while,
unless a caller flushes, or they were in a call before.

**Time.** A record that has not ended ``delivery_timeout_seconds`` after it was taken in fails, wherever it
waits. One that is in a call then fails when that call does.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Final

from kinesis_spout.kinesis.calls import ResourceNotFound
from kinesis_spout.kinesis.retry_policy import (
    Action,
    FailuresInARow,
    Jitter,
    Work,
    backoff_seconds,
    reaction_to,
)
from kinesis_spout.kinesis.write.hash_key_ranges import HashKeyRanges
from kinesis_spout.kinesis.write.put_records import Puttable
from kinesis_spout.kinesis.write.record_putter import is_about_its_size, no_such_stream
from kinesis_spout.kinesis.write.waiting_records import WaitingRecords, refusal_error
from kinesis_spout.model.clock import Clock
from kinesis_spout.model.errors import (
    KinesisError,
    KinesisSpoutError,
    ProducerClosed,
    RecordDropped,
    Unavailable,
)
from kinesis_spout.producer.buffer import Buffer, Shares
from kinesis_spout.producer.endings import Endings, Letters, Notices, UnwrittenLetters
from kinesis_spout.producer.taken_records import TakenRecords
from kinesis_spout.producer.tickets import IN_CALL, WAITS, AnyTicket, Ticket, tickets_in
from kinesis_spout.settings.producer_config import ProducerConfig

if TYPE_CHECKING:
    from mypy_boto3_kinesis.type_defs import PutRecordsResultEntryTypeDef as Result


FIRST_BACKOFF_SECONDS: Final = 0.2
BACKOFF_CAP_SECONDS: Final = 5.0


@dataclass(slots=True, eq=False)
class Call:
    """A call of PutRecords to make, perhaps again. Mutable."""

    batch: list[Puttable]
    failures: FailuresInARow = field(default_factory=FailuresInARow)
    repeat_at: float = -inf

    @property
    def held(self) -> list[Ticket]:
        return [ticket for each in self.batch for ticket in tickets_in(each)]


class Listing:
    """The shards to list."""


class Recovery:
    """Records of an earlier producer to fetch from the spool."""


WorkToDo = Call | Listing | Letters | Recovery


class Sender:
    """Mutable; for one thread at a time. It ``recovers`` if an earlier producer may have left records."""

    def __init__(
        self,
        records: WaitingRecords,
        buffer: Buffer,
        config: ProducerConfig,
        *,
        has_dead_letters: bool,
        recovers: bool,
        clock: Clock,
        jitter: Jitter,
    ) -> None:
        self._records = records
        self._buffer = buffer
        self._config = config
        self._clock = clock
        self._jitter = jitter
        self._taken = TakenRecords(drops=config.when_full == "drop_oldest")
        self._letters = UnwrittenLetters(config.delivery_timeout_seconds, self._backoff_seconds)
        self._endings = Endings(buffer, self._taken, self._letters if has_dead_letters else None)
        self._rows = 0
        self._to_repeat: list[Call] = []
        self._unsettled: list[tuple[Call, Sequence[Result]]] = []
        self._open_calls = 0
        self._lingers_until = inf
        """When what is held is put, full or not; infinite if nothing new is held."""
        self._hurries = False
        """True if what can be taken is put at once: it has lingered, or was in a call before."""
        self.flushes = 0
        """The number of callers that want nothing to linger."""
        self._is_listing = False
        self.is_recovering = recovers
        """True if the spool may have more records of an earlier producer, which go before those that are put."""
        self._is_fetching = False
        self._recovery_failures = 0
        self._recover_at = inf
        """When the spool is read further, after it could not be."""
        self._has_shares = False
        self._was_answered = False
        self._last_failure: KinesisSpoutError | None = None

    # Questions of the shell.

    def next_work(self) -> WorkToDo | None:
        """Take in what came, and return the work to do; None: none before ``due_at``, or until more comes."""
        now = self._clock.monotonic()
        if (self._unsettled or self._records.needs_shards) and not self._is_listing:
            self._is_listing = True
            return Listing()
        if self._may_fetch(now):
            self._is_fetching = True
            return Recovery()
        self._take_in(now)
        self._expire(now)
        letters = self._letters.next(now)
        if letters is not None:
            return letters
        call = self._next_call(now)
        self._share()
        return call

    @property
    def due_at(self) -> float:
        """When there may be something to do although nothing comes, as monotonic time."""
        due = min([each.repeat_at for each in self._to_repeat], default=inf)
        due = min(due, self._letters.due_at, self._taken.next_expiry)
        if self._recover_at < due and self._may_fetch(inf):
            due = self._recover_at
        if self._open_calls >= self._config.max_concurrent_calls:
            return due
        if (self._hurries or self.flushes) and self._records.has_ready:
            return -inf
        return min(due, self._lingers_until, self._records.paced_at)

    @property
    def wakes_at(self) -> tuple[float, float]:
        """When the shell should look again, in records and bytes that have come."""
        config = self._config
        if self.is_recovering or self._records.needs_shards:
            return inf, inf  # nothing is taken in before
        if self._open_calls >= config.max_concurrent_calls:
            return inf, inf
        if self._lingers_until == inf or self.flushes:
            return 1, inf
        per_call = inf if config.aggregation else config.max_records_per_call
        return (
            min(per_call, config.max_buffered_records // 2),
            min(config.max_bytes_per_call, config.max_buffered_bytes // 2),
        )

    def ended(self) -> Notices:
        return self._endings.take()

    # Reports of the shell.

    def listed(self, ranges: HashKeyRanges) -> None:
        self._is_listing = False
        self._records.go_by(ranges)
        unsettled, self._unsettled = self._unsettled, []
        for call, results in unsettled:
            self._settle(call, results)

    def answered(self, call: Call, results: "Sequence[Result]") -> None:
        self._was_answered = True
        if self._unsettled or self._records.must_list(results):
            self._unsettled.append((call, results))
        else:
            self._settle(call, results)

    def failed(self, call: Call, error: KinesisSpoutError) -> None:
        """Note that a call got no answer, or an error for an answer."""
        now = self._clock.monotonic()
        # A producer that never got an answer has a wrong set-up; else the error may pass.
        reaction = reaction_to(error, Work.CONSUME if self._was_answered else Work.CALL)
        self._last_failure = error
        for each in call.held:
            each.tries += 1
            self._buffer.retried += 1
        if reaction.action is not Action.RETRY:
            self._give_up_call(call, error)
            return
        self._expire(now)
        self._expire_in_call(call)
        if not call.batch:
            self._open_calls -= 1
            return
        failures = call.failures.failed(reaction)
        call.repeat_at = now + max(reaction.wait_after(failures), self._backoff_seconds(failures))
        # A last time when the time of some is over.
        call.repeat_at = min(call.repeat_at, self._taken.next_expiry)
        self._to_repeat.append(call)

    def written(self, letters: Letters) -> None:
        self._letters.written(letters)
        self._endings.failed(letters.held, letters.error, is_over=True, dead_lettered=True)

    def not_written(self, letters: Letters, error: Exception) -> None:
        """Note that records could not be made dead letters now. It is retried for a delivery's time-out."""
        failure = self._letters.not_written(letters, error, self._clock.monotonic())
        if failure is not None:
            self._endings.failed(letters.held, failure, is_over=False)

    def recovered(self, tickets: list[Ticket]) -> None:
        """Take in what an earlier producer left; empty when that is all."""
        self._is_fetching = False
        self.is_recovering, self._recover_at, self._recovery_failures = bool(tickets), inf, 0
        if tickets:
            self._buffer.recovered(tickets)
            self._hold(tickets, self._clock.monotonic())

    def not_recovered(self, *, reads_on: bool) -> None:
        """Note that the spool could not be read. It is read on at once, or later: what was put goes first then."""
        self._is_fetching, self.is_recovering = False, reads_on
        if not reads_on:
            self._recovery_failures += 1
            self._recover_at = self._clock.monotonic() + self._backoff_seconds(self._recovery_failures)

    # Requests of the producer.

    def recover(self) -> None:
        """Read the spool further now, if it could not be read before."""
        if self._recover_at < inf:
            self.is_recovering, self._recover_at = True, inf

    def drop_oldest(self, put: AnyTicket) -> bool:
        """Make room for records by dropping the oldest; False: what is not in calls is not enough."""
        self._take_in(self._clock.monotonic())
        records, more_bytes = self._buffer.missing(put)
        dropped = self._taken.take_oldest(records, more_bytes)
        if not dropped:
            return records <= 0 and more_bytes <= 0
        error = RecordDropped(
            "the record was dropped, the oldest of a full buffer, for a newer one; raise `max_buffered_records` "
            'or `max_buffered_bytes`, or set `when_full="block"`'
        )
        count = self._endings.dropped(dropped, error)
        self._records.leave_out(count)
        return True

    def abandon(self, reason: str) -> int:
        """Fail everything that has not ended, and return its number. This is the last call."""
        held = dict.fromkeys([*self._taken.not_ended(), *self._letters.held])  # some are in both
        left = [ticket for ticket in held if not ticket.done()]
        left += self._handed_over(self._buffer.shut())
        in_calls = [ticket for ticket in left if ticket.place == IN_CALL]
        others = [ticket for ticket in left if ticket.place != IN_CALL]
        self._endings.failed(others, ProducerClosed(f"{reason}; the record was not sent"), is_over=False)
        unknown = f"{reason} while the record was in a call without an answer; it may be on the stream"
        self._endings.failed(in_calls, ProducerClosed(unknown), is_over=False)
        return len(left)

    def not_ended(self) -> list[AnyTicket]:
        held = [*self._taken.not_ended(), *self._letters.held]
        return [*dict.fromkeys([ticket.batch or ticket for ticket in held]), *self._buffer.peek()]

    # Continuing.

    def _may_fetch(self, now: float) -> bool:
        """Return whether the spool may be read now.

        Records put meanwhile may fill the buffer, and go behind: so an empty outbox needs no room.
        """
        if self._is_fetching or self._records.needs_shards:
            return False
        if not self.is_recovering and self._recover_at > now:
            return False
        return self._buffer.has_room or not self._taken

    def _take_in(self, now: float) -> None:
        if self.is_recovering or self._records.needs_shards:
            return
        puts = self._buffer.take()
        if puts:
            self._hold(puts, now)

    def _handed_over(self, puts: Sequence[AnyTicket]) -> list[Ticket]:
        """Return the records of what was put, each with its row."""
        tickets: list[Ticket] = []
        for put in puts:
            tickets += put.handed_over(self._rows + len(tickets) + 1)
        self._rows += len(tickets)
        return tickets

    def _hold(self, puts: Sequence[AnyTicket], now: float) -> None:
        tickets = self._handed_over(puts)
        if self._lingers_until == inf:
            self._lingers_until = now + self._config.linger_seconds
        self._records.hold_all(tickets)
        self._taken.add(tickets, now + self._config.delivery_timeout_seconds)

    def _next_call(self, now: float) -> Call | None:
        for call in self._to_repeat:
            if call.repeat_at <= now:
                self._to_repeat.remove(call)
                self._buffer.calls += 1
                return call
        if self._open_calls >= self._config.max_concurrent_calls:
            return None
        batch = self._next_batch(now)
        if not batch:
            return None
        call = Call(batch)
        for each in call.held:
            each.place = IN_CALL
        self._open_calls += 1
        self._buffer.calls += 1
        return call

    def _next_batch(self, now: float) -> list[Puttable]:
        """Return what goes into a call now: a full call, or what has lingered, was in a call, or is flushed."""
        records = self._records
        if self.flushes or now >= self._lingers_until:
            self._lingers_until = inf
            self._hurries = True
        refused_before = records.paced_at <= now
        if not (self._hurries or refused_before or records.has_a_full_call):
            return []
        batch = records.take()
        if not records.has_ready:
            self._hurries, self._lingers_until = False, inf
        elif refused_before:
            self._hurries = True
        elif not self._hurries:
            self._lingers_until = now + self._config.linger_seconds
        return batch

    def _hurry(self) -> None:
        """Let what may be taken now go without lingering."""
        self._hurries |= self._records.has_ready

    def _settle(self, call: Call, results: "Sequence[Result]") -> None:
        settled = self._records.settle(call.batch, results)
        self._open_calls -= 1
        self._endings.sent(settled.taken)
        if len(settled.taken) < len(call.batch):
            self._note_refusals(call, results)
        for records, error in settled.given_up:
            self._endings.give_up(
                [each for lost in records for each in tickets_in(lost)], error, is_over=False
            )
        if self._config.order == "key" or len(settled.taken) < len(call.batch):
            self._hurry()  # what was in a call, or waited for one of its key
        self._expire_overdue()

    def _note_refusals(self, call: Call, results: "Sequence[Result]") -> None:
        held = [each for each in call.held if not each.done()]
        for each in held:
            each.place = WAITS
            each.tries += 1
            self._buffer.retried += 1
        self._taken.wait_again(held)
        refusal = next((each for each in results if each.get("ErrorCode")), None)
        if refusal is not None:
            self._last_failure = refusal_error(refusal, "refused")

    def _give_up_call(self, call: Call, error: KinesisSpoutError) -> None:
        self._open_calls -= 1
        self._records.done(call.batch)
        self._hurry()
        if isinstance(error, ResourceNotFound):
            error = no_such_stream(error)
        is_over = isinstance(error, KinesisError) and is_about_its_size(call.batch, error)
        self._endings.give_up(call.held, error, is_over=is_over)

    def _share(self) -> None:
        shares = None
        if self._config.when_full != "drop_oldest":
            shares = Shares.of(self._config, self._records)
        if shares is not None or self._has_shares:
            self._buffer.share(shares)
        self._has_shares = shares is not None

    # Records whose time is over.

    def _expire(self, now: float) -> None:
        self._fail_expired(self._taken.expire(now))

    def _expire_overdue(self) -> None:
        self._fail_expired(self._taken.expire_overdue())

    def _expire_in_call(self, call: Call) -> None:
        expired = self._taken.overdue_among(call.held)
        if expired:
            for each in expired:
                each.place = WAITS
            self._expire_overdue()
            call.batch = self._records.left_of(call.batch)
            self._hurry()  # what waited for one of its key

    def _fail_expired(self, expired: list[Ticket]) -> None:
        if not expired:
            return
        last = self._last_failure
        kind = Unavailable if last is None else type(last)
        error = kind(
            f"expected the record to be put within {self._config.delivery_timeout_seconds:g} s, got no success; "
            + ("it waited for others" if last is None else f"the last failure: {last}")
        )
        error.__cause__ = last
        self._endings.give_up(expired, error, is_over=False)
        self._records.leave_out(len(expired))

    def _backoff_seconds(self, failures: int) -> float:
        return backoff_seconds(
            failures, first=FIRST_BACKOFF_SECONDS, cap=BACKOFF_CAP_SECONDS, jitter=self._jitter
        )
