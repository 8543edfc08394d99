"""Looks at one consumer as an operator would: where it stands, and since when each shard has not moved.

A look copies what the consumer has counted, under its lock, for about 5 microseconds a shard. It is kept for a
second, so that several monitors cost one look.
"""

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kinesis_spout.consumer.consumer import Consumer
from kinesis_spout.consumer.counters import Counters
from kinesis_spout.consumer.figures import GivenUp
from kinesis_spout.consumer.pause_reports import pause_text
from kinesis_spout.model.distribution import Counted
from kinesis_spout.model.errors import KinesisSpoutError
from shard_state import ShardPhase, ShardStatus

_KEPT_SECONDS: Final = 1.0
_RATE_SECONDS: Final = 10.0
"""Over how long the rates are."""
_OWNED: Final = frozenset({ShardPhase.READING, ShardPhase.AT_END, ShardPhase.AT_BOUND})


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardLook:
    """One shard at one moment."""

    status: ShardStatus
    lag_millis: int | None
    """As its last page said; None while it was not read."""
    still_seconds: float
    """For how long nothing of it was delivered, finished or stored."""
    unfinished_seconds: float
    """For how long its checkpoint has not moved although records behind it are unfinished; 0 if none is."""
    read_error: str | None
    """The error of reading it that is being retried."""

    @property
    def is_owned(self) -> bool:
        return self.status.phase in _OWNED

    @property
    def has_work(self) -> bool:
        """Whether something of it is to be delivered or finished, or cannot be read."""
        status = self.status
        unfinished = status.in_flight or status.exhausted or self.lag_millis
        return self.is_owned and bool(unfinished or self.read_error)

    def stalled_for(self, seconds: float) -> bool:
        return self.has_work and not self.status.paused_by_operator and self.still_seconds >= seconds

    @property
    def reason(self) -> str:
        """What it holds, in words, if it has not moved."""
        status, behind = self.status, self.lag_millis or 0
        parts = [
            f"{status.in_flight:,} in flight" * bool(status.in_flight),
            f"{status.waiting:,} retries waiting" * bool(status.waiting),
            f"{status.exhausted:,} dead letters not stored" * bool(status.exhausted),
            f"{behind / 1000:.1f} s behind the tip" * bool(behind),
            self.read_error or "",
        ]
        return f"has not moved for {self.still_seconds:.0f} s: " + ", ".join(filter(None, parts))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerLook:
    """One consumer at one moment. Times are monotonic unless they say otherwise."""

    now: float
    time: float
    """Seconds since the epoch, at ``now``."""
    app: str
    stream: str
    member: str
    door: str
    is_standby: bool
    counters: Counters
    failures: Mapping[str, int]
    given_up: Mapping[GivenUp, int]
    attempts: Counted
    ages: Counted
    handling: Counted
    commits: Counted
    committed_at: float | None
    progressed_at: float | None
    """When a record was finished last, to a second; None: none was yet."""
    uncommitted: int
    is_over: bool
    """Whether the run has come up to its end, or every shard is over."""
    shards: Sequence[ShardLook]
    buffered_bytes: int
    turned_at: float | None
    """When the loop of a door that has one turned last."""
    pause: str | None
    """What the breaker's pause says; None without one."""
    paused_by_operator: str | None
    retried_error: str | None
    fatal: str | None
    is_certain: bool
    """Whether ZooKeeper has answered lately, so that nobody else owns the shards."""
    is_placed: bool
    """Whether the newest assignment has this member."""
    leads: bool
    assigned: Mapping[str, int]
    """How many shards each living member has by the newest assignment."""
    assignment_epoch: int
    delivered_per_second: float
    acked_per_second: float
    commit_interval_seconds: float
    stalled_after_seconds: float

    @property
    def owned(self) -> list[ShardLook]:
        return [shard for shard in self.shards if shard.is_owned]

    @property
    def stalled(self) -> list[ShardLook]:
        """Shards that stand still; none while the whole application is paused."""
        if self.pause is not None:
            return []
        return [shard for shard in self.shards if shard.stalled_for(self.stalled_after_seconds)]

    @property
    def lag_millis(self) -> int | None:
        """Of the shard that is furthest behind; None before the first page of any."""
        return max((shard.lag_millis for shard in self.owned if shard.lag_millis is not None), default=None)


@dataclass(slots=True)
class _Memory:
    """What was seen of a shard before. Mutable."""

    seen: tuple[object, ...]
    moved_at: float
    checkpoint: object
    stored_at: float


