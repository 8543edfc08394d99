"""The plain-Python door without threads, for tests in which nothing happens but by the clock they hold.

A ``RecordSpout`` lists, commits, dead-letters and fetches on threads. They wait in real time, so under a
``ManualClock`` they come too late, or act once more after a test has "killed" their process. A ``SteppedSpout`` is
the same spout with the same rules; what the threads would do is done by ``next_tuple``, as far as it is due by the
clock:

    clock = ManualClock()
    stream, zookeeper = InMemoryStream("orders", clock=clock), InMemoryZooKeeper()
    spout = SteppedSpout(ports=in_memory_ports(stream, zookeeper), stream="orders", app="billing")
"""

import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from math import inf
from typing import Any

from kinesis_spout.consumer.consumer import Consumer
from kinesis_spout.consumer.ports import Ports
from kinesis_spout.consumer.stream_set import StreamSet
from kinesis_spout.kinesis.read.prefetcher import Fetch, Prefetcher
from kinesis_spout.model.clock import Clock
from kinesis_spout.plain.record_spout import RecordSpout
from kinesis_spout.plain.stream_tuples import Emitted, StreamTuples
from kinesis_spout.ports import Page, ShardGetter
from kinesis_spout.settings import SpoutConfig
from kinesis_spout.testing.ports import InMemoryShardLister
from kinesis_spout.testing.stream import InMemoryStream
from shard_state import ShardPhase, StateManager


class SteppedSpout(RecordSpout):
    """A ``RecordSpout`` whose ``next_tuple`` does what is due by the clock. Give it ports in memory.

    Mutable; one thread's. All else is as in ``RecordSpout``.
    """

    _rest_seconds = 0.0

    def next_tuple(self) -> Emitted | None:
        """Do what is due, then give the next tuple; None if nothing is due at this time of the clock."""
        for _ in range(2):  # what comes next may have to be stored first
            self.do_what_is_due()
            emitted = super().next_tuple()
            if emitted is not None or not self._active:
                return emitted
        return None

    def do_what_is_due(self) -> None:
        """List, acquire, commit, dead-letter, fetch and time out, as far as it is due; hand out nothing."""
        streams = self._opened()
        streams.tend()
        for consumer in self._stepped():
            consumer.do_chores()
        self._fetches.fetch_due()
        for tuples in streams.current.values():
            tuples.fail_overdue()
        if self._announcements is not None:
            self._announcements.make()

    def crash(self) -> None:
        """End as a killed process does: nothing more is stored, and its shards are free at once."""
        for tuples in self._opened().current.values():
            tuples.shards.stop()
            tuples.consumer.close(commit=False)
        self._closed, self._active, self._only = True, False, None

    @property
    def all_done(self) -> bool:
        """True if all that can be read was handed out, and all of that is acked or durably dead-lettered.

        With `until` that is so when the run has come up to it, and all is stored.
        """
        if self.is_done:
            return True
        return all(self._is_all_done(consumer) for consumer in self._stepped())

    @property
    def due_at(self) -> float:
        """The clock's monotonic time at which something can happen next; infinite if nothing ever will.

        Polling a shard that has nothing, and committing, do not count.
        """
        return min((self._next_of(consumer) for consumer in self._stepped()), default=inf)

    def _is_all_done(self, consumer: Consumer) -> bool:
        with consumer.lock:
            is_finished = not consumer.manager.unresolved and not consumer.letters
            return is_finished and self._is_read_up(consumer)

    def _next_of(self, consumer: "_SteppedConsumer") -> float:
        with consumer.lock:
            retry_at = consumer.manager.next_due()
            # Unread records wait with the rest while deliveries are slow.
            to_read = not consumer.manager.blame.is_slowed and not self._is_read_up(consumer)
        moments = [inf if retry_at is None else retry_at]
        if consumer.letters or to_read:
            moments.append(consumer.chores_at)
        if to_read:
            moments.append(self._fetches.due_at)
        return min(moments)

    def _is_read_up(self, consumer: Consumer) -> bool:
        lister, manager = consumer.ports.lister, consumer.manager
        assert isinstance(lister, InMemoryShardLister), "of in_memory_ports"
        phases = {shard.shard_id: shard.phase for shard in manager.status()}
        return all(
            phases.get(shard.shard_id) is ShardPhase.OVER
            or (not shard.closed and _has_read_up(manager, lister.stream, shard.shard_id))
            for shard in lister.list_shards()
        )

    def _new_consumer(self, config: SpoutConfig, ports: Ports) -> Consumer:
        return _SteppedConsumer(config, ports, message_timeout_seconds=config.message_timeout_seconds)

    def _new_prefetcher(self, clock: Clock) -> Prefetcher:
        self._fetches = _SteppedPrefetcher(clock=clock)
        return self._fetches

    def _watch(self, streams: StreamSet[StreamTuples]) -> None:
        """Leave it to ``do_what_is_due``."""

    def _stepped(self) -> "list[_SteppedConsumer]":
        return [consumer for consumer in self._consumers().values() if isinstance(consumer, _SteppedConsumer)]


