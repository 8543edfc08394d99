"""One session with ZooKeeper for all who look at its applications."""

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final, TypeVar

from kinesis_spout.model.errors import StoreUnavailable
from kinesis_spout.operations.stored_progress import StoredProgress
from kinesis_spout.operations.world import World
from kinesis_spout.settings import SpoutConfig

T = TypeVar("T")

UNWATCHED_SECONDS: Final = 60.0
"""After this time without a look a session ends."""


class SharedSession:
    """Opened by the first reading; one after ``close`` opens another. Mutable, thread-safe."""

    def __init__(self, world: World, config: SpoutConfig) -> None:
        self._world = world
        self._config = config
        self._lock = threading.Lock()
        """Guards what follows."""
        self._opened = ExitStack()
        self._progress: StoredProgress | None = None
        self._read_at = time.monotonic()

    def applications(self) -> list[tuple[str, str]]:
        """Name the applications that have begun, each with its stream. Raises like ``read``."""
        return list(self._read(lambda progress: progress.applications()))

    def read(self, app: str, stream: str, read: Callable[[StoredProgress], T]) -> T:
        """Read the progress of an application.

        Raises:
            StoreUnavailable: the session was lost; the next reading opens another.
        """
        return self._read(lambda progress: read(progress.other(app, stream)))

    def close_unwatched(self) -> None:
        """End the session if nobody has read for a while."""
        if time.monotonic() - self._read_at >= UNWATCHED_SECONDS:
            self.close()

    def close(self) -> None:
        """End the session; a reading that is under way fails."""
        self._end(self._progress)

    def _read(self, read: Callable[[StoredProgress], T]) -> T:
        self._read_at = time.monotonic()
        progress = self._progress or self._open()
        try:
            return read(progress)
        except StoreUnavailable:
            self._end(progress)
            raise

    def _open(self) -> StoredProgress:
        with ExitStack() as opened:
            progress = opened.enter_context(self._world.progress(self._config))
            with self._lock:
                if self._progress is None:  # else another reading was first
                    self._opened, self._progress = opened.pop_all(), progress
                return self._progress

    def _end(self, progress: StoredProgress | None) -> None:
        with self._lock:
            if progress is not self._progress:
                return
            opened, self._opened, self._progress = self._opened, ExitStack(), None
        opened.close()
