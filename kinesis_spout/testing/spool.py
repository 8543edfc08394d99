"""A spool in memory, and the crash of its owner: for tests of what a producer does with what is left over."""

from collections.abc import Iterable, Sequence
from typing import Final

from kinesis_spout.kinesis.write.put_records import Entry
from kinesis_spout.model.errors import SpoolError
from kinesis_spout.producer.spool import Spooled

_OF_ONE_SPOOL: Final = 1 << 44


class InMemorySpoolFolder:
    """What several spools share, as processes share a folder. Mutable; not thread-safe.

    ``open`` gives a `Spool`; its ``crash`` leaves its records to the others.
    """

    def __init__(self, stream: str | None = None) -> None:
        self.stream = stream
        """Whose records these are; None: any stream's."""
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
    """A `Spool` that keeps every record until it is confirmed, as ``Durability.RECORD`` does. Mutable."""

    def __init__(self, folder: InMemorySpoolFolder) -> None:
        self.stream: str | None = folder.stream
        """Whose records these are."""
        self._folder = folder
        self._number = 0
        self._taken_over = 0
        self._own: dict[int, Entry] = {}
        self._inherited: list[dict[int, Spooled]] = []
        self._unread: list[Spooled] = []
        self._is_open = True

    def append(self, entry: Entry) -> int:
        """Keep a record; see the port."""
        self._check_open()
        if self._folder.refuses_for is not None:
            raise SpoolError(f"expected to keep a record, got {self._folder.refuses_for}")
        self._number += 1
        self._own[self._number] = entry
        return self._number

    def confirm(self, numbers: Iterable[int]) -> None:
        """Forget records; see the port."""
        self._check_open()
        for number in numbers:
            self._own.pop(number, None)
            for inherited in self._inherited:
                inherited.pop(number, None)

    def recovered(self, limit: int) -> Sequence[Spooled]:
        """Give what owners before have left; see the port."""
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
        """Leave what is not confirmed to the next; see the port."""
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
