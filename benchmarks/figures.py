"""What a benchmark reports, and how CPU time is taken.

CPU seconds come first: they hold on a busy machine, where wall time does not. A ratio compares two figures of
the same run, so it holds on another machine as well.
"""

import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One line of the table."""

    what: str
    value: float | None
    """None: it could not be measured, for the reason in ``note``."""
    unit: str
    reference: str = ""
    """What the ratio compares with."""
    ratio: float | None = None
    """How many times cheaper than the reference."""
    at_most: float | None = None
    """The goal: the value is no more than this."""
    cheaper_at_least: float | None = None
    """The goal: the ratio is no less than this."""
    note: str = ""

    @property
    def goal(self) -> str:
        """The goal in words; empty if there is none."""
        if self.at_most is not None:
            return f"<= {self.at_most:g} {self.unit}"
        return "" if self.cheaper_at_least is None else f">= {self.cheaper_at_least:g} times cheaper"

    @property
    def met(self) -> bool | None:
        """Whether the goal was met; None if there is none."""
        if self.at_most is not None:
            return None if self.value is None else self.value <= self.at_most
        if self.cheaper_at_least is None or self.ratio is None:
            return None
        return self.ratio >= self.cheaper_at_least


@dataclass(frozen=True, slots=True)
class Step:
    """What a benchmark is about to do, for those who wait for its next line."""

    what: str


def cpu_seconds(work: Callable[[], object], *, repeats: int) -> float:
    """Give the median CPU time (user and system, all threads) of one call, after one call to warm up."""
    work()
    taken = []
    for _ in range(repeats):
        started = time.process_time()
        work()
        taken.append(time.process_time() - started)
    return statistics.median(taken)


def best_wall_seconds(work: Callable[[], object], *, repeats: int) -> float:
    """Give the shortest wall time of one call, after one call to warm up."""
    work()
    taken = []
    for _ in range(repeats):
        started = time.perf_counter()
        work()
        taken.append(time.perf_counter() - started)
    return min(taken)


class ProcessTree:
    """Reads what another process and its children have used, from ``/proc`` (Linux)."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def cpu_seconds(self) -> float:
        """Sum user and system time over the living tree, and over its children that ended."""
        return sum(_cpu_seconds(pid) for pid in self._pids())

    def _pids(self) -> list[int]:
        parents: dict[int, list[int]] = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                fields = _stat(int(entry.name))
                if fields is not None:
                    parents.setdefault(int(fields[1]), []).append(int(entry.name))
        found, new = [], [self._pid]
        while new:
            found.extend(new)
            new = [child for pid in new for child in parents.get(pid, ())]
        return found


def _cpu_seconds(pid: int) -> float:
    fields = _stat(pid)
    # utime, stime, cutime, cstime: proc(5) counts from the process id, we from behind the name.
    return 0.0 if fields is None else sum(map(int, fields[11:15])) / _TICKS_PER_SECOND


def _stat(pid: int) -> list[str] | None:
    """Give the fields behind the command's name; None if the process is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text.rpartition(")")[2].split()
