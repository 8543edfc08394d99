"""When practically every record fails, nothing more is given up until one is seen to succeed.

    CLOSED --tripped--> OPEN --probe sent--> PROBING --probe passed--> CLOSED
                        OPEN <--probe failed, or vanished-- PROBING
    OPEN, PROBING --resumed--> CLOSED

A broken handler, or one whose database is down, fails every record that it is given. The retry limit, which is
there for the records that are at fault themselves, would then give up one good record after the other. So the
breaker looks at the last outcomes. Once nearly all of them are failures, or so many in a row that it can be no
accident, it opens: fresh records wait, no failure counts against its record's limit, and a single record at a
time is tried, at growing intervals. The first that succeeds closes it.

The row is for those who worked before: behind thousands of successes the share of failures takes minutes to
grow where records come slowly, and retries are used up within seconds. A shorter row is no proof, but reason
enough for a *doubt*: while it lasts nothing is given up either, only that everything goes on. One success ends
the doubt, and so does its time: records that are all bad are dead-lettered in the end.

What is an outcome. Of each record the first delivery, acked or failed (a time-out and the death of the worker
are failures), and every retry that succeeds. A retry that fails once more says nothing new, also where another
owner of the shard made the first delivery: counted, the retries of a few bad records among good ones would look
like many, and an owner that begins with what failed before would take it for an outage. An outage fails first
deliveries as well. What a handler rejects was handled: no failure. A slice that is only halved to find a record
that kills its worker has no outcome; that one record has.

The failures among the last outcomes when it opens, retries included, do not count against their records' limits
either: the outage is to blame, not the records. So after a restart in the middle of an outage most records are
delivered as if for the first time, the next owner sees the outage, and restarts use up no record's attempts.

Every second probe is a record that never failed, where there is one: behind a long run of records that are at
fault, only one that is not of them can show that the handler works.
"""

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from shard_state.retries.retry_policy import OUTAGE_CAP_SECONDS, RetryPolicy

_MOST_NOTICES: Final = 100


class BreakerState(Enum):
    """Whether records flow."""

    CLOSED = auto()
    """They do."""
    OPEN = auto()
    """They do not; the next probe waits for its time."""
    PROBING = auto()
    """They do not; one record is tried."""


class BreakerEvent(Enum):
    """What may happen to a breaker."""

    TRIPPED = auto()
    PROBE_SENT = auto()
    PROBE_PASSED = auto()
    PROBE_FAILED = auto()
    PROBE_VANISHED = auto()
    """It ended without an outcome: it did not reach the handler, or its shard was lost."""
    RESUMED = auto()
    """An operator said so."""


_S, _E = BreakerState, BreakerEvent

