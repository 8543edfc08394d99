"""Which shard is next, among shards that come and go.

A shard that was served goes to the back of the ring; so does one that joins. So a shard that joins or leaves
does not gain or cost a turn (invariant 15). A micro-batch serves a whole ``round``. Record by record, the
``current`` shard is served, a few records each time. One that was found to have nothing *sleeps* if an event will
tell when it has something, and is not looked at before. Any other one *rests*, for a moment that grows with the
number of shards that rest: looking at them costs at most about the same share of one processor, however many there
are, and a busy shard's records cost nothing more for them.
"""

from collections import OrderedDict
from typing import Final

RECORDS_PER_TURN: Final = 32
"""Taken from one shard before the next ready one is served."""

REST_SECONDS_PER_SHARD: Final = 50e-6
"""At most 20,000 looks a second in vain, which is about a tenth of a processor."""


class RoundRobin:
    """A ring of names. Mutable; not thread-safe."""

    def __init__(self) -> None:
        self._ready: OrderedDict[str, None] = OrderedDict()
        """In the order of whose turn is next."""
        self._resting: OrderedDict[str, float] = OrderedDict()
        """Behind those: who rests, and until when, in the order in which they began."""
        self._sleeping: dict[str, None] = {}
        """Behind those: who sleeps until it is woken."""
        self._taken = 0
        """Records of the present turn."""

    def __len__(self) -> int:
        return len(self._ready) + len(self._resting) + len(self._sleeping)

    def __contains__(self, member: str) -> bool:
        return member in self._ready or member in self._resting or member in self._sleeping

    def add(self, member: str) -> None:
        """Let a member take part, last in the present round. One that does keeps its turn, and rests no more."""
        self._resting.pop(member, None)
        self._sleeping.pop(member, None)
        self._ready.setdefault(member)

    def remove(self, member: str) -> None:
        """Let a member take part no more; unknown ones are passed over."""
        if member == next(iter(self._ready), None):
            self._taken = 0
        self._resting.pop(member, None)
        self._sleeping.pop(member, None)
        self._ready.pop(member, None)

    # Round by round

    def round(self) -> list[str]:
        """Name every member once, in turn. Members may be served, added and removed meanwhile."""
        return [*self._ready, *self._resting, *self._sleeping]

    def served(self, member: str) -> None:
        """Note that a member had its turn: everybody else comes first now."""
        if member in self._ready:
            self._ready.move_to_end(member)
            self._taken = 0

    # Record by record

    def current(self, now: float) -> str | None:
        """Name the member to be served now; None while all of them rest or sleep."""
        while self._resting and next(iter(self._resting.values())) <= now:
            self._ready[self._resting.popitem(last=False)[0]] = None
        return next(iter(self._ready), None)

    def took_records(self, member: str, count: int = 1) -> None:
        """Note that so many records were taken from a member: its turn ends when they are enough."""
        if member == next(iter(self._ready), None):
            self._taken += count
            if self._taken >= RECORDS_PER_TURN:
                self.served(member)

    def rest(self, now: float) -> None:
        """Note that the current member has nothing to give: it rests."""
        self._taken = 0
        until = now + REST_SECONDS_PER_SHARD * (len(self._ready) + len(self._resting))
        self._resting[self._ready.popitem(last=False)[0]] = until

    def sleep(self) -> None:
        """Note that the current member has nothing to give, and will be woken when it has: it sleeps."""
        self._taken = 0
        self._sleeping[self._ready.popitem(last=False)[0]] = None

    def wake(self, member: str) -> None:
        """Let a member rest and sleep no more; unknown ones are passed over."""
        if member in self._resting or member in self._sleeping:
            self.add(member)