def _has_read_up(manager: StateManager, stream: InMemoryStream, shard_id: str) -> bool:
    state = manager.shard(shard_id)
    return state is not None and not stream.unread(shard_id, state.position)


@dataclass(slots=True)
class _Work:
    """Work that a thread would do again and again. Mutable."""

    do: Callable[[float], float]
    asked_for: threading.Event
    rest_until: float = 0.0


class _SteppedConsumer(Consumer):
    """A consumer whose background work is done by ``do_chores``. Mutable."""

    _works: tuple[_Work, ...] = ()

    def _await_first_assignment(self) -> None:
        self._chores.share(self.now)

    def _started(self, name: str, work: Callable[[float], float], due: threading.Event) -> None:
        del name
        self._works = (*self._works, _Work(work, due, self.now))

    @property
    def chores_at(self) -> float:
        return min(self.now if work.asked_for.is_set() else work.rest_until for work in self._works)

    def do_chores(self) -> None:
        """Do every work that is due, or was asked for, until none is. An error ends the consumer."""
        while self.fatal is None and self.chores_at <= self.now:
            for work in self._works:
                if work.asked_for.is_set() or work.rest_until <= self.now:
                    work.asked_for.clear()
                    try:
                        work.rest_until = work.do(self.now)
                    except Exception as error:  # noqa: BLE001 - raised by the next check, as with threads
                        self.end_with(error)
                        return

    def _write_the_last_letters(self) -> None:
        self.letters.write()


class _SteppedPrefetcher(Prefetcher):
    """Fetches only when it is asked to. Mutable."""

    def submit(self, fetch: Fetch, due_at: float) -> None:
        """Have ``fetch`` run by the first ``fetch_due`` at ``due_at`` or later."""
        with self._lock:
            self._schedule.put(fetch, due_at, max(0.0, due_at - self._clock.monotonic()))

    @property
    def due_at(self) -> float:
        next_at = self._schedule.next_at()
        return inf if next_at is None else next_at

    def fetch_due(self) -> None:
        now = self._clock.monotonic()
        while (fetch := self._schedule.take(now)) is not None:
            again_at = _done(fetch())
            if again_at is not None:
                self.submit(fetch, again_at)

    async def page(self, getter: ShardGetter, limit: int) -> Page:
        """Read a page here: nothing else runs meanwhile."""
        return getter.read(limit)


def _done(fetch: Coroutine[Any, Any, float | None]) -> float | None:
    """Run a fetch that waits for nothing."""
    try:
        fetch.send(None)
    except StopIteration as end:
        again_at: float | None = end.value
        return again_at
    raise AssertionError("expected a fetch that reads by ``page`` alone, got one that waits")
