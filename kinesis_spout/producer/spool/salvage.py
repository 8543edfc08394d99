"""What an operator does with a spool's folder: look at its files, take what is whole from those of ended owners.

None of this needs the files to be sound.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from kinesis_spout.model.errors import SpoolDamaged
from kinesis_spout.producer.spool.files.damage import check, check_records
from kinesis_spout.producer.spool.files.folder import Claim, SpoolFolder, claimed, side_files
from kinesis_spout.producer.spool.files.pages import SpoolPages
from kinesis_spout.producer.spool.files.spool_file import translated
from kinesis_spout.producer.spool.port import Spooled

SAVED: Final = ".saved"
"""What is added to the names of files that were moved aside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileReport:
    """One file of a spool's folder."""

    path: Path
    state: Literal["in use", "left over", "damaged"]
    """Left over: its owner has ended, and the next that asks takes it over."""
    damage: str
    """What is wrong; empty if nothing is, or if it is in use."""
    size_bytes: int
    """With its log."""


def reports(folder: Path) -> Iterator[FileReport]:
    """Look at each file, those of the owners that began first in front.

    A file that is left over is claimed for that moment: an owner that begins meanwhile takes it over with its next
    look.

    Raises:
        SpoolError: one of them cannot be read.
    """
    for path in SpoolFolder(folder).files():
        claim = claimed(path)
        if claim is None and not path.exists():
            continue  # its owner has ended, with nothing left
        damage = None
        if claim is not None:
            try:
                damage = _damage(path)
            finally:
                claim.release()
        yield FileReport(
            path=path,
            state="in use" if claim is None else "left over" if damage is None else "damaged",
            damage=damage or "",
            size_bytes=sum(each.stat().st_size for each in side_files(path) if _is_content(each)),
        )


@contextmanager
def records_in(path: Path) -> Iterator[Iterator[Spooled]]:
    """Give the records of a file that are whole. Of one that is in use they are those of about now.

    Raises:
        SpoolError: it cannot be read.
    """
    with translated(path), SpoolPages(path) as pages:
        yield pages.records()


@contextmanager
def saving(path: Path) -> Iterator[Iterator[Spooled] | None]:
    """Give the records of a file that are whole, and move it aside when all is done with them.

    Gives None, and moves nothing, if its owner lives. Moves nothing if an exception is raised inside.

    Raises:
        SpoolError: it cannot be read or moved.
    """
    claim = claimed(path)
    if claim is None:
        yield None
        return
    try:
        with records_in(path) as records:
            yield records
        _move_aside(claim)
    finally:
        claim.release()


def _damage(path: Path) -> str | None:
    try:
        check(path)
        check_records(path)
    except SpoolDamaged as damage:
        return str(damage).removeprefix(f"{path}: ")
    return None


def _move_aside(claim: Claim) -> None:
    path = claim.path
    with translated(path):
        # The file goes last: until then all of it is found as before.
        for each in reversed(side_files(path)):
            if each.exists():
                each.rename(path.with_name(path.name + SAVED + each.name.removeprefix(path.name)))
        claim.lock.release(remove=True)


def _is_content(path: Path) -> bool:
    return path.exists() and not path.name.endswith("-shm")
