"""One shard's subscription, for its reader and the I/O thread: the events that came, the place after them.

A subscription lasts at most 5 minutes, and its connections can break. What lasts is the *place*: the
continuation number of the last complete event. Every connection begins after it, and a partial event of a
broken connection is dropped. So nothing is lost and nothing comes twice; if a server begins too early,
records that came before are left out.

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
"""In base64, as events come: what a shard pushes in 1.5 s. One event may exceed it."""


@dataclass(slots=True, kw_only=True)
class _Waiting:
    event: ShardEvent
    size_bytes: int


class Subscription:
    """Mutable. Thread-safe: one thread takes events out, the I/O thread adds them.

    ``ready`` is called on the I/O thread when events, or a failure, come after there were none.
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
        """Of the last record added."""
        self._failure: KinesisSpoutError | None = None
        self._closed = False
        self._heard_at = -math.inf
        self.taken_up_to = -math.inf
        """When the newest event that was taken out came; monotonic."""
        self.at_end = False

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

    # Called on the I/O thread.

    def take_in(self, event: ShardEvent, size_bytes: int, now: float) -> None:
        """Queue an event that came at ``now`` (monotonic)."""
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
                # Of events that only tell the lag, the newest counts.
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

    # Called by the reader.

    def take_out(self, limit: int) -> tuple[list[ShardEvent], bool]:
        """Return the oldest events, of at most ``limit`` records together, and whether that made room.

        Raises:
            KinesisSpoutError: there is no connection. Raised once, after the events before it.
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
        with self._lock:
            self._closed = True
            self._events.clear()
            self._bytes = 0
