"""The witness of the demo: what the handler did with each record, written down by the handler itself.

The spout knows nothing of it. A line is one unbuffered write to a file opened for appending, so it is there
even if the process is killed right after. Every process has a file of its own: if a kill cuts a line short, it
is the last of its file, and a reader leaves it out. Times are monotonic, the same for all processes.
"""

import os
import re
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple

_NAME: Final = re.compile(r"run-(\d+)-pid-(\d+)")


class LedgerWriter:
    """The file of one process. Mutable: holds it open."""

    def __init__(self, directory: Path, run: int) -> None:
        self._descriptor = os.open(
            directory / f"run-{run}-pid-{os.getpid()}", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644
        )

    def handled(self, flight_id: int, attempt: int, shard_id: str) -> None:
        """Write that the handler is done with a record."""
        self._write("handled", flight_id, attempt, shard_id)

    def failed(self, flight_id: int, attempt: int, shard_id: str) -> None:
        """Write that the handler raised."""
        self._write("failed", flight_id, attempt, shard_id)

    def _write(self, outcome: str, flight_id: int, attempt: int, shard_id: str) -> None:
        line = f"{outcome} {flight_id} {attempt} {shard_id} {time.monotonic():.3f}\n"
        os.write(self._descriptor, line.encode())


@lru_cache(maxsize=4)
def _writer(directory: Path, run: int, pid: int) -> LedgerWriter:
    del pid  # in the key, because a forked worker must not write into its parent's file
    return LedgerWriter(directory, run)


def ledger_of_this_process(directory: Path, run: int) -> LedgerWriter:
    """Give this process's file, opened once."""
    return _writer(directory, run, os.getpid())


class Delivery(NamedTuple):
    """One that a handler was given, and has ended."""

    at: float
    """When it ended."""
    run: int
    """Which start of a consumer it was."""
    shard_id: str
    handled: bool
    """Whether the handler returned; else it raised."""
    flight_id: int
    attempt: int


@dataclass(slots=True)
class Ledger:
    """Everything that all files say so far. Mutable: ``read`` takes in what was added."""

    directory: Path
    handled: Counter[int] = field(default_factory=Counter)
    """How often the handler returned, by flight."""
    recovered: set[int] = field(default_factory=set)
    """Flights that the handler was done with at a retry."""
    failures: int = 0
    """How often the handler raised."""
    retries: int = 0
    """Deliveries that were not the first of their record."""
    repeated: Counter[int] = field(default_factory=Counter)
    """How many flights were handled again, by the run that had handled them first."""
    workers: dict[int, set[int]] = field(default_factory=dict)
    """The process ids of the Python workers that wrote, by run."""
    _handled_first_by: dict[int, int] = field(default_factory=dict)
    _offsets: dict[Path, int] = field(default_factory=dict)

    def read(self) -> list[Delivery]:
        """Take in the lines that were added since the last call, and give what they say, in order of time."""
        added = sorted(self._added())
        for delivery in added:
            self._take_in(delivery)
        return added

    def _added(self) -> Iterator[Delivery]:
        for path in sorted(self.directory.iterdir()):
            named = _NAME.fullmatch(path.name)
            if named is None:
                continue
            run, pid = map(int, named.groups())
            with path.open("rb") as file:
                file.seek(self._offsets.get(path, 0))
                added, end, _ = file.read().rpartition(b"\n")
            if end:
                self._offsets[path] = self._offsets.get(path, 0) + len(added) + 1
                self.workers.setdefault(run, set()).add(pid)
                yield from (_delivery(run, line) for line in added.decode().split("\n"))

    def _take_in(self, delivery: Delivery) -> None:
        is_retry = delivery.attempt != 1
        self.retries += is_retry
        if not delivery.handled:
            self.failures += 1
            return
        flight_id = delivery.flight_id
        self.handled[flight_id] += 1
        if self.handled[flight_id] == 2:  # noqa: PLR2004 - a third time adds no repeated flight
            self.repeated[self._handled_first_by[flight_id]] += 1
        self._handled_first_by.setdefault(flight_id, delivery.run)
        if is_retry:
            self.recovered.add(flight_id)


def _delivery(run: int, line: str) -> Delivery:
    outcome, flight_id, attempt, shard_id, at = line.split(" ")
    return Delivery(
        at=float(at),
        run=run,
        shard_id=shard_id,
        handled=outcome == "handled",
        flight_id=int(flight_id),
        attempt=int(attempt),
    )
