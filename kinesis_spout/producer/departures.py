"""Which of the waiting records go into the next call, and when. No I/O.

A full call goes at once. Other records linger for a while, unless a caller flushes, or they were in a call
before. Records that ended while they waited are left out.
"""

from collections.abc import Sequence
from math import inf
from typing import Final, cast

from kinesis_spout.kinesis.write.put_records import Aggregate, Puttable
from kinesis_spout.kinesis.write.waiting_records import WaitingRecords
from kinesis_spout.producer.batch import Put
from kinesis_spout.producer.ticket import Ticket

_FEW_GONE: Final = 1_000


class Departures:
    """Mutable; for one thread at a time."""

    def __init__(self, records: WaitingRecords, linger_seconds: float) -> None:
        self._records = records
        self._linger_seconds = linger_seconds
        self._lingers_until = inf
        """When what is held is put, full or not; infinite if nothing new is held."""
        self._hurries = False
        """Whether what can be taken is put at once: it has lingered, or was in a call before."""
        self.flushes = 0
        """How many callers want that nothing lingers."""
        self._gone = 0
        """Roughly how many of the waiting records have ended."""

    @property
    def due_at(self) -> float:
        """When there may be a call although nothing comes, as monotonic time."""
        if (self._hurries or self.flushes) and self._records.ready_at == -inf:
            return -inf
        return min(self._lingers_until, self._records.paced_at)

    @property
    def is_lingering(self) -> bool:
        return self._lingers_until < inf and not self.flushes

    def hold(self, puts: list[Put], now: float) -> None:
        if self._lingers_until == inf:
            self._lingers_until = now + self._linger_seconds
        self._records.hold_all([ticket for put in puts for ticket in put.tickets])

    def hurry(self) -> None:
        """Let what may be taken now go without lingering."""
        self._hurries |= self._records.has_ready

    def next_batch(self, now: float) -> list[Puttable]:
        """Return what goes into a call now; empty if nothing does."""
        records = self._records
        if self.flushes or now >= self._lingers_until:
            records.finish_packing()
            self._lingers_until = inf
            self._hurries = True
        refused_before = records.paced_at <= now
        if not (self._hurries or refused_before or records.has_a_full_call):
            return []
        batch: list[Puttable] = []
        while not batch and (taken := records.take()):
            batch = self.left_of(taken) if self._gone else taken
        if not records.has_ready:
            self._hurries = False
            if not records.is_packing:
                self._lingers_until = inf
        elif refused_before:
            self._hurries = True
        elif not self._hurries:
            self._lingers_until = now + self._linger_seconds
        return batch

    def left_of(self, batch: list[Puttable]) -> list[Puttable]:
        """Return what has not ended of a call's records."""
        left: list[Puttable] = []
        for each in batch:
            held = [ticket for ticket in held_in(each) if not ticket.is_gone]
            if not held:
                self._records.done((each,))
                continue
            if isinstance(each, Aggregate):
                each.parts = list(held)
            left.append(each)
        return left

    def leave_out(self, more: int, *, of: int) -> None:
        """Note that more records have ended while they waited, and drop those that are many ``of`` all."""
        self._gone += more
        if self._gone > of // 2 + _FEW_GONE:
            waiting = [ticket for each in self._records.take_back() for ticket in held_in(each)]
            self._records.hold_all([ticket for ticket in waiting if not ticket.is_gone])
            self._gone = 0


def held_in(put: Puttable) -> Sequence[Ticket]:
    """Return what a record carries: the producer holds nothing else."""
    return cast("Sequence[Ticket]", put.parts)
