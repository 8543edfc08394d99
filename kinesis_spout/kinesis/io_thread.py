"""One thread with an asyncio loop: all that this process exchanges with Kinesis over sockets waits there.

Polls, calls that a thread waits for (``run``) and subscriptions share it. The thread runs while something
holds it: a call under way, an open connection, a prefetcher, a reader of subscriptions, an open producer.
Work that may block, or takes a millisecond of CPU or more, runs on other threads (``in_thread``).

While it runs one such thread is there, too: a program that ends can start no thread any more (Python 3.12), and
what a producer still holds is sent then.

A thread that waits for a call must not hold a lock that a coroutine takes.
"""

import asyncio
import contextlib
import os
import queue
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, TypeVar

T = TypeVar("T")

_JOIN_SECONDS: Final = 5.0


class IoThread:
    """The loop and its thread. Mutable, thread-safe."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._holders = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._workers = _Workers()

    def hold(self) -> asyncio.AbstractEventLoop:
        """Return the running loop; it runs until ``release`` was called as often as this.

        Raises:
            RuntimeError: the machine can start no thread.
        """
        with self._lock:
            if self._loop is None:
                self._start()
            assert self._loop is not None
            self._holders += 1
            return self._loop

    def release(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let the thread end, if nothing else holds it. Does nothing in a forked child of the loop's process."""
        with self._lock:
            if loop is not self._loop:
                return
            self._holders -= 1
            if self._holders:
                return
            thread, self._loop, self._thread = self._thread, None, None
        loop.call_soon_threadsafe(loop.stop)
        if thread is not threading.current_thread() and thread is not None:
            thread.join(_JOIN_SECONDS)

    def runs(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Return whether a loop is still this process's: a forked child has none of its parent's."""
        return loop is self._loop

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the thread, and wait for its result. Not to be called in the thread itself."""
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise RuntimeError(
                "expected a call of another thread, got one of the I/O thread, which must not wait"
            )
        try:
            loop = self.hold()
        except BaseException:
            coroutine.close()
            raise
        try:
            future = asyncio.run_coroutine_threadsafe(coroutine, loop)
            try:
                return future.result()
            except BaseException:  # KeyboardInterrupt, too
                future.cancel()
                raise
        finally:
            self.release(loop)

    async def in_thread(self, function: Callable[[], T], *, unwanted: Callable[[T], None] | None = None) -> T:
        """Run what may block on a thread of its own, if the machine can start one, and return its result.

        ``unwanted`` gets the result if the waiter was cancelled meanwhile.
        """
        future = self._workers.submit(function)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            if unwanted is not None:
                future.add_done_callback(partial(_give_up, unwanted=unwanted))
            raise

    def _start(self) -> None:
        loop = asyncio.SelectorEventLoop()
        loop.set_exception_handler(_report)
        workers = _Workers()
        thread = threading.Thread(target=_serve, args=(loop, workers), name="kinesis-io", daemon=True)
        try:
            workers.start_one()
            thread.start()
        except RuntimeError:
            workers.close()
            loop.close()
            raise
        self._loop, self._thread, self._workers = loop, thread, workers

    def forget_in_child(self) -> None:
        """Begin anew in a forked child, which has none of its parent's threads.

        The child keeps the loop open: closing it would take the parent's sockets from the selector that both
        share.
        """
        if self._loop is not None:
            _of_parents.append(self._loop)
        self._begin()


class _Workers:
    """Threads that start when none is free. Daemons: a process that ends does not wait for a call under way."""

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = queue.SimpleQueue()
        self._free = 0
        """Threads that wait, less the functions that wait for one."""
        self._threads = 0
        self._lock = threading.Lock()

    def submit(self, function: Callable[[], T]) -> "Future[T]":
        future: Future[T] = Future()
        with self._lock:
            if self._free <= 0:
                with contextlib.suppress(RuntimeError):  # those that there are will come to it
                    self._start()
            self._free -= 1
        self._work.put((function, future))
        return future

    def start_one(self) -> None:
        """Raises RuntimeError if the machine can start no thread."""
        with self._lock:
            self._start()

    def close(self) -> None:
        """End the threads, after all that was given to them, without waiting for that."""
        with self._lock:
            threads, self._threads = self._threads, 0
        for _ in range(threads):
            self._work.put(None)

    def _start(self) -> None:
        """Start a thread; under the lock."""
        threading.Thread(target=self._run, name="kinesis-io-worker", daemon=True).start()
        self._threads += 1
        self._free += 1

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            tell = _carried_out(*work)
            del work  # what it returned is the waiter's alone
            with self._lock:
                self._free += 1  # before the waiter knows, whose next function needs no new thread
            tell()
            del tell


def _give_up(future: "Future[T]", *, unwanted: Callable[[T], None]) -> None:
    if not future.cancelled() and future.exception() is None:
        unwanted(future.result())


def _carried_out(function: Callable[[], Any], future: "Future[Any]") -> Callable[[], None]:
    """Run a function, and return what tells its waiter."""
    if not future.set_running_or_notify_cancel():
        return lambda: None
    try:
        return partial(future.set_result, function())
    except Exception as error:  # noqa: BLE001 - not hidden: the waiter raises it
        return partial(future.set_exception, error)
    except BaseException as error:  # noqa: BLE001 - as above; in a coroutine it would end the loop
        ended = RuntimeError(f"expected a result or an error, got {error!r}")
        ended.__cause__ = error
        return partial(future.set_exception, ended)


def _serve(loop: asyncio.AbstractEventLoop, workers: _Workers) -> None:
    try:
        loop.run_forever()
        if tasks := asyncio.all_tasks(loop):
            for task in tasks:
                task.cancel()
            loop.run_until_complete(asyncio.wait(tasks))
    finally:
        workers.close()
        loop.close()


def _report(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Report what a callback raised like an error that ends a thread."""
    error = context.get("exception") or RuntimeError(context["message"])
    threading.excepthook(threading.ExceptHookArgs((type(error), error, error.__traceback__, None)))


_of_parents: Final[list[asyncio.AbstractEventLoop]] = []
IO: Final = IoThread()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=IO.forget_in_child)
