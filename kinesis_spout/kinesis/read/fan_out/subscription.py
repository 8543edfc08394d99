"""One shard's subscription, as its reader and the I/O thread see it: the events that came, and where to go on.

Theory. A subscription lasts at most 5 minutes, and any of its connections may break. What lasts is the
*place*: the continuation number of the last event that was taken in whole. Every connection begins after it,
and what a connection brought of an event before it broke is dropped. So nothing is lost, and nothing comes
twice; should a server begin too early nevertheless, what was taken in already is left out.

Events wait in a queue that is bounded in bytes. While it is full the socket is not read, and Kinesis stops
sending; a connection that does not survive the pause is replaced when there is room again.
"""

import math
import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kinesis_spout.kinesis.read.fan_out.event_stream import ShardEvent
from kinesis_spout.model.errors import KinesisSpoutError
from shard_state import Position, SequenceNumber

DEFAULT_QUEUE_BYTES: Final = 4 * 1024 * 1024
"""As the events came, in base64: what a shard pushes in a second and a half. One event may go beyond it."""


@dataclass(slots=True, kw_only=True)
class _Waiting:
    event: ShardEvent
    size_bytes: int


class Subscription:
    """Mutable. Thread-safe: one thread takes events out, the I/O thread brings them.

    ``ready`` is called when events, or a failure, come after there were none; on the I/O thread.
    """

    def __init__(
        self, shard_id: str, position: Position, *, max_bytes: int, ready: Callable[[], None]
    ) -> None:
        self.shard_id = shard_id
        self._place = position
        self._max_bytes = max_bytes
        self._ready = ready
        self._lock = threading.Lock()
        self._events: deque[_Waiting] = deque()
        self._bytes = 0
        self._has_news = False
        """There are events with records, or the shard's end."""
        self._last_number = -1
        """Of the last record taken in."""
        self._failure: KinesisSpoutError | None = None
        self._closed = False
        self._heard_at = -math.inf
        self.taken_up_to = -math.inf
        """When the last event came of what was taken out: the clock's monotonic time."""
        self.at_end = False
        """The last event of the shard was taken in."""

    @property
    def place(self) -> Position:
        with self._lock:
            return self._place

    @property
    def is_full(self) -> bool:
        return self._bytes >= self._max_bytes

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def waiting_bytes(self) -> int:
        return self._bytes

    # The I/O thread

    def take_in(self, event: ShardEvent, size_bytes: int, now: float) -> None:
        """Queue an event, which came at ``now`` (monotonic)."""
        if event.records and int(event.records[0].sequence_number) <= self._last_number:
            first = bisect_right(
                event.records, self._last_number, key=lambda record: int(record.sequence_number)
            )
            event.records = event.records[first:]
        with self._lock:
            if event.records:
                self._last_number = int(event.records[-1].sequence_number)
            if event.continuation_sequence_number is not None:
                self._place = Position.after(SequenceNumber.parse(event.continuation_sequence_number))
            elif event.records:
                self._place = Position.after(SequenceNumber(self._last_number))
            self.at_end = event.at_end
            self._heard_at = now
            if self._events and not event.records and not event.at_end and not self._events[-1].event.records:
                # Of events that only say how far behind they are, the newest counts.
                self._events[-1].event = event
                return
            self._events.append(_Waiting(event=event, size_bytes=size_bytes))
            self._bytes += size_bytes
            is_news = not self._has_news and (bool(event.records) or event.at_end)
            self._has_news |= is_news
        if is_news:
            self._ready()

    def fail(self, failure: KinesisSpoutError) -> None:
        with self._lock:
            self._failure = failure
        self._ready()

    # Who reads

    def take_out(self, limit: int) -> tuple[list[ShardEvent], bool]:
        """Give the oldest events, of at most ``limit`` records together, and whether that made room.

        Raises:
            KinesisSpoutError: there is no connection. It is raised once, after the events that came before it.
        """
        with self._lock:
            if not self._events and self._failure is not None:
                failure, self._failure = self._failure, None
                raise failure
            was_full = self.is_full
            taken: list[ShardEvent] = []
            while self._events and limit > 0:
                waiting = self._events[0]
                event = waiting.event
                if len(event.records) > limit:
                    taken.append(ShardEvent(records=event.records[:limit]))
                    taken[-1].millis_behind_latest = event.millis_behind_latest
                    event.records = event.records[limit:]
                    break
                limit -= len(event.records)
                taken.append(event)
                self._events.popleft()
                self._bytes -= waiting.size_bytes
            self._has_news &= bool(self._events)
            self.taken_up_to = self._heard_at
            return taken, was_full and not self.is_full

    def close(self) -> None:
        """Forget what waits; nobody asks any more."""
        with self._lock:
            self._closed = True
            self._events.clear()
            self._bytes = 0
