"""The lock of a consumer whose reader notes some of its work without it."""

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class GatheringLock:
    """A reentrant lock whose holder calls ``gather`` first, once: then what it guards is up to date.

    ``gather`` is set by the reader, under the lock. What it raises, the holder gets in place of the lock.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._depth = 0
        self.gather: Callable[[], None] | None = None

    def acquire(self, timeout: float = -1) -> bool:
        """See ``threading.Lock.acquire``."""
        if not self._lock.acquire(timeout=timeout):
            return False
        self._depth += 1
        if self._depth == 1 and self.gather is not None:
            try:
                self.gather()
            except BaseException:  # Ctrl-C, too: nobody would release it
                self.release()
                raise
        return True

    def release(self) -> None:
        self._depth -= 1
        self._lock.release()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_error: object) -> None:
        self.release()

    @property
    def is_held(self) -> bool:
        """Whether the calling thread has it."""
        return self._lock._is_owned()  # type: ignore[attr-defined,no-any-return] # noqa: SLF001 - what Condition uses
