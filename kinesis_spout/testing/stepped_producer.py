"""A producer without threads: a test decides what happens when, and what time it is."""

from collections.abc import Callable
from math import inf
from typing import Any

from kinesis_spout.producer import KinesisProducer, Ticket
from kinesis_spout.producer.outbox import WorkToDo
from kinesis_spout.testing.clock import ManualClock


class SteppedProducer(KinesisProducer):
    """A `KinesisProducer` that does nothing by itself: `step` does one piece of work, in the caller's thread.

    What waits in the producer (``flush``, ``close``, a ``put`` that blocks) steps, and lets the clock go on to
    what is due. Takes what `KinesisProducer` takes, and a clock. A ticket's ``result`` never comes by itself.
    """

    def __init__(self, *arguments: Any, clock: ManualClock | None = None, **options: Any) -> None:
        self.clock = self._clock = clock or ManualClock()
        super().__init__(*arguments, **options)

    def next_work(self) -> WorkToDo | None:
        """Take the work that is to be done now, to be given to `do`, sooner or later: as if a thread was slow."""
        return self._engine.next_work()[0]

    def do(self, work: WorkToDo) -> None:
        """Do a piece of work."""
        self._engine.do(work)

    def step(self) -> bool:
        """Do what is to be done next, if there is something now."""
        work = self.next_work()
        if work is not None:
            self.do(work)
        return work is not None

    @property
    def due_at(self) -> float:
        """When there may be something to do, as the clock's monotonic time; infinity: not before a put."""
        return self._engine.due_at

    def _begin(self) -> None:
        """Start no threads."""

    def _await(self, is_over: Callable[[], bool], deadline: float) -> None:
        while not is_over() and self._go_on(deadline):
            pass

    def _await_room(self, ticket: Ticket) -> bool:
        deadline = self.clock.monotonic() + self.config.block_timeout_seconds
        while not self._inbox.reserve(ticket):
            if not self._go_on(deadline):
                return False
        return True

    def _go_on(self, deadline: float) -> bool:
        """Do something, or let time pass until something is due; False at the deadline."""
        if self.step():
            return True
        due_at, now = self.due_at, self.clock.monotonic()
        if due_at == inf and deadline == inf:
            raise AssertionError(
                "expected something to be due while records wait, got nothing: work was not done"
            )
        self.clock.advance(max(0.0, min(due_at, deadline) - now))
        return self.clock.monotonic() < deadline or due_at <= deadline
