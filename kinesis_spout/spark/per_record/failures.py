"""What becomes of a micro-batch's failed records, and when to hold one of which practically all fail.

No I/O but the log, and no clock: the time comes in, and what is to be written or delivered goes out.

``BatchPause`` is the circuit breaker of `each_record`: when practically all records fail, nothing is given
up, and Spark waits for the micro-batch. One record of it is tried at a time, at growing intervals, until one
succeeds; then the others follow. The outcomes are counted over micro-batches, which can be small.
"""

import logging
import random
from collections.abc import Sequence
from operator import itemgetter

from kinesis_spout.consumer.pause_reports import most_frequent
from kinesis_spout.model.dead_letter import DeadLetter
from kinesis_spout.model.logs import FailureKinds
from kinesis_spout.model.record import Record
from kinesis_spout.spark.per_record.delivery import Failed, Round
from shard_state import BreakerEvent, BreakerRule, CircuitBreaker, Fate, GiveUp, RetryPolicy

_log = logging.getLogger(__name__)


class FailedRecords:
    """Failed records that wait for another delivery. Mutable; not thread-safe."""

    def __init__(self, application: str, policy: RetryPolicy, maximum_age_seconds: float | None) -> None:
        self._application = application
        self._policy = policy
        self._maximum_age_seconds = maximum_age_seconds
        self._waiting: list[tuple[float, Record]] = []
        """Due times, the earliest first."""

    @property
    def next_due(self) -> float | None:
        """When the first of the waiting records is due, on the monotonic clock; None when none waits."""
        return self._waiting[0][0] if self._waiting else None

    def settle(
        self,
        failures: Sequence[Failed],
        *,
        now: float,
        monotonic: float,
        random: float,
        spare: bool = False,
    ) -> list[DeadLetter]:
        """Take failed records: keep those to retry, return letters for the others.

        ``now`` and ``monotonic`` are the same moment. ``random``, from [0, 1), is one for all, so that
        records that failed together come back in one job. ``spare``: only rejected records are given up, and
        nothing counts.
        """
        letters: list[DeadLetter] = []
        for unfinished, failed in failures:
            record = unfinished.record
            decision = self._policy.decide(
                attempts=record.attempt,
                random=random,
                rejected=failed.fate is Fate.REJECTED,
                delay_seconds=failed.delay_seconds,
                spare=spare,
            )
            if isinstance(decision, GiveUp):
                letters.append(self._letter((unfinished, failed), now, expired=False))
            elif not spare and self._is_too_old(record.arrival_timestamp, now + decision.delay_seconds):
                letters.append(self._letter((unfinished, failed), now, expired=True))
            else:
                record.attempt += not spare
                self._waiting.append((monotonic + decision.delay_seconds, record))
        self._waiting.sort(key=itemgetter(0))
        return letters

    def take_due(self, monotonic: float) -> list[Record]:
        """Hand out the records that are due; the earliest ones in any case."""
        # A clock can wake its sleeper a little early, and a job for the rest would follow at once.
        until = max(monotonic, self._waiting[0][0])
        due = [record for at, record in self._waiting if at <= until]
        del self._waiting[: len(due)]
        return due

    def take_one(self) -> list[Record]:
        _, record = self._waiting.pop(0)
        return [record]

    def _is_too_old(self, arrival: float | None, at: float) -> bool:
        maximum = self._maximum_age_seconds
        return maximum is not None and arrival is not None and at - arrival > maximum

    def _letter(self, failed_record: Failed, now: float, *, expired: bool) -> DeadLetter:
        unfinished, failed = failed_record
        record = unfinished.record
        return DeadLetter(
            application=self._application,
            stream=record.stream,
            shard_id=record.shard_id,
            sequence_number=record.sequence_text,
            partition_key=record.partition_key,
            arrival_timestamp=record.arrival_timestamp,
            data=record.data,
            attempts=record.attempt,
            error=unfinished.error,
            reason="expired" if expired else "rejected" if failed.fate is Fate.REJECTED else "exhausted",
            died_at=now,
            traceback=None if unfinished.raised is None else unfinished.raised.traceback,
            explicit_hash_key=record.explicit_hash_key,
        )


class BatchPause:
    """The recent delivery outcomes of one `each_record`. Mutable. Can be pickled."""

    def __init__(self, rule: BreakerRule) -> None:
        self._breaker = CircuitBreaker(rule, random.random)
        self._failures = FailureKinds()

    @property
    def is_on(self) -> bool:
        return self._breaker.is_open

    def begin(self) -> None:
        """Begin a micro-batch. If Spark broke off the last one while it was held, it is delivered again."""
        self._breaker.resume()
        self._breaker.take_notices()

    def probe_at(self, due: float) -> float:
        pause = self._breaker.pause
        return due if pause is None or pause.probe_at is None else max(due, pause.probe_at)

    def delivered(self, batch_id: int, first: Round, now: float) -> bool:
        """True if the failures do not count. A task's last row counts as newest: an outage can have begun."""
        last_in_row = max((end.last_in_row for end in first.ends), default=0)
        failed = self._failed(first)
        self._breaker.note(outcomes=first.delivered, failed=failed, now=now, last_in_row=last_in_row)
        return self._told(batch_id)

    def retried(self, batch_id: int, again: Round, now: float) -> bool:
        """As ``delivered``, for later deliveries. While the micro-batch is held, its one record decides."""
        failed = self._failed(again)
        if not self._breaker.is_open:
            # One that fails once more proves nothing new.
            self._breaker.note(outcomes=again.delivered - failed, failed=0, now=now)
            return False
        self._breaker.probe_sent()
        if failed:
            self._breaker.probe_failed(now)
        else:
            self._breaker.probe_passed()
        return self._told(batch_id)

    def _failed(self, outcomes: Round) -> int:
        """Count the failures by their kinds. Returns how many there are, without rejected records."""
        for unfinished, _ in outcomes.failures:
            self._failures.add(unfinished.raised)
        return len(outcomes.failures) - outcomes.rejected

    def _told(self, batch_id: int) -> bool:
        for notice in self._breaker.take_notices():
            if notice.event is BreakerEvent.TRIPPED:
                _log.warning(
                    "micro-batch %d is held: %d of the last %d outcomes are failures%s. Nothing is given up; one "
                    "of its records is tried in %.1f s, and then at growing intervals, until one succeeds",
                    batch_id,
                    notice.failed,
                    notice.outcomes,
                    most_frequent(self._failures),
                    notice.wait_seconds,
                )
            elif notice.event is BreakerEvent.PROBE_FAILED:
                _log.info(
                    "micro-batch %d is held still: the record that was tried failed as well (%d by now); the next "
                    "is tried in %.1f s",
                    batch_id,
                    notice.probes_failed,
                    notice.wait_seconds,
                )
            else:
                _log.info("micro-batch %d goes on: a record that was tried succeeded", batch_id)
        return self._breaker.is_open
