"""The buffer of a producer: records come from any thread, within a limit, and are counted to their end."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Self

from kinesis_spout.kinesis.write.hash_key_ranges import HashKeyRanges
from kinesis_spout.kinesis.write.waiting_records import WaitingRecords
from kinesis_spout.producer.tickets import AnyTicket, Ticket
from kinesis_spout.settings.producer_config import ProducerConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerCounts:
    """The records so far, by their outcome. Always ``put == sent + failed + dropped + refused + waiting``."""

    put: int
    """Good records put by ``put``, ``put_many`` or ``send``, or recovered from the spool."""
    sent: int
    failed: int
    """Records given up with an error, including the dead-lettered ones."""
    dropped: int
    refused: int
    """Records not taken over: the buffer was full, the spool could not take them, or it was closing."""
    waiting: int
    """Records that have not ended, in calls or not."""
    waiting_bytes: int
    """Their data and keys."""
    dead_lettered: int
    """The failed ones that are durable in the dead letters."""
    recovered: int
    """The part of ``put`` that came from the spool: an earlier producer left them."""
    calls: int
    retried: int
    """Times that a record was in a call that did not put it."""


class Shares:
    """The part of a filling buffer that each shard may use: one that refuses must not push out the others.

    A quarter of the buffer is free for all. A refusing shard may take nothing of the rest once it has its
    even part of the whole: with ten shards, a tenth. So all of the buffer is used if all shards are slow, and
    three quarters are left to the others if one is. All that waits for the shard counts, from the moment when
    it is taken over. Mutable; the buffer's lock guards it.

    Args:
        ranges: the shards.
        left: how many more records and bytes each refusing shard may have; others are free.
    """

    def __init__(self, ranges: HashKeyRanges, left: dict[str, tuple[int, int]]) -> None:
        self._ranges = ranges
        self._left = left

    @classmethod
    def of(cls, config: ProducerConfig, records: WaitingRecords) -> Self | None:
        """Return the refusing shards' shares; None without any, or if shards cannot be distinguished."""
        shards = len(records.ranges)
        if shards == 1:
            return None
        most, most_bytes = config.max_buffered_records // shards, config.max_buffered_bytes // shards
        left = {name: (most - has, most_bytes - of_bytes) for name, has, of_bytes in records.backlogs()}
        return cls(records.ranges, left) if left else None

    def take(self, put: AnyTicket) -> bool:
        """Count records in, if the shares of all their shards have room."""
        tickets = put.tickets
        for place, ticket in enumerate(tickets):
            if min(self._count(ticket)) <= 0:
                for counted in tickets[: place + 1]:
                    self._count(counted, -1)
                return False
        return True

    def count(self, put: AnyTicket) -> None:
        """Count records in that were taken over already."""
        for ticket in put.tickets:
            self._count(ticket)

    def _count(self, ticket: Ticket, sign: int = 1) -> tuple[float, float]:
        """Count a record in, or out (``sign`` -1); returns the records and bytes that its shard had left."""
        name = ticket.shard_in(self._ranges)
        if name not in self._left:
            return inf, inf
        records, size_bytes = left = self._left[name]
        self._left[name] = records - sign, size_bytes - sign * ticket.size_bytes
        return left


