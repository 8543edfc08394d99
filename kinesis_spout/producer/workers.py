"""The threads of a producer: they do what its engine says, and sleep when there is nothing to do."""

import threading
from math import inf

from kinesis_spout.model.clock import Clock
from kinesis_spout.producer.engine import Engine


class Workers:
    """Threads that do the work of an engine until it is stopped. They never keep a process alive.

    Args:
        engine: what says what to do.
        count: how many threads; as many calls are under way at once.
        clock: of the engine.
        name: of the threads.
    """

    def __init__(self, engine: Engine, count: int, *, clock: Clock, name: str) -> None:
        self._engine = engine
        self._clock = clock
        self._bell = threading.Condition()
        self._rings = 0
        self._asleep = 0
        self._threads = [
            threading.Thread(target=self._run, name=f"{name} {number}", daemon=True)
            for number in range(1, count + 1)
        ]
        for thread in self._threads:
            thread.start()

    def wake(self) -> None:
        """Have one of the threads look for work."""
        with self._bell:
            self._rings = min(self._rings + 1, len(self._threads))
            self._bell.notify()

    @property
    def includes_this_thread(self) -> bool:
        """Whether the caller is one of them: a callback, which must not wait for what they do."""
        return threading.current_thread() in self._threads

    def join(self, timeout: float) -> None:
        """Wake all, and wait until they have ended, for the engine is stopped; no longer than so many seconds."""
        with self._bell:
            self._rings = len(self._threads)
            self._bell.notify_all()
        deadline = self._clock.monotonic() + timeout
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - self._clock.monotonic()))

    def _run(self) -> None:
        while not self._engine.is_stopped:
            work, due_at, another = self._engine.next_work()
            if another:
                self.wake()
            if work is None:
                self._sleep(due_at)
            else:
                self._engine.do(work)

    def _sleep(self, due_at: float) -> None:
        with self._bell:
            if not self._rings:
                seconds = None if due_at == inf else max(0.0, due_at - self._clock.monotonic())
                self._bell.wait(seconds)
            self._rings = max(0, self._rings - 1)
