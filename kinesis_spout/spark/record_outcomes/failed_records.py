"""Decides what becomes of the failed records of one micro-batch, and keeps those that are tried again.

No I/O and no clock: the time comes in, and what is to be written or delivered goes out. A record that came
back is waiting here, or was given out as a dead letter, or was given out for another delivery.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kinesis_spout.model.columns import HANDLED_COLUMNS
from kinesis_spout.model.dead_letter import DeadLetter
from kinesis_spout.spark.record_outcomes.record_delivery import ATTEMPT, arrival_seconds
from shard_state import GiveUp, RetryPolicy

EXHAUSTED: Final = "exhausted"
REJECTED: Final = "rejected"
EXPIRED: Final = "expired"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryRules:
    """Whether and when a failed record is delivered again."""

    policy: RetryPolicy
    maximum_record_age_seconds: float | None
    """A record that would be older than this at its retry gets none; None: age does not matter."""


class FailedRecords:
    """The failed records of one micro-batch. Mutable; not thread-safe."""

    def __init__(self, rules: RetryRules, application: str) -> None:
        self._rules = rules
        self._application = application
        self._waiting: list[tuple[float, pa.Table]] = []

    @property
    def next_due(self) -> float | None:
        """When the first of the waiting records is due, on the monotonic clock; None when none waits."""
        return min((due for due, _ in self._waiting), default=None)

    def settle(
        self, failures: pa.Table, *, now: float, monotonic: float, random: float, spare: bool = False
    ) -> list[DeadLetter]:
        """Take records that have just failed. Those that are tried again wait here; the others are given back.

        Args:
            failures: rows as `DeliverRecords` gives them.
            now: seconds since the epoch.
            monotonic: the same moment on the monotonic clock.
            random: from [0, 1), one for all, so that records that failed together come back in one job.
            spare: these deliveries do not count, and nothing is given up but what is rejected.
        """
        given_up: dict[int, str] = {}
        waiting: defaultdict[float, list[int]] = defaultdict(list)
        arrivals = arrival_seconds(failures.column("approximateArrivalTimestamp"))
        verdicts = failures.select([ATTEMPT, "rejected", "delaySeconds"]).to_pylist()
        for row, verdict in enumerate(verdicts):
            decision = self._rules.policy.decide(
                attempts=verdict[ATTEMPT],
                random=random,
                rejected=verdict["rejected"],
                delay_seconds=verdict["delaySeconds"],
                spare=spare,
            )
            if isinstance(decision, GiveUp):
                given_up[row] = REJECTED if verdict["rejected"] else EXHAUSTED
            elif not spare and self._is_too_old(arrivals[row], now + decision.delay_seconds):
                given_up[row] = EXPIRED
            else:
                waiting[monotonic + decision.delay_seconds].append(row)
        counted = 0 if spare else 1
        self._waiting.extend((due, _waiting(_rows(failures, rows), counted)) for due, rows in waiting.items())
        return self._letters(_rows(failures, list(given_up)), list(given_up.values()), now)

    def take_due(self, monotonic: float) -> pa.Table:
        """Give out the records that are due, with ``HANDLED_COLUMNS`` and ``ATTEMPT``; the earliest in any case.

        Raises:
            ValueError: none waits.
        """
        # A clock may wake its sleeper a little early, and a job for the rest would follow at once.
        until = max(monotonic, min(due for due, _ in self._waiting))
        due = [table for at, table in self._waiting if at <= until]
        self._waiting = [(at, table) for at, table in self._waiting if at > until]
        return pa.concat_tables(due)

    def take_one(self) -> pa.Table:
        """Give out the one record that is due first.

        Raises:
            ValueError: none waits.
        """
        at = min(range(len(self._waiting)), key=lambda at: self._waiting[at][0])
        due, table = self._waiting.pop(at)
        if table.num_rows > 1:
            self._waiting.append((due, table.slice(1)))
        return table.slice(0, 1)

    def _is_too_old(self, arrival: float | None, at: float) -> bool:
        maximum = self._rules.maximum_record_age_seconds
        return maximum is not None and arrival is not None and at - arrival > maximum

    def _letters(self, failures: pa.Table, reasons: Sequence[str], now: float) -> list[DeadLetter]:
        arrivals = arrival_seconds(failures.column("approximateArrivalTimestamp"))
        rows = failures.drop_columns(["approximateArrivalTimestamp"]).to_pylist()
        return [
            DeadLetter(
                application=self._application,
                stream=row["stream"],
                shard_id=row["shardId"],
                sequence_number=_number(row),
                partition_key=row["partitionKey"],
                arrival_timestamp=arrival,
                data=row["data"],
                attempts=row[ATTEMPT],
                error=row["error"],
                reason=reason,
                died_at=now,
                traceback=row["traceback"],
                explicit_hash_key=row["explicitHashKey"],
            )
            for row, arrival, reason in zip(rows, arrivals, reasons, strict=True)
        ]


def _number(row: Mapping[str, Any]) -> str:
    number, sub = row["sequenceNumber"], row["subSequenceNumber"]
    return str(number if sub is None else f"{number}:{sub}")


def _rows(failures: pa.Table, rows: Sequence[int]) -> pa.Table:
    return failures.take(pa.array(rows, pa.int64()))


def _waiting(failures: pa.Table, counted: int) -> pa.Table:
    attempts = pc.add(failures.column(ATTEMPT), pa.scalar(counted, pa.int32()))
    return failures.select(list(HANDLED_COLUMNS)).append_column(ATTEMPT, attempts)
