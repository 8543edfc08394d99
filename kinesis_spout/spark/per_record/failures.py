"""What becomes of a micro-batch's failed records.

No I/O but the log, and no clock: the time comes in, and what is to be written or delivered goes out.

Whether the records or the handler are at fault is decided as everywhere (``shard_state.blame``), over
micro-batches, which can be small. While the handler is, nothing is given up, and Spark waits for the micro-batch.
"""

import logging
from collections import Counter
from collections.abc import Sequence
from operator import itemgetter

from kinesis_spout.model.record import DeadLetter, Record
from kinesis_spout.spark.per_record.delivery import Failed
from shard_state import Blame, Counts, Fate, History, RedeliveryPolicy

_log = logging.getLogger(__name__)


class FailedRecords:
    """Failed records that wait for another delivery. Mutable; not thread-safe."""

    def __init__(
        self, application: str, policy: RedeliveryPolicy, blame: Blame, maximum_age_seconds: float | None
    ) -> None:
        self._application = application
        self._policy = policy
        self._blame = blame
        self._maximum_age_seconds = maximum_age_seconds
        self._waiting: list[tuple[float, Record, History]] = []
        """Due times, the earliest first."""
        self._taken: dict[str, tuple[int, History]] = {}
        """The last that were handed out: the attempt and the history of each, by its message id."""

    @property
    def next_due(self) -> float | None:
        """When the first of the waiting records may be tried, on the monotonic clock; None when none waits."""
        if not self._waiting:
            return None
        due = self._waiting[0][0]
        return max(due, self._blame.next_try_at) if self._blame.is_slowed else due

    def settle(
        self, failures: Sequence[Failed], *, delivered: int, now: float, monotonic: float, random: float
    ) -> list[DeadLetter]:
        """Take the failed records of a job: keep those to retry, return letters for the others.

        ``delivered``: how many records the job had. ``now`` and ``monotonic`` are the same moment. ``random``,
        from [0, 1), is one for all, so that records that failed together come back in one job.
        """
        self._note(failures, delivered, monotonic)
        taken, self._taken = self._taken, {}
        letters: list[DeadLetter] = []
        for unfinished, failed in failures:
            record = unfinished.record
            if failed.fate is Fate.REJECTED:
                letters.append(self._letter((unfinished, failed), now, "rejected"))
                continue
            _, history = taken.get(record.message_id, (0, None))
            gives_up, history = self._blame.weigh(history, record.attempt, monotonic)
            again = self._policy.after(history, random=random, delay_seconds=failed.delay_seconds)
            if gives_up:
                letters.append(self._letter((unfinished, failed), now, "exhausted"))
            elif self._is_too_old(record.arrival_timestamp, now + again.delay_seconds):
                letters.append(self._letter((unfinished, failed), now, "expired"))
            else:
                record.attempt += 1
                self._waiting.append((monotonic + again.delay_seconds, record, history))
        self._waiting.sort(key=itemgetter(0))
        return letters

    def _note(self, failures: Sequence[Failed], delivered: int, monotonic: float) -> None:
        tried = Counter(attempt for attempt, _ in self._taken.values()) or Counter({1: delivered})
        failed = Counter(
            unfinished.record.attempt for unfinished, each in failures if each.fate is not Fate.REJECTED
        )
        passed = tried - failed
        self._blame.note(
            monotonic,
            Counts(passed[1], failed[1], passed[2], failed[2]),
            passed_late=passed.total() - passed[1] - passed[2],
            failed_late=failed.total() - failed[1] - failed[2],
        )

    def take_due(self, monotonic: float) -> list[Record]:
        """Hand out the records that are due; the earliest ones in any case."""
        # A clock can wake its sleeper a little early, and a job for the rest would follow at once.
        until = max(monotonic, self._waiting[0][0])
        count = sum(at <= until for at, _, _ in self._waiting)
        if self._blame.is_slowed:
            count = min(count, max(1, self._blame.allowance(monotonic)))
            self._blame.tried(monotonic)
        due = [(record, history) for _, record, history in self._waiting[:count]]
        del self._waiting[:count]
        self._taken = {record.message_id: (record.attempt, history) for record, history in due}
        return [record for record, _ in due]

    def _is_too_old(self, arrival: float | None, at: float) -> bool:
        maximum = None if self._blame.is_troubled else self._maximum_age_seconds
        return maximum is not None and arrival is not None and at - arrival > maximum

    def _letter(self, failed: Failed, now: float, reason: str) -> DeadLetter:
        unfinished, _ = failed
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
            reason=reason,
            died_at=now,
            traceback=None if unfinished.raised is None else unfinished.raised.traceback,
            explicit_hash_key=record.explicit_hash_key,
        )
