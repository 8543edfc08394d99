"""Looks at one consumer as an operator would: its progress, and since when each shard has not moved.

A look copies what the consumer has counted, under its lock, for about 5 microseconds a shard. It is kept for
a moment, so that several monitors cost one look. It asks without the lock whether the consumer is alive: a
thread that keeps the lock must not silence the answer.

A shard **stands still** when it has work and nothing of it was delivered, finished or stored for too long:

* what was handed out, an error of reading, a read that does not end, and dead letters that are not stored have
  ``stalled_after_seconds``;
* records of a full micro-batch have the time that this may last, where that is more;
* a shard that only waits its turn, while others of the consumer are served, has three times as long, because a
  micro-batch can be full;
* one that waits for the rate of deliveries, or by its order or a limit for a retry that is not due, waits as it
  should, and does not stand still.
"""

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, Final

from kinesis_spout.consumer.consumer import Consumer
from kinesis_spout.consumer.counters import Counters
from kinesis_spout.consumer.ports import ShardReading
from kinesis_spout.consumer.trouble_reports import trouble_text
from kinesis_spout.model.errors import KinesisSpoutError
from kinesis_spout.monitoring.consumer_look import OWNED, ConsumerLook, Life, Retrying, ShardLook
from shard_state import ShardPhase, ShardStatus

_KEPT_SECONDS: Final = 0.25
_LOCK_SECONDS: Final = 1.0
"""The longest wait of a look for the consumer's lock, which is held for milliseconds."""
_RATE_SECONDS: Final = 10.0
"""Over how long the rates are."""
_WAITS_A_TURN: Final = 3.0
"""A shard may wait for others so many times as long."""
_NOT_READ: Final = ShardReading(None, has_records=False, since=None)


@dataclass(slots=True)
class _Memory:
    """A shard as it was seen before. Mutable."""

    seen: tuple[object, ...]
    moved_at: float
    """Or when it had no work."""
    checkpoint: object
    stored_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Patience:
    """The time that a shard may be still, by what it waits for."""

    now: float
    seconds: float
    turn_seconds: float
    """For one that only waits its turn."""

    def allowed(self, status: ShardStatus, *, is_read: bool, busy_until: float | None) -> float:
        """Give the seconds for a shard; ``is_read`` says that a read of it fails or does not end."""
        if not is_read and busy_until is not None and self.now < busy_until:
            return inf
        if is_read or status.in_flight or status.slices_out or status.exhausted:
            return self.seconds
        if status.waits_until is not None:
            is_due = status.waits_until <= self.now - self.seconds
            return self.turn_seconds if is_due else inf
        return self.turn_seconds


