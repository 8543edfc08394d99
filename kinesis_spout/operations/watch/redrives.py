"""Redrives that run on threads of this process, with their progress: a browser that began one may leave."""

import itertools
import threading
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Final

from kinesis_spout.operations.audit import Operator
from kinesis_spout.operations.dead_letters import Choice, chosen_letters, put_back
from kinesis_spout.operations.errors import LettersHeld, NotFound
from kinesis_spout.operations.world import World
from kinesis_spout.settings import SpoutConfig

_KEPT: Final = 50
"""Redrives that have ended and can still be looked at."""


class RedriveState(StrEnum):
    COUNTING = "counting"
    RUNNING = "running"
    DONE = "done"
    STOPPED = "stopped"
    FAILED = "failed"


class Redrive:
    """One redrive. Mutable: its thread writes, all others read; ``ended`` is called on it at the end."""

    def __init__(
        self,
        world: World,
        config: SpoutConfig,
        choice: Choice,
        *,
        rate: float | None,
        by: Operator,
        ended: Callable[[], None],
    ) -> None:
        self.config = config
        self.choice = choice
        self.rate = rate
        self.by = by
        self.started_at = world.time()
        self.ended_at: float | None = None
        self.state = RedriveState.COUNTING
        self.total: int | None = None
        """The number of chosen letters; None while they are counted."""
        self.done = 0
        self.error: Exception | None = None
        self.stopped_by: Operator | None = None
        self._world = world
        self._ended = ended
        self._stop = threading.Event()
        self.thread = threading.Thread(target=self._run, name="kinesis-spout-redrive", daemon=True)

    @property
    def is_running(self) -> bool:
        return self.ended_at is None

    @property
    def is_stopping(self) -> bool:
        return self.is_running and self._stop.is_set()

    def stop(self, by: Operator | None = None) -> None:
        """Put no other batch. Returns at once; what was put is marked."""
        self.stopped_by = self.stopped_by or by
        self._stop.set()

    def _run(self) -> None:
        try:
            with chosen_letters(self._world, self.config, self.choice) as chosen:
                self.total = len(chosen)
                self.state = RedriveState.RUNNING
                put_back(
                    self._world,
                    self.config,
                    chosen,
                    force=False,
                    rate=self.rate,
                    stop=self._stop,
                    by=self.by,
                    stopped_by=lambda: self.stopped_by,
                    done=self._advance,
                )
            is_cut = self._stop.is_set() and self.done < self.total
            self.state = RedriveState.STOPPED if is_cut else RedriveState.DONE
        except Exception as error:  # noqa: BLE001 - shown to all who look; nobody waits for this thread
            self.error, self.state = error, RedriveState.FAILED
        finally:
            self.ended_at = self._world.time()
            self._ended()

    def _advance(self, letters: int) -> None:
        self.done += letters


class Redrives:
    """The redrives of this process. Mutable, thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        """Guards the redrives."""
        self._redrives: dict[int, Redrive] = {}
        self._numbers = itertools.count(1)

    def start(self, redrive: Redrive) -> int:
        """Begin one, and give its number.

        LettersHeld: by one that this process began.
        """
        with self._lock:
            place = redrive.config.dead_letters_url
            for number, other in self._redrives.items():
                if other.is_running and other.config.dead_letters_url == place:
                    raise LettersHeld(place, f"redrive number {number}")
            number = next(self._numbers)
            self._redrives[number] = redrive
            for old in [each for each, one in self._redrives.items() if not one.is_running][:-_KEPT]:
                del self._redrives[old]
        redrive.thread.start()
        return number

    def find(self, config: SpoutConfig, number: int) -> Redrive:
        found = self._redrives.get(number)
        if found is None or not _is_of(found, config):
            raise NotFound(f"expected the number of a redrive of this process, got {number}")
        return found

    def of(self, config: SpoutConfig) -> Sequence[tuple[int, Redrive]]:
        """Those of an application, the newest first."""
        with self._lock:
            return [(number, each) for number, each in self._redrives.items() if _is_of(each, config)][::-1]

    def close(self, timeout_seconds: float) -> None:
        """Stop all, and wait so long for the batches that are being put."""
        with self._lock:
            running = [each for each in self._redrives.values() if each.is_running]
        for each in running:
            each.stop()
        for each in running:
            each.thread.join(timeout_seconds)


def _is_of(redrive: Redrive, config: SpoutConfig) -> bool:
    return (redrive.config.app, redrive.config.stream_name) == (config.app, config.stream_name)
