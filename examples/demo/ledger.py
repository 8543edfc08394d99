"""The witness of the demo: what the handler did with each record, written down by the handler itself.

The spout knows nothing of it. A line is one unbuffered write to a file opened for appending, so it is there
even if the process is killed right after. Every Python worker has a file of its own: if a kill cuts a line
short, it is the last of its file, and a reader leaves it out.
"""

import os
import re
from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Final

_NAME: Final = re.compile(r"run-(\d+)-pid-(\d+)")


class LedgerWriter:
    """The file of one process. Mutable: holds it open."""

    def __init__(self, directory: Path, run: int) -> None:
        self._descriptor = os.open(
            directory / f"run-{run}-pid-{os.getpid()}", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644
        )

    def handled(self, flight_id: int, attempt: int) -> None:
        """Write that the handler is done with a record."""
        os.write(self._descriptor, f"handled {flight_id} {attempt}\n".encode())

    def failed(self, flight_id: int, attempt: int) -> None:
        """Write that the handler raised."""
        os.write(self._descriptor, f"failed {flight_id} {attempt}\n".encode())


@lru_cache(maxsize=4)
def _writer(directory: Path, run: int, pid: int) -> LedgerWriter:
    del pid  # in the key, because a forked worker must not write into its parent's file
    return LedgerWriter(directory, run)


def ledger_of_this_process(directory: Path, run: int) -> LedgerWriter:
    """Give this process's file, opened once."""
    return _writer(directory, run, os.getpid())


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
    workers: dict[int, set[int]] = field(default_factory=dict)
    """The process ids of the Python workers that wrote, by run."""
    _offsets: dict[Path, int] = field(default_factory=dict)

    def read(self) -> None:
        """Take in the lines that were added since the last call."""
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
                for line in added.decode().split("\n"):
                    self._take_in(line)

    def _take_in(self, line: str) -> None:
        outcome, flight_id, attempt = line.split(" ")
        self.retries += attempt != "1"
        if outcome == "failed":
            self.failures += 1
            return
        self.handled[int(flight_id)] += 1
        if attempt != "1":
            self.recovered.add(int(flight_id))
