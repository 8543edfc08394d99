"""Threads that need a write at the same time share one: the group commit of databases.

The threads that come during a write make up the next turn. The first of them does that turn's write for all,
as soon as the write before has ended. So of N threads about half share a write, and a lone thread does not wait.
"""

import threading
from collections.abc import Callable, Sequence

from kinesis_spout.model.errors import SpoolError


class _Turn:
    __slots__ = ("error", "numbers", "over")

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.over = threading.Event()
        self.error: BaseException | None = None


class SharedWrites:
    """Mutable; for any number of threads.

    ``write`` writes all that waits. Its argument is the numbers of the records that threads wait for; its
    calls do not overlap.
    """

    def __init__(self, write: Callable[[Sequence[int]], None]) -> None:
        self._write = write
        self._mutex = threading.Lock()
        """Guards the next turn; held for moments."""
        self._next = _Turn()
        self._writing = threading.Lock()

    def wait_for(self, number: int) -> None:
        """Return when a write that began after this call has ended. Raises ``SpoolError`` if it failed."""
        with self._mutex:
            turn = self._next
            turn.numbers.append(number)
            is_first = len(turn.numbers) == 1
        if is_first:
            self._lead(turn)
        else:
            turn.over.wait()
        if turn.error is not None:
            kind = type(turn.error) if isinstance(turn.error, SpoolError) else SpoolError
            raise kind(str(turn.error) or repr(turn.error)) from turn.error

    def _lead(self, turn: _Turn) -> None:
        try:
            self._writing.acquire()
        except BaseException:  # Ctrl-C. The others rely on this thread.
            self._lead(turn)
            raise
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
            self._writing.release()
            turn.over.set()
