"""A producer without threads, and a spool in memory: a test decides what happens when, and what time it is."""

from collections.abc import Callable, Iterable, Sequence
from math import inf
from threading import Lock
from typing import Any, Final

from kinesis_spout.kinesis.write.put_records import Entry
from kinesis_spout.model.errors import SpoolError
from kinesis_spout.producer import KinesisProducer
from kinesis_spout.producer.sender import WorkToDo
from kinesis_spout.producer.spool import Spooled
from kinesis_spout.producer.tickets import AnyTicket
from kinesis_spout.testing.clock import ManualClock


class SteppedProducer(KinesisProducer):
    """A `KinesisProducer` that does nothing by itself: `step` does one piece of work, in the caller's thread.

    A call that waits (``flush``, ``close``, a ``put`` that blocks) steps, and lets the clock go on to what is
    due. Takes what `KinesisProducer` takes, and a clock. A ticket's ``result`` never comes by itself.
    """

    def __init__(self, *arguments: Any, clock: ManualClock | None = None, **options: Any) -> None:
        self.clock = self._clock = clock or ManualClock()
        super().__init__(*arguments, **options)

    def next_work(self) -> WorkToDo | None:
        """Take the work that is to be done now, to be given to `do`, sooner or later: as if a thread was slow."""
        return self._engine.next_work()[0]

    def do(self, work: WorkToDo) -> None:
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
        while not is_over() and (self.step() or is_over() or self._rest(deadline)):
            pass

    def _await_room(self, put: AnyTicket) -> bool:
        deadline = self.clock.monotonic() + self.config.block_timeout_seconds
        while not self._buffer.reserve(put):
            if not (self.step() or self._rest(deadline)):
                return False
        return True

    def _rest(self, deadline: float) -> bool:
        """Let time pass until something is due; False at the deadline."""
        due_at, now = self.due_at, self.clock.monotonic()
        if due_at == inf and deadline == inf:
            raise AssertionError(
                "expected something to be due while records wait, got nothing: work was not done"
            )
        self.clock.advance(max(0.0, min(due_at, deadline) - now))
        return self.clock.monotonic() < deadline or due_at <= deadline


_OF_ONE_SPOOL: Final = 1 << 44


class InMemorySpoolFolder:
    """A folder that several spools share, as processes do. Mutable; not thread-safe.

    ``open`` gives a `Spool`; its ``crash`` leaves its records to the others.
    """

    def __init__(self, stream: str | None = None) -> None:
        self.stream = stream
        """The stream of its records; None: any."""
        self.refuses_for: str | None = None
        """A reason to refuse every record, such as a full disk; None takes them."""
        self._left_over: list[list[Spooled]] = []

    def open(self) -> "InMemorySpool":
        """Give a spool for one owner."""
        return InMemorySpool(self)

    def take_left_over(self) -> list[Spooled] | None:
        """Give what one ended owner has left, to one caller; None if there is nothing."""
        return self._left_over.pop(0) if self._left_over else None

    def leave(self, records: list[Spooled]) -> None:
        """Take back what an owner that ends has not confirmed."""
        if records:
            self._left_over.append(records)


class InMemorySpool:
    """A `Spool` that keeps every record until it is confirmed, as ``Durability.RECORD`` does.

    Mutable; threads may append to it and confirm.
    """

    def __init__(self, folder: InMemorySpoolFolder) -> None:
        self.stream: str | None = folder.stream
        """The stream of its records."""
        self._folder = folder
        self._lock = Lock()
        self._number = 0
        self._taken_over = 0
        self._own: dict[int, Entry] = {}
        self._inherited: list[dict[int, Spooled]] = []
        self._unread: list[Spooled] = []
        self._is_open = True

    def append(self, *entries: Entry) -> int:
        self._check_open()
        if self._folder.refuses_for is not None:
            raise SpoolError(f"expected to keep a record, got {self._folder.refuses_for}")
        with self._lock:
            first = self._number + 1
            self._own |= dict(enumerate(entries, first))
            self._number += len(entries)
        return first

    def confirm(self, numbers: Iterable[int]) -> None:
        self._check_open()
        with self._lock:
            for number in numbers:
                self._own.pop(number, None)
                for inherited in self._inherited:
                    inherited.pop(number, None)

    @property
    def size_bytes(self) -> int:
        with self._lock:
            return sum(len(each.data) for each in self._own.values())

    def recovered(self, limit: int) -> Sequence[Spooled]:
        self._check_open()
        if not self._unread and (records := self._folder.take_left_over()) is not None:
            self._taken_over += 1
            first = self._taken_over * _OF_ONE_SPOOL
            self._unread = [Spooled(first + record.number, record.entry) for record in records]
            self._inherited.append(
                {given.number: record for given, record in zip(self._unread, records, strict=True)}
            )
        given, self._unread = self._unread[:limit], self._unread[limit:]
        return given

    def close(self) -> None:
        if self._is_open:
            self.crash()

    def crash(self) -> None:
        """End as a process that is killed does."""
        self._is_open = False
        for inherited in self._inherited:
            self._folder.leave(list(inherited.values()))
        self._folder.leave([Spooled(number, entry) for number, entry in self._own.items()])

    def _check_open(self) -> None:
        if not self._is_open:
            raise SpoolError("expected an open spool, got one that was closed")
