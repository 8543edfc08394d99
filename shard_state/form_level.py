"""The level of the stored forms: one integer for an application on a stream, by which two releases agree.

Each change of a stored form that an older release cannot read raises the level by one. Two numbers belong to a
release: the highest level that it reads, and the highest at which it writes. A new form comes in two releases:

    release N      reads it (``READS`` is raised), and does not write it
    release N + 1  writes it (``WRITES`` is raised), once the leader knows that every member can read it

A release thus writes nothing that the release before it cannot read. That makes a rolling upgrade by one
release possible, and the way back too, at any time. Forms without a leader (a producer's spool, Spark's
offsets, dead letters) rest on this rule alone.

Each member says what it reads. The leader stores the level in force with the assignment: the lowest that a
living member reads, at most what the leader itself writes. It is raised and never lowered, because forms of
it may be stored. A release that does not read the level in force ends with an error: it was left out of the
upgrade, or is more than one release back. The writer of a form with a choice of levels asks for the level in
force, and writes at most ``WRITES``.

A field that a reader does not know is ignored, and does not need a level. A version in a stored form refuses what
the level, for whatever reason, did not.
"""

from collections.abc import Iterable
from typing import Final

from shard_state.errors import InvalidStoredForm

FIRST: Final = 1
"""That of every form in release 0.1.0. A member that names no level reads this one."""

READS = 1
"""The highest level that this release reads."""

WRITES = 1
"""The highest level at which this release writes: at most what the release before it reads."""


def in_force(before: int, readers: Iterable[int]) -> int:
    """Give the level in force from now on.

    Args:
        before: the level in force until now.
        readers: what each living member reads.
    """
    return max(before, min((WRITES, *readers)))


def check_readable(level: int) -> None:
    """Refuse a level in force that this release does not read.

    Raises:
        InvalidStoredForm: it does not.
    """
    if level > READS:
        raise InvalidStoredForm(
            f"expected stored forms of level {READS} at most, got level {level}: members of a newer kinesis-spout "
            "write what this one cannot read; upgrade this one"
        )