class ConsumerWatch:
    """Follows one consumer from look to look. Thread-safe."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._lock = threading.Lock()
        self._last: ConsumerLook | None = None
        self._memories: dict[str, _Memory] = {}
        self._finished = 0
        self._progressed_at: float | None = None
        self._rates: deque[tuple[float, int, int]] = deque()

    @property
    def consumer(self) -> Consumer:
        return self._consumer

    def look(self) -> ConsumerLook:
        """Describe the consumer as it is now, or was less than a second ago. Does no I/O."""
        with self._lock:
            last, now = self._last, self._consumer.now
            if last is None or now - last.now >= _KEPT_SECONDS:
                self._last = last = self._looked(now)
            return last

    def _looked(self, now: float) -> ConsumerLook:
        consumer = self._consumer
        with consumer.lock:
            listener, figures, pause = consumer.listener, consumer.figures, consumer.breaker_pause
            sharing, counters = consumer.sharing, Counters.total([consumer.counters])
            statuses = consumer.manager.status()
            lags = {} if listener is None else dict(listener.lags)
            errors = consumer.read_errors.by_shard
            copied: dict[str, Any] = {
                "failures": consumer.failures.counts,
                "given_up": dict(figures.given_up),
                "attempts": figures.attempts.counted(),
                "ages": figures.ages.counted(),
                "handling": figures.handling.counted(),
                "commits": figures.commits.counted(),
                "committed_at": figures.committed_at,
                "buffered_bytes": 0 if listener is None else listener.buffered_bytes,
                "turned_at": None if listener is None else listener.turned_at,
                "pause": None if pause is None else pause_text(pause),
                "is_over": sharing.all_over or consumer.run_is_done,
                "is_placed": sharing.is_placed,
                "assigned": dict(sharing.assigned),
                "assignment_epoch": sharing.epoch,
            }
        self._note_rates(now, counters)
        for gone in self._memories.keys() - {status.shard_id for status in statuses}:
            del self._memories[gone]
        config, error = consumer.config, consumer.retried_error
        return ConsumerLook(
            now=now,
            time=consumer.ports.clock.time(),
            app=config.app,
            stream=config.stream_name,
            member=consumer.ports.coordinator.member,
            door=consumer.door,
            is_standby=config.mode == "standby",
            counters=counters,
            progressed_at=self._progressed_at,
            uncommitted=consumer.uncommitted,
            shards=[self._shard(status, lags, errors, now) for status in statuses],
            paused_by_operator=consumer.paused_by_operator,
            retried_error=None if error is None else str(error),
            fatal=None if consumer.fatal is None else f"{type(consumer.fatal).__name__}: {consumer.fatal}",
            is_certain=consumer.ports.coordinator.is_certain(),
            leads=_leads(consumer),
            delivered_per_second=self._rate(1),
            acked_per_second=self._rate(2),
            commit_interval_seconds=config.commit_interval_seconds,
            stalled_after_seconds=config.stalled_after_seconds,
            **copied,
        )

    def _shard(
        self,
        status: ShardStatus,
        lags: Mapping[str, int],
        errors: Mapping[str, KinesisSpoutError],
        now: float,
    ) -> ShardLook:
        shard_id = status.shard_id
        lag, error = lags.get(shard_id), errors.get(shard_id)
        seen = (
            status.epoch, status.phase, status.checkpoint, status.in_flight, status.waiting, status.exhausted,
            status.holes, lag == 0,
        )  # fmt: skip
        memory = self._memories.get(shard_id)
        if memory is None:
            memory = self._memories[shard_id] = _Memory(seen, now, status.checkpoint, now)
        if memory.seen != seen:
            memory.seen, memory.moved_at = seen, now
        is_unfinished = bool(status.in_flight or status.waiting or status.exhausted)
        if memory.checkpoint != status.checkpoint or not is_unfinished:
            memory.checkpoint, memory.stored_at = status.checkpoint, now
        return ShardLook(
            status=status,
            lag_millis=lag,
            still_seconds=now - memory.moved_at,
            unfinished_seconds=now - memory.stored_at,
            read_error=None if error is None else str(error),
        )

    def _note_rates(self, now: float, counters: Counters) -> None:
        if counters.finished != self._finished:
            self._finished, self._progressed_at = counters.finished, now
        self._rates.append((now, counters.delivered, counters.acked))
        while len(self._rates) > 2 and self._rates[1][0] <= now - _RATE_SECONDS:  # noqa: PLR2004 - both ends
            self._rates.popleft()

    def _rate(self, which: int) -> float:
        first, last = self._rates[0], self._rates[-1]
        passed = last[0] - first[0]
        return round((last[which] - first[which]) / passed, 1) if passed > 0 else 0.0


def _leads(consumer: Consumer) -> bool:
    try:
        return consumer.ports.group.leads()
    except KinesisSpoutError:
        return False  # its candidacy has ended, which ends the consumer: its own error says why
