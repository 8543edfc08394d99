"""What each consumer's process writes down of its deliveries, at once, so that a kill takes nothing of it away.

One line an entry, one ``write`` a line, appended: a process that is killed leaves whole lines. Times are the
machine's, whatever clock the consumer is made to believe in.
"""

import os
import time
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

NO_EPOCH = 0
"""Where the door does not say under which ownership a record was delivered."""


class Kind(StrEnum):
    STARTED = "started"
    """The consumer is open."""
    NEW_WORKER = "new worker"
    """A Python worker of Spark has begun; perhaps another one has ended before."""
    DELIVERED = "delivered"
    """Given to the handler, which has done nothing yet."""
    HANDLED = "handled"
    """The handler's work is done; it is acked next."""
    ACKED = "acked"
    FAILED = "failed"
    """Raised, or outlived the message time-out: it comes again."""
    EXHAUSTED = "exhausted"
    """Failed for the last time, or rejected: it is to be buried."""
    BURIED = "buried"
    """Its dead letter is durable."""


class RecordId(NamedTuple):
    shard: str
    sequence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    time: float
    kind: Kind
    life: str
    """Which process: the name of a consumer, and how often it was started: ``c1.3``."""
    record: RecordId
    epoch: int = NO_EPOCH
    attempt: int = 0


class DeliveryLog:
    """Where one process writes. Can be used by any thread, and by the processes it forks."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def add(self, kind: Kind, record: RecordId, epoch: int = NO_EPOCH, attempt: int = 0) -> None:
        line = f"{time.time():.6f}\t{kind}\t{record.shard}\t{record.sequence}\t{epoch}\t{attempt}\n"
        os.write(self._file, line.encode())


def read_delivery_log(path: Path) -> list[Entry]:
    """Read the log of one process, whose life is the file's name."""
    entries = []
    for line in path.read_text().splitlines():
        moment, kind, shard, sequence, epoch, attempt = line.split("\t")
        record = RecordId(shard, int(sequence))
        entries.append(
            Entry(
                time=float(moment),
                kind=Kind(kind),
                life=path.stem,
                record=record,
                epoch=int(epoch),
                attempt=int(attempt),
            )
        )
    return entries
