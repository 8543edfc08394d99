"""The circuit breaker of `each_record`: a micro-batch whose records practically all fail is held, not given up.

Spark waits for the micro-batch meanwhile. One record of it is tried at a time, at growing intervals, until one
succeeds; then the others follow. The outcomes are counted over micro-batches, which may be small.
"""

import logging
import random

import pyarrow as pa
import pyarrow.compute as pc

from kinesis_spout.consumer.pause_reports import most_frequent
from kinesis_spout.model.handler import RaisedAt
from kinesis_spout.model.logs.failure_kinds import FailureKinds
from shard_state import BreakerEvent, BreakerRule, CircuitBreaker

_log = logging.getLogger(__name__)


class BatchPause:
    """What became of the deliveries of one `each_record`. Mutable. Can be pickled."""

    def __init__(self, rule: BreakerRule) -> None:
        self._breaker = CircuitBreaker(rule, random.random)
        self._failures = FailureKinds()

    @property
    def is_on(self) -> bool:
        """Whether the micro-batch is held."""
        return self._breaker.is_open

    def begin(self) -> None:
        """Begin a micro-batch: one that Spark broke off was perhaps held, and is delivered anew."""
        self._breaker.resume()
        self._breaker.take_notices()

    def probe_at(self, due: float) -> float:
        """Say when the record that is due first, at ``due``, may be tried."""
        pause = self._breaker.pause
        return due if pause is None or pause.probe_at is None else max(due, pause.probe_at)

    def delivered(self, batch_id: int, outcomes: pa.Table, failures: pa.Table, now: float) -> bool:
        """Take in what came of records that were delivered for the first time.

        The longest row of failures that a task ended with counts as the last outcomes: an outage may have begun.

        Returns:
            Whether the failures are spared: they do not count against the limit.
        """
        failed = self._count(failures)
        deliveries, row = _total(outcomes, "delivered"), pc.max(outcomes.column("lastInRow")).as_py() or 0
        self._breaker.note(outcomes=deliveries, failed=failed, now=now, last_in_row=row)
        return self._told(batch_id)

    def retried(self, batch_id: int, outcomes: pa.Table, failures: pa.Table, now: float) -> bool:
        """Take in what came of records that were delivered again; as ``delivered``.

        While the micro-batch is held it was one record, and says whether it is held any longer.
        """
        failed = self._count(failures)
        if not self._breaker.is_open:
            # One that fails once more says nothing new.
            self._breaker.note(outcomes=_total(outcomes, "delivered") - failed, failed=0, now=now)
            return False
        self._breaker.probe_sent()
        if failed:
            self._breaker.probe_failed(now)
        else:
            self._breaker.probe_passed()
        return self._told(batch_id)

    def _count(self, failures: pa.Table) -> int:
        for kind, traceback in zip(
            failures.column("kind").to_pylist(), failures.column("traceback").to_pylist(), strict=True
        ):
            self._failures.add(None if kind is None else RaisedAt(kind, traceback))
        rejected = int(pc.sum(failures.column("rejected")).as_py() or 0)
        return int(failures.num_rows) - rejected

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


def _total(outcomes: pa.Table, column: str) -> int:
    return int(pc.sum(outcomes.column(column)).as_py() or 0)
