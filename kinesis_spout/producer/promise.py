"""A promise: the outcome of one or several records that a producer took over."""

import asyncio
import logging
import threading
from collections.abc import Callable, Generator
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from kinesis_spout.model.unfinished_work import refuse_unfinished

_log = logging.getLogger(__name__)

_lock = threading.Lock()
"""Guards the lists of callbacks of all promises: few have one."""


class Promise:
    """Ends exactly once. Every method may be called from any thread, and it can be awaited in any event loop."""

    __slots__ = ()

    if TYPE_CHECKING:
        outcome: Any
        """None until it has ended."""
        callbacks: list[Callable[[Any], object]] | None

        def result(self, timeout: float | None = None) -> Any:
            """Return what ``await`` gives."""
            ...

    def done(self) -> bool:
        """Return whether it has ended."""
        return self.outcome is not None

    def add_done_callback(self, callback: Callable[[Self], object]) -> None:
        """Have ``callback(ticket)`` called once when it has ended: at once if it has.

        It is called on a thread of the producer, and should be quick: other records wait for it. It may put
        records, and close the producer, neither of which waits there; it must not wait for other tickets.
        An error that it raises is logged, and changes nothing.
        """
        with _lock:
            if self.callbacks is None:
                self.callbacks = []  # type: ignore[misc] # its classes have a place for it
            self.callbacks.append(callback)
        if self.outcome is not None:
            self.tell()

    def _wait(self, timeout: float | None) -> None:
        """Return when it has ended; raises TimeoutError."""
        if self.outcome is not None:
            return
        ended = threading.Event()

        def tell(_: object) -> None:
            ended.set()

        self.add_done_callback(tell)
        try:
            is_over = ended.wait(timeout)
        finally:
            self._forget(tell)
        if not is_over:
            raise TimeoutError(f"expected the record to end within {timeout} s; it is still waiting")

    def __await__(self) -> Generator[Any, None, Any]:
        if self.outcome is None:
            loop = asyncio.get_running_loop()
            ended: asyncio.Future[None] = loop.create_future()

            def tell(_: object) -> None:
                _wake(loop, ended)

            self.add_done_callback(tell)
            try:
                yield from ended
            finally:
                self._forget(tell)
        return self.result()

    def tell(self) -> None:
        """Call the callbacks, each once. For the producer, after it has set the ``outcome``."""
        callbacks = self.callbacks
        while callbacks:
            try:
                callback = callbacks.pop(0)
            except IndexError:  # another thread calls them, too
                return
            called_back(partial(callback, self))

    def _forget(self, callback: Callable[[Any], object]) -> None:
        """Stop calling it: a caller that asks repeatedly would leave many."""
        with _lock:
            if self.callbacks and callback in self.callbacks:
                self.callbacks.remove(callback)


def _wake(loop: asyncio.AbstractEventLoop, ended: "asyncio.Future[None]") -> None:
    try:
        loop.call_soon_threadsafe(_set, ended)
    except RuntimeError:  # the loop was closed, and with it the wait
        return


def _set(ended: "asyncio.Future[None]") -> None:
    if not ended.done():
        ended.set_result(None)


def called_back(callback: Callable[[], object]) -> None:
    """Call a user's function; what it raises is logged."""
    try:
        returned = callback()
        if returned is not None:
            refuse_unfinished(returned)
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - a user's own, perhaps `sys.exit`; the others must be called
        _log.exception("A callback of a record that was put failed; the record is not concerned")
