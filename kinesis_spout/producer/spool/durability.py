"""What a crash may cost: when the spool writes a record to its file, and when it has the disk confirm it.

The file is a SQLite database in WAL mode. With ``synchronous=FULL`` SQLite has the log synced at each commit; with
``NORMAL`` only before a checkpoint, so that the file stays sound but the last commits may be missing after a power
cut. A commit survives the death of the process either way. https://www.sqlite.org/pragma.html#pragma_synchronous
"""

from enum import StrEnum


class Durability(StrEnum):
    """When a record of the spool is safe."""

    RECORD = "record"
    """On the disk (fsync) before ``append`` returns; threads that append at the same time share one fsync.
    Loses nothing, neither when the process dies nor in a power cut."""

    INTERVAL = "interval"
    """On the disk (fsync) after so many records, or so many seconds, whichever comes first.
    The death of the process and a power cut lose at most the last ``interval_records`` records, and none that was
    taken over more than ``interval_seconds`` (and the time of one write) before."""

    SYSTEM = "system"
    """Handed to the operating system before ``append`` returns, and synced when it folds its log in (about each
    4 MiB). The death of the process loses nothing. A power cut loses what the system had not written by itself:
    commonly the last 5 to 30 seconds."""
