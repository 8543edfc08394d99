"""Threads that need a write at the same time share one: the group commit of databases.

Those that come while one writes wait for the next turn. The first of them does the write of that turn for all,
as soon as the one before is over; and those whose turn was written come back for the turn after. So of N
threads about half share a write, and a thread that is alone waits for nobody.
"""

import threading
from collections.abc import Callable, Sequence

from kinesis_spout.model.errors import SpoolError


class _Turn:
    """The threads that wait for one write. Mutable."""

    __slots__ = ("error", "may_lead", "numbers", "over")

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.may_lead = threading.Event()
        self.over = threading.Event()
        self.error: BaseException | None = None


class SharedWrites:
    """Mutable; for any number of threads."""

    def __init__(self, write: Callable[[Sequence[int]], None]) -> None:
        """``write`` writes all that waits; it is told which records are waited for, and calls do not overlap."""
        self._write = write
        self._mutex = threading.Lock()
        self._next = _Turn()
        self._is_led = False
        """Somebody writes. If nobody does, nobody waits."""

    def wait_for(self, *numbers: int) -> None:
        """Return when a write that began after this call is over.

        Raises:
            SpoolError: that write failed.
        """
        with self._mutex:
            turn = self._next
            is_first = not turn.numbers
            turn.numbers.extend(numbers)
            leads, self._is_led = not self._is_led, True
        if leads:
            self._lead(turn)
        elif is_first:
            self._lead_when_due(turn)
        else:
            turn.over.wait()
        if turn.error is not None:
            kind = type(turn.error) if isinstance(turn.error, SpoolError) else SpoolError
            raise kind(str(turn.error) or repr(turn.error)) from turn.error

    def _lead_when_due(self, turn: _Turn) -> None:
        try:
            turn.may_lead.wait()
        except BaseException:  # Ctrl-C. The others rely on this thread.
            turn.may_lead.wait()
            self._lead(turn)
            raise
        self._lead(turn)

    def _lead(self, turn: _Turn) -> None:
        try:
            with self._mutex:
                self._next = _Turn()
            self._write(turn.numbers)
        except SpoolError as error:
            turn.error = error
        except BaseException as error:
            turn.error = error
            raise
        finally:
            turn.over.set()
            with self._mutex:
                self._is_led = bool(self._next.numbers)
                if self._is_led:
                    self._next.may_lead.set()
