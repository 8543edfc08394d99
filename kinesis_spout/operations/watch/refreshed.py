"""A reading that all who look share, made again only while somebody looks."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from kinesis_spout.model.errors import KinesisSpoutError
from kinesis_spout.operations.errors import NotReadYet

T = TypeVar("T")

_REST: Final = 10.0
"""A reading is made again after this many times the CPU time that it took, so that it costs a tenth of a core
at most. Its waits cost nothing."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Reading(Generic[T]):
    value: T | None = None
    """None before the first that succeeded."""
    at: float = 0.0
    """When ``value`` was read; monotonic."""
    error: KinesisSpoutError | None = None
    """The error of the last try."""

    def get(self) -> T:
        """The value of the last try. Raises its error; NotReadYet: the first has not ended."""
        if self.error is not None:
            raise self.error
        if self.value is None:
            raise NotReadYet(
                "expected the first reading, got none in time: it goes on; look again in a moment"
            )
        return self.value


class Refreshed(Generic[T]):
    """Reads at most every ``seconds``, on a thread of its own, when asked. Mutable, thread-safe."""

    def __init__(
        self,
        read: Callable[[], T],
        seconds: float,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        cpu_seconds: Callable[[], float] = time.process_time,
    ) -> None:
        self._read = read
        self._cpu_seconds = cpu_seconds
        self._seconds = seconds
        self._monotonic = monotonic
        self._changed = threading.Condition()
        """Guards what follows."""
        self._reading: Reading[T] = Reading()
        self._bug: Exception | None = None
        self._due_at = monotonic()
        self._is_running = False
        self._is_outdated = True
        """Something was changed since the last reading began, or there was none."""

    def ask(self, patience_seconds: float, spare_seconds: float = 0.0) -> Reading[T]:
        """The newest reading; if that is old, a new one, for which this waits so long.

        With ``spare_seconds`` it may be so much older, unless something was changed since.
        """
        deadline = time.monotonic() + patience_seconds
        with self._changed:
            while self._is_running or self._is_due(spare_seconds):
                if not self._is_running:
                    self._is_running, self._is_outdated = True, False
                    threading.Thread(target=self._run, name="kinesis-spout-reading", daemon=True).start()
                left = deadline - time.monotonic()
                if not self._changed.wait_for(lambda: not self._is_running, max(0.0, left)):
                    break
                if not self._is_outdated:
                    break
            if self._bug is not None:
                raise self._bug
            return self._reading

    def _is_due(self, spare_seconds: float) -> bool:
        return self._monotonic() >= self._due_at + (0.0 if self._is_outdated else spare_seconds)

    def age(self) -> float:
        """Return the age of the value in seconds; infinite before the first."""
        with self._changed:
            return float("inf") if self._reading.value is None else self._monotonic() - self._reading.at

    def expire(self) -> None:
        """Read anew when asked next: something was changed, perhaps after a reading that is under way."""
        with self._changed:
            self._due_at = self._monotonic()
            self._is_outdated = True

    def _run(self) -> None:
        started, used = self._monotonic(), self._cpu_seconds()
        value, error, bug = None, None, None
        try:
            value = self._read()
        except KinesisSpoutError as caught:
            error = caught
        except Exception as caught:  # noqa: BLE001 - raised where it was asked for
            bug = caught
        rest = _REST * (self._cpu_seconds() - used)
        with self._changed:
            before = self._reading
            self._bug = bug
            if value is None:
                self._reading = Reading(value=before.value, at=before.at, error=error)
            else:
                self._reading = Reading(value=value, at=started)
            self._due_at = started if self._is_outdated else started + max(self._seconds, rest)
            self._is_running = False
            self._changed.notify_all()