class ConsumerWatch:
    """Follows one consumer from look to look. Thread-safe."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._lock = threading.Lock()
        self._last: ConsumerLook | None = None
        self._memories: dict[str, _Memory] = {}
        self._failed_at: float | None = None
        """When a look last waited for the consumer's lock in vain."""
        self._finished = 0
        self._progressed_at: float | None = None
        self._delivered = 0
        self._delivered_at: float | None = None
        self._unstored_since: float | None = None
        self._rates: deque[tuple[float, int, int]] = deque()

    @property
    def consumer(self) -> Consumer:
        return self._consumer

    def life(self) -> Life:
        """Say whether the consumer can go on by itself. Takes no lock, and does no I/O."""
        consumer = self._consumer
        listener = consumer.listener
        turned_at = None if listener is None else listener.turned_at
        return Life(
            app=consumer.config.app,
            stream=consumer.config.stream_name,
            fatal=_fatal(consumer),
            unturned_seconds=0.0 if turned_at is None else consumer.now - turned_at,
        )

    def look(self) -> ConsumerLook:
        """Describe the consumer as it is now, or was a moment ago. Does no I/O.

        While another thread keeps the consumer's lock it is the last look, with ``late_seconds``.

        Raises:
            TimeoutError: the lock is kept, and there was no look before.
        """
        with self._lock:
            last, now = self._last, self._consumer.now
            if last is not None and now - last.now < _KEPT_SECONDS:
                return last
            tried_just_now = self._failed_at is not None and now - self._failed_at < _LOCK_SECONDS
            if not tried_just_now and self._consumer.lock.acquire(timeout=_LOCK_SECONDS):
                try:
                    copied = self._copied()
                finally:
                    self._consumer.lock.release()
                self._failed_at, self._last = None, self._looked(self._consumer.now, **copied)
                return self._last
            if not tried_just_now:
                self._failed_at = self._consumer.now
            if last is None:
                raise TimeoutError(f"expected the consumer's lock within {_LOCK_SECONDS:g} s, got none")
            return replace(last, late_seconds=self._consumer.now - last.now)

    def retrying(self, most: int) -> list[Retrying]:
        """The failed records that come again first; none while another thread keeps the consumer's lock."""
        consumer, found = self._consumer, list[Retrying]()
        if not consumer.lock.acquire(timeout=_LOCK_SECONDS):
            return []
        try:
            now, manager = consumer.now, consumer.manager
            for shard_id in manager.owned:
                state = manager.shard(shard_id)
                assert state is not None, "it is owned"
                found += (
                    Retrying(shard_id, sequence, state.tracker.attempts(sequence), max(0.0, due_at - now))
                    for sequence, due_at in state.retries.soonest(most)
                )
        finally:
            consumer.lock.release()
        return sorted(found, key=lambda each: each.due_in_seconds)[:most]

    def _copied(self) -> dict[str, Any]:
        """Copy what the consumer's lock guards."""
        consumer = self._consumer
        listener, figures, trouble = consumer.listener, consumer.figures, consumer.trouble
        sharing, error = consumer.sharing, consumer.retried_error
        is_over = listener is None or sharing.all_over or consumer.run_is_done
        return {
            "statuses": consumer.manager.status(),
            "readings": {} if listener is None else listener.readings,
            "errors": consumer.read_errors.by_shard,
            "counters": Counters.total([consumer.counters]),
            "copied": {
                "failures": consumer.failures.counts,
                "given_up": dict(figures.given_up),
                "attempts": figures.attempts.counted(),
                "ages": figures.ages.counted(),
                "handling": figures.handling.counted(),
                "commits": figures.commits.counted(),
                "committed_at": figures.committed_at,
                "buffered_bytes": 0 if listener is None else listener.buffered_bytes,
                "pause": None if trouble is None else trouble_text(trouble),
                "is_over": is_over,
                "uncommitted": consumer.uncommitted,
                "paused_by_operator": consumer.paused_by_operator,
                "retried_error": None if error is None else str(error),
                "is_placed": sharing.is_placed,
                "assigned": dict(sharing.assigned),
                "assignment_epoch": sharing.epoch,
            },
        }

    def _looked(
        self,
        now: float,
        *,
        statuses: Sequence[ShardStatus],
        readings: Mapping[str, ShardReading],
        errors: Mapping[str, KinesisSpoutError],
        counters: Counters,
        copied: dict[str, Any],
    ) -> ConsumerLook:
        consumer = self._consumer
        self._note_rates(now, counters)
        for gone in self._memories.keys() - {status.shard_id for status in statuses}:
            del self._memories[gone]
        config, patience = consumer.config, self._patience(now)
        is_certain = consumer.ports.coordinator.is_certain()
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
            unstored_seconds=self._unstored_seconds(now, copied["uncommitted"], copied["committed_at"]),
            shards=[
                self._shard(status, readings.get(status.shard_id), errors.get(status.shard_id), patience)
                for status in statuses
            ],
            fatal=_fatal(consumer),
            is_certain=is_certain,
            leads=is_certain and consumer.leads,
            delivered_per_second=self._rate(1),
            acked_per_second=self._rate(2),
            commit_interval_seconds=config.commit_interval_seconds,
            hung_seconds=self._hung_seconds(now),
            **copied,
        )

    def _shard(
        self,
        status: ShardStatus,
        reading: ShardReading | None,
        error: KinesisSpoutError | None,
        patience: _Patience,
    ) -> ShardLook:
        shard_id, now = status.shard_id, patience.now
        lag, has_records, since, busy_until = reading or _NOT_READ
        reading_seconds = 0.0 if since is None else now - since
        # Pages that come and are kept, before anything is handed out or behind it, move nothing.
        read_to = None if status.in_flight or has_records else lag
        seen = (
            status.epoch, status.phase, status.checkpoint, status.in_flight, status.waiting, status.exhausted,
            status.holes, has_records, read_to,
        )  # fmt: skip
        memory = self._memories.get(shard_id)
        if memory is None:
            memory = self._memories[shard_id] = _Memory(seen, now, status.checkpoint, now)
        is_unread = error is not None or reading_seconds >= patience.seconds
        if memory.seen != seen or not _has_work(
            status, is_unread=is_unread, is_behind=bool(has_records or lag)
        ):
            memory.seen, memory.moved_at = seen, now
        is_unfinished = bool(status.in_flight or status.waiting or status.exhausted)
        if memory.checkpoint != status.checkpoint or not is_unfinished:
            memory.checkpoint, memory.stored_at = status.checkpoint, now
        still_seconds, allowed = now - memory.moved_at, inf
        if still_seconds >= patience.seconds:
            allowed = patience.allowed(status, is_read=is_unread, busy_until=busy_until)
        return ShardLook(
            status=status,
            lag_millis=lag,
            has_records=has_records,
            reading_seconds=reading_seconds,
            still_seconds=still_seconds,
            allowed_seconds=allowed,
            unfinished_seconds=now - memory.stored_at,
            read_error=None if error is None else str(error),
        )

    def _patience(self, now: float) -> _Patience:
        consumer, seconds = self._consumer, self._consumer.config.stalled_after_seconds
        serves = self._delivered_at is not None and now - self._delivered_at < seconds
        turn_seconds = _WAITS_A_TURN * seconds if serves else seconds
        if consumer.deliveries.is_limited:
            due_at = consumer.deliveries.due_at(consumer, now)
            if serves or due_at is None or due_at > now:
                turn_seconds = inf
        return _Patience(now=now, seconds=seconds, turn_seconds=turn_seconds)

    def _hung_seconds(self, now: float) -> float:
        since = self._consumer.chores_since
        hung = 0.0 if since is None else now - since
        return hung if hung >= self._consumer.config.stalled_after_seconds else 0.0

    def _unstored_seconds(self, now: float, uncommitted: int, committed_at: float | None) -> float:
        if not uncommitted:
            self._unstored_since = None
            return 0.0
        self._unstored_since = self._unstored_since or now
        return now - max(self._unstored_since, committed_at or 0.0)

    def _note_rates(self, now: float, counters: Counters) -> None:
        if counters.finished != self._finished:
            self._finished, self._progressed_at = counters.finished, now
        moved = counters.delivered + counters.finished
        if moved != self._delivered:
            self._delivered, self._delivered_at = moved, now
        self._rates.append((now, counters.delivered, counters.acked))
        while len(self._rates) > 2 and self._rates[1][0] <= now - _RATE_SECONDS:  # noqa: PLR2004 - both ends
            self._rates.popleft()

    def _rate(self, which: int) -> float:
        first, last = self._rates[0], self._rates[-1]
        passed = last[0] - first[0]
        return round((last[which] - first[which]) / passed, 1) if passed > 0 else 0.0


def _fatal(consumer: Consumer) -> str | None:
    error = consumer.fatal
    return None if error is None else f"{type(error).__name__}: {error}"


def _has_work(status: ShardStatus, *, is_unread: bool, is_behind: bool) -> bool:
    """Say whether something of a shard is to be delivered or finished now, or cannot be read."""
    if status.phase not in OWNED or status.paused_by_operator:
        return False
    is_out = bool(status.in_flight or status.exhausted or status.slices_out)
    return is_out or (status.phase is ShardPhase.READING and (is_behind or is_unread))
