"""The number of micro-batches that an application runs at a time, however many engines it has.

An engine that gets no slot queues up, once; a freed slot belongs to the first of the queue, which is woken
and asks again. So every stream with work has its turn, and a busy one waits for the others.
"""

import threading
from collections import Counter
from collections.abc import Callable


class BatchSlots:
    """The slots of one application. Mutable; thread-safe."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._lock = threading.Lock()
        self._queue: dict[object, Callable[[], None]] = {}
        """The engines that wait, in the order in which they asked, and what wakes them."""
        self._kept_for: set[object] = set()
        """The engines that were woken, each with a slot that waits for it."""
        self._held: Counter[object] = Counter()

    def take(self, who: object, wake: Callable[[], None]) -> bool:
        """False if none is free: ``wake`` is called once, when a slot waits for ``who``.

        It is called on any thread and under this object's lock, so it must not ask for anything.
        """
        with self._lock:
            if who in self._kept_for:
                self._kept_for.remove(who)
            elif self._free > 0:
                self._free -= 1
            else:
                self._queue.setdefault(who, wake)
                return False
            self._held[who] += 1
            return True

    def give_back(self, who: object) -> None:
        with self._lock:
            if self._held[who] > 0:  # otherwise it has left
                self._held[who] -= 1
                self._free_one()

    def withdraw(self, who: object) -> None:
        with self._lock:
            self._queue.pop(who, None)
            if who in self._kept_for:
                self._kept_for.remove(who)
                self._free_one()

    def leave(self, who: object) -> None:
        """Give everything back, also the slots of batches that still run and were abandoned."""
        self.withdraw(who)
        with self._lock:
            for _ in range(self._held.pop(who, 0)):
                self._free_one()

    def _free_one(self) -> None:
        """Reserve a slot for the next in the queue, and wake it."""
        if not self._queue:
            self._free += 1
            return
        who = next(iter(self._queue))
        self._kept_for.add(who)
        self._queue.pop(who)()