TRANSITIONS: Final[dict[tuple[BreakerState, BreakerEvent], BreakerState]] = {
    **{(state, event): state for state in _S for event in _E},
    (_S.CLOSED, _E.TRIPPED): _S.OPEN,
    (_S.OPEN, _E.PROBE_SENT): _S.PROBING,
    (_S.PROBING, _E.PROBE_PASSED): _S.CLOSED,
    (_S.PROBING, _E.PROBE_FAILED): _S.OPEN,
    (_S.PROBING, _E.PROBE_VANISHED): _S.OPEN,
    (_S.OPEN, _E.RESUMED): _S.CLOSED,
    (_S.PROBING, _E.RESUMED): _S.CLOSED,
}
"""Total: every state answers every event. A pair that maps to its own state changes nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerRule:
    """When the breaker opens, and how it is tried again."""

    failure_ratio: float | None = 0.9
    """It opens when at least this share of the last outcomes failed; None: never."""
    window: int = 1_000
    """So many of the last outcomes count."""
    least: int = 100
    """The share of fewer outcomes says nothing: a few bad records at the start are no outage."""
    in_a_row: int = 50
    """It opens as well when so many failed and none succeeded between them, whatever the window holds."""
    doubtful: int = 6
    """From so many in a row on failures do not count against their records' limits."""
    doubt_seconds: float = 300.0
    """How long after the first of the row they do not."""
    probes: RetryPolicy = field(default_factory=lambda: RetryPolicy(cap_seconds=OUTAGE_CAP_SECONDS))
    """The intervals between probes; its limit does not matter."""

    def __post_init__(self) -> None:
        if self.failure_ratio is not None and not 0 < self.failure_ratio <= 1:
            raise ValueError(f"expected failure_ratio to be None or in (0, 1], got {self.failure_ratio!r}")
        if min(self.window, self.least, self.in_a_row, self.doubtful) < 1:
            raise ValueError(f"expected a window, least outcomes and rows of at least 1, got {self}")


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerPause:
    """How it stands with an open breaker."""

    failed: int
    """Of the outcomes that opened it."""
    outcomes: int
    probes_failed: int
    """Since it opened."""
    probe_at: float | None
    """When the next record is tried; None: one is tried now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerNotice:
    """Something that people should be told: it opened, a probe failed, or it closed."""

    event: BreakerEvent
    failed: int
    outcomes: int
    probes_failed: int
    wait_seconds: float
    """Until the next probe; 0 when it closed."""


class CircuitBreaker:
    """The breaker of one consumer, over all its shards. Mutable; not thread-safe.

    Args:
        rule: when it opens.
        random: numbers from [0, 1), for the intervals between probes.
    """

    def __init__(self, rule: BreakerRule, random: Callable[[], float]) -> None:
        self.rule = rule
        self._random = random
        self._state = BreakerState.CLOSED
        # Two plain attributes: the first is looked at for each record, the second for each ack.
        self.is_open = False
        """Whether records wait, and nothing is given up."""
        self.is_content = rule.failure_ratio is None
        """Whether one more success changes nothing."""
        self._runs: deque[tuple[float, float]] = deque()
        """The last outcomes, as (outcomes, failures) of those that came together, oldest first."""
        self._outcomes = self._failed = 0.0
        self._row = 0
        """How many outcomes failed since the last success."""
        self._row_began_at = -math.inf
        self.noted = 0
        """How many outcomes it took in so far."""
        self._opened_with = (0, 0)
        self.probe_at = math.inf
        """While it is open: when the next record may be tried."""
        self._probes_sent = self._probes_failed = 0
        self._notices: deque[BreakerNotice] = deque(maxlen=_MOST_NOTICES)

    @property
    def state(self) -> BreakerState:
        return self._state

    @property
    def pause(self) -> BreakerPause | None:
        """How it stands while it is open; None while it is not."""
        if not self.is_open:
            return None
        failed, outcomes = self._opened_with
        return BreakerPause(
            failed=failed,
            outcomes=outcomes,
            probes_failed=self._probes_failed,
            probe_at=None if self._state is _S.PROBING else self.probe_at,
        )

    @property
    def prefers_fresh(self) -> bool:
        return self.is_open and self._probes_sent % 2 == 1

    @property
    def probes_fresh(self) -> tuple[bool, bool]:
        """Whether the next probe is a fresh record, and if there is none: a retry first, then the other kind."""
        return (True, False) if self.prefers_fresh else (False, True)

    def doubts(self, now: float) -> bool:
        """Tell whether so many failed in a row that this may be the beginning of an outage."""
        rule = self.rule
        return self._row >= rule.doubtful and now < self._row_began_at + rule.doubt_seconds

    def may_probe(self, now: float) -> bool:
        return self._state is _S.OPEN and now >= self.probe_at

    def note(self, *, outcomes: int, failed: int, now: float, last_in_row: int = 0) -> None:
        """Take outcomes in that came together. While it is open they change nothing.

        Args:
            outcomes: how many.
            failed: how many of them are failures.
            now: the time.
            last_in_row: if some succeeded, how many failed after the last of these, as far as that is known.
        """
        ratio = self.rule.failure_ratio
        if ratio is None or self.is_open or not outcomes:
            return
        self.noted += outcomes
        self._add(outcomes, failed)
        if failed < outcomes:
            self._row = 0
            failed_in_row = last_in_row
        else:
            failed_in_row = failed
        if failed_in_row and not self._row:
            self._row_began_at = now
        self._row += failed_in_row
        if len(self._runs) == 1 and not self._runs[0][1]:
            self._failed = 0.0  # exactly: fractions were subtracted from it
            self.is_content = self._outcomes >= self.rule.window - 0.5
        else:
            self.is_content = False
        # Rounded: what was cut out of the window are fractions.
        enough = self._outcomes >= min(self.rule.least, self.rule.window) - 0.5
        if failed and enough and self._failed >= ratio * self._outcomes - 1e-6:
            self._open(round(self._failed), round(self._outcomes), now)
        elif self._row >= self.rule.in_a_row:
            self._open(self._row, self._row, now)

    def probe_sent(self) -> None:
        self._probes_sent += 1
        self._step(_E.PROBE_SENT)

    def probe_failed(self, now: float) -> None:
        """Note that it failed: the next one comes after a longer time."""
        if self._step(_E.PROBE_FAILED):
            self._probes_failed += 1
            self._wait(now)
            self._tell(_E.PROBE_FAILED, now)

    def probe_vanished(self, now: float) -> None:
        """Note that nobody will ever know: another one comes, after as long a time as this one did."""
        if self._step(_E.PROBE_VANISHED):
            self._wait(now)

    def probe_lost(self) -> None:
        """Note that its shard was lost, and it with it: another one may be sent at once."""
        self._step(_E.PROBE_VANISHED)

    def probe_missed(self) -> None:
        """Note that it tried no record, but passed some over: another one of its kind may be sent at once."""
        if self._step(_E.PROBE_VANISHED):
            self._probes_sent -= 1

    def probe_passed(self) -> None:
        if self._step(_E.PROBE_PASSED):
            self._closed(_E.PROBE_PASSED)

    def resume(self) -> bool:
        if not self._step(_E.RESUMED):
            return False
        self._closed(_E.RESUMED)
        return True

    def next_probe(self, retry_due: float | None) -> float | None:
        """Tell when the next record can be tried, if it is open; None: one is tried now.

        Args:
            retry_due: when the next retry is due; None if none waits.
        """
        if self._state is _S.PROBING:
            return None
        return self.probe_at if retry_due is None or self.prefers_fresh else max(retry_due, self.probe_at)

    def take_notices(self) -> list[BreakerNotice]:
        notices = list(self._notices)
        self._notices.clear()
        return notices

    def _step(self, event: BreakerEvent) -> bool:
        before = self._state
        self._state = TRANSITIONS[before, event]
        self.is_open = self._state is not _S.CLOSED
        return self._state is not before

    def _open(self, failed: int, outcomes: int, now: float) -> None:
        self._opened_with = failed, outcomes
        self._probes_sent = self._probes_failed = 0
        self._step(_E.TRIPPED)
        self._wait(now)
        self._tell(_E.TRIPPED, now)

    def _closed(self, event: BreakerEvent) -> None:
        """Begin anew: the old failures must not open it again."""
        self._runs.clear()
        self._outcomes = self._failed = 0.0
        self._row = 0
        self.is_content = False
        self._tell(event, None)

    def _wait(self, now: float) -> None:
        again = self.rule.probes.again(attempts=self._probes_failed + 1, random=self._random())
        self.probe_at = now + again.delay_seconds

    def _tell(self, event: BreakerEvent, now: float | None) -> None:
        failed, outcomes = self._opened_with
        self._notices.append(
            BreakerNotice(
                event=event,
                failed=failed,
                outcomes=outcomes,
                probes_failed=self._probes_failed,
                wait_seconds=0.0 if now is None else self.probe_at - now,
            )
        )

    def _add(self, outcomes: float, failed: float) -> None:
        """Add outcomes, and let as many of the oldest fall out; of those that came together, in proportion."""
        window = float(self.rule.window)
        if outcomes > window:
            outcomes, failed = window, failed * window / outcomes
        before = self._runs[-1] if self._runs else (0.0, 1.0)
        if before[1] == failed == 0.0:
            self._runs[-1] = before[0] + outcomes, 0.0
        else:
            self._runs.append((outcomes, failed))
        self._outcomes += outcomes
        self._failed += failed
        while self._outcomes > window:
            oldest, oldest_failed = self._runs[0]
            cut = min(oldest, self._outcomes - window)
            cut_failed = oldest_failed * cut / oldest
            if cut == oldest:
                self._runs.popleft()
            else:
                self._runs[0] = oldest - cut, oldest_failed - cut_failed
            self._outcomes -= cut
            self._failed -= cut_failed