class Buffer:
    """Thread-safe.

    Args:
        max_records: how many may wait.
        max_bytes: what they may weigh; a single record may weigh more.
        ring: called when enough has come to look again; see ``arm``.
    """

    def __init__(self, max_records: int, max_bytes: int, ring: Callable[[], None]) -> None:
        self._lock = threading.Lock()
        self._all_added = threading.Condition(self._lock)
        self._waiters: list[Callable[[], object]] = []
        self._max_records = max_records
        self._max_bytes = max_bytes
        self._ring = ring
        self._wake_at: float = 1
        self._wake_at_bytes: float = inf
        self._fresh: list[AnyTicket] = []
        self._fresh_records = 0
        self._fresh_bytes = 0
        self._held = 0
        self._held_bytes = 0
        self._sent = self._failed = self._dropped = self._refused = 0
        self._dead_lettered = self._recovered = 0
        self._reserved = 0
        self._first: AnyTicket | None = None
        """A batch that waits for room: what becomes free is kept for it, for others would always be sooner."""
        self._shares: Shares | None = None
        self._is_shut = False
        self.is_closed = False
        """True if it takes no more. Reserved records can still be added."""
        self.calls = 0
        self.retried = 0

    def add(self, put: AnyTicket) -> bool:
        """Take records over, if there is room and it is open."""
        count, size_bytes = put.count, put.size_bytes
        with self._lock:
            if not self._has_taken(put, count, size_bytes):
                return False
            self._fresh.append(put)
            if not self._is_enough(count, size_bytes):
                return True
        self._ring()
        return True

    def reserve(self, put: AnyTicket, *, waits: bool = False, ahead: bool = False) -> bool:
        """Keep room for records, if there is some and it is open.

        Args:
            put: the records.
            waits: whether the caller asks again until there is room, or refuses them.
            ahead: whether they may go ahead of a batch that waits.
        """
        with self._lock:
            was_first = put is self._first
            has_taken = self._has_taken(put, put.count, put.size_bytes, ahead=ahead)
            if was_first or (waits and put.count > 1 and self._first is None):
                # One that waits for the share of its shard holds up no others.
                self._first = put if not has_taken and self._lacks_room(put.count, put.size_bytes) else None
            self._reserved += has_taken
            was_first = was_first and self._first is None
        if was_first:
            self._wake_waiters()
        return has_taken

    def _lacks_room(self, count: int, size_bytes: int) -> bool:
        """Return whether there is no room; a batch larger than the buffer needs all of it."""
        held, held_bytes = self._held + count, self._held_bytes + size_bytes
        return self._held > 0 and (held > self._max_records or held_bytes > self._max_bytes)

    def _has_taken(self, put: AnyTicket, count: int, size_bytes: int, *, ahead: bool = False) -> bool:
        """Count records in, if there is room, and it is open."""
        held, held_bytes = self._held + count, self._held_bytes + size_bytes
        if self.is_closed or (self._held and (held > self._max_records or held_bytes > self._max_bytes)):
            return False
        if self._first is not None and put is not self._first and not ahead:
            return False
        if self._shares is not None and self._is_shared and not self._shares.take(put):
            return False
        self._held, self._held_bytes = held, held_bytes
        return True

    def _is_enough(self, count: int, size_bytes: int) -> bool:
        """Count fresh records; returns whether to ring."""
        self._fresh_records += count
        self._fresh_bytes += size_bytes
        if self._fresh_records < self._wake_at and self._fresh_bytes < self._wake_at_bytes:
            return False
        self._wake_at = self._wake_at_bytes = inf
        return True

    def share(self, shares: Shares | None) -> None:
        """Use these shares from now on, when a quarter of the buffer is taken."""
        with self._lock:
            self._shares = shares
            if shares is not None:
                for put in self._fresh:  # they came since the others were counted
                    shares.count(put)
        self._wake_waiters()

    def call_when_there_is_room(self, call: Callable[[], object]) -> None:
        """Have ``call`` called once, from any thread, when something has ended."""
        with self._lock:
            self._waiters.append(call)

    def add_reserved(self, put: AnyTicket) -> bool:
        """Take over records with reserved room; False if they would never be taken out."""
        with self._lock:
            self._use_reserved()
            if self._is_shut:
                return False
            self._fresh.append(put)
            if not self._is_enough(put.count, put.size_bytes):
                return True
        self._ring()
        return True

    def recovered(self, tickets: list[Ticket]) -> None:
        """Count records from the spool, room or not."""
        with self._lock:
            self._recovered += len(tickets)
            self._held += len(tickets)
            self._held_bytes += sum(ticket.size_bytes for ticket in tickets)

    def refuse(self, put: AnyTicket, *, is_reserved: bool = False) -> None:
        """Count records that are not taken over; free the room that was reserved for them."""
        with self._lock:
            self._refused += put.count
            if put is self._first:
                self._first = None
            if is_reserved:
                self._use_reserved()
                self._release(put.count, put.size_bytes)
        self._wake_waiters()

    def take(self) -> list[AnyTicket]:
        with self._lock:
            return self._take_fresh()

    def peek(self) -> list[AnyTicket]:
        """Return at least what the next ``take`` returns."""
        with self._lock:
            return list(self._fresh)

    def arm(self, records: float, size_bytes: float) -> bool:
        """Ring when so much has come since the last ``take``; False if it has already."""
        with self._lock:
            if self._fresh_records >= records or self._fresh_bytes >= size_bytes:
                return False
            self._wake_at, self._wake_at_bytes = records, size_bytes
            return True

    def ended(
        self, *, sent: int = 0, failed: int = 0, dropped: int = 0, dead_lettered: int = 0, size_bytes: int
    ) -> None:
        with self._lock:
            self._sent += sent
            self._failed += failed
            self._dropped += dropped
            self._dead_lettered += dead_lettered
            self._release(sent + failed + dropped, size_bytes)
        self._wake_waiters()

    def missing(self, put: AnyTicket) -> tuple[int, int]:
        """Return how many records, and bytes, must end before there is room for these."""
        with self._lock:
            records = min(self._held, self._held + put.count - self._max_records)
            return records, min(self._held_bytes, self._held_bytes + put.size_bytes - self._max_bytes)

    @property
    def is_kept(self) -> bool:
        """True if what becomes free is kept for a batch that waits."""
        return self._first is not None

    @property
    def has_room(self) -> bool:
        with self._lock:
            return self._held < self._max_records and self._held_bytes < self._max_bytes

    @property
    def waiting(self) -> int:
        return self._held

    def close(self) -> None:
        with self._lock:
            self.is_closed = True
        self._wake_waiters()

    def await_added(self, timeout: float) -> None:
        """Return when all reserved records are added or refused, or after so many seconds. It is closed."""
        with self._lock:
            self._all_added.wait_for(lambda: not self._reserved, timeout)

    def shut(self) -> list[AnyTicket]:
        """Return what came since the last ``take``, and take nothing any more, not even reserved records."""
        with self._lock:
            self.is_closed = self._is_shut = True
            return self._take_fresh()

    def counts(self) -> ProducerCounts:
        with self._lock:
            return ProducerCounts(
                put=self._held + self._sent + self._failed + self._dropped + self._refused,
                sent=self._sent,
                failed=self._failed,
                dropped=self._dropped,
                refused=self._refused,
                waiting=self._held,
                waiting_bytes=self._held_bytes,
                dead_lettered=self._dead_lettered,
                recovered=self._recovered,
                calls=self.calls,
                retried=self.retried,
            )

    def _take_fresh(self) -> list[AnyTicket]:
        fresh, self._fresh = self._fresh, []
        self._fresh_records = self._fresh_bytes = 0
        return fresh

    @property
    def _is_shared(self) -> bool:
        return 4 * self._held >= self._max_records or 4 * self._held_bytes >= self._max_bytes

    def _use_reserved(self) -> None:
        self._reserved -= 1
        if self.is_closed and not self._reserved:
            self._all_added.notify_all()

    def _release(self, records: int, size_bytes: int) -> None:
        self._held -= records
        self._held_bytes -= size_bytes

    def _wake_waiters(self) -> None:
        if self._waiters:
            with self._lock:
                waiters, self._waiters = self._waiters, []
            for call in waiters:
                call()
