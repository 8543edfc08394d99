"""Checks the files of a spool, and saves the records of damaged ones for an operator.

A record counts if its own checksum is right. SQLite reads the records: it stops at a damaged page, and
reading begins again after that page. So the records of the damaged pages are lost; with the first page of the
file, all of them, and with a page of the log, those after it in the log.
"""

import shlex
import struct
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final, Literal

from kinesis_spout.model.errors import SpoolDamaged
from kinesis_spout.producer.spool.folder import SpoolFolder, claimed, side_files
from kinesis_spout.producer.spool.port import Spooled
from kinesis_spout.producer.spool.spool_file import PAGE_BYTES, SpoolFile, log_kept, translated

SAVED: Final = ".saved"
"""Added to the names of files that were moved aside."""

_READ_AT_ONCE: Final = 1_000
_MOST_RECORDS: Final = 1 << 44
"""No process takes over more; see `inherited`."""
_NAMED: Final = 20
"""The most lost records that are named."""
_COUNTED: Final = 1_000_000
"""An error counts the records of a file up to this size."""
_LOG_HEADER: Final = 32
_FRAME_HEADER: Final = struct.Struct(">4xI8s8x")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileReport:
    path: Path
    state: Literal["in use", "left over", "damaged"]
    """Left over: its owner has ended, and the next producer takes it over."""
    damage: str
    """What is wrong; empty if nothing is, or if it is in use."""
    size_bytes: int
    """With its log."""


def reports(folder: Path) -> Iterator[FileReport]:
    """Check each file, in the order in which their owners began.

    A left-over file is claimed for that moment: a producer that starts meanwhile takes it over at its next look.

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
            size_bytes=sum(
                each.stat().st_size
                for each in side_files(path)
                if each.exists() and not each.name.endswith("-shm")
            ),
        )


def records_in(path: Path) -> Iterator[Spooled]:
    """Yield the readable, undamaged records of a file, in order; of one in use, those present now."""
    read_to, limit = 0, _READ_AT_ONCE
    try:
        with log_kept(path), SpoolFile(path, synced=False, although_cut=True) as file:
            while True:
                try:
                    found = file.read(read_to, limit)
                except SpoolDamaged:
                    if limit == 1:
                        read_to, limit = _end_of_damage(file, read_to), _READ_AT_ONCE
                    else:
                        limit //= 2
                    continue
                if not found:
                    return
                read_to = found[-1][0]
                yield from (record for _, record in found if record is not None)
    except SpoolDamaged:
        return  # nothing, or nothing more, can be read


def _end_of_damage(file: SpoolFile, read_to: int) -> int:
    """Return the number after which records can be read again, when those after ``read_to`` cannot."""

    def can_be_read(after: int) -> bool:
        try:
            file.read(after, 1)
        except SpoolDamaged:
            return False
        return True

    step = 1
    while not can_be_read(read_to + step):
        step *= 2
        if step > _MOST_RECORDS:
            raise SpoolDamaged(f"{file.path}: no record after {read_to} can be read")
    return bisect_left(range(read_to + step), True, lo=read_to + step // 2, key=can_be_read)


@contextmanager
def saving(path: Path) -> Iterator[Iterator[Spooled] | None]:
    """Yield the undamaged records of a file, and move it aside at the end.

    Yields None, and moves nothing, if its owner lives. Moves nothing if an exception is raised inside.

    Raises:
        SpoolError: it cannot be read or moved.
    """
    claim = claimed(path)
    if claim is None:
        yield None
        return
    try:
        yield records_in(path)
        with translated(path):
            # The file goes last: until then all of it is found as before.
            for each in reversed(side_files(path)):
                if each.exists():
                    each.rename(path.with_name(path.name + SAVED + each.name.removeprefix(path.name)))
            claim.lock.release(remove=True)
    finally:
        claim.release()


def check(path: Path) -> None:
    """Check every page of a file whose lock this process holds, and its log.

    Detects a truncated file, wrong pages, and a log with a wrong page before right ones. A log that is only
    truncated, or whose last transaction is not whole, looks like one that was never written further: that is what
    a crash leaves.

    Raises:
        SpoolDamaged: says what is wrong.
        SpoolError: it cannot be read now.
    """
    with translated(path):
        written = _frames_of_returned_commits(path.with_name(f"{path.name}-wal"))
        if not path.stat().st_size:  # SQLite would take it for a new one
            raise SpoolDamaged("it is empty")
    with log_kept(path), SpoolFile(path, synced=False) as file:
        file.check(written)


def damaged_records(path: Path, numbers: Sequence[int]) -> SpoolDamaged:
    named = ", ".join(map(str, numbers[:_NAMED])) + (", …" if len(numbers) > _NAMED else "")
    return SpoolDamaged(
        f"{path}: {len(numbers)} of its records differ from their checksums and are lost: {named}; a producer "
        "puts the others"
    )


def described(path: Path, damage: SpoolDamaged) -> SpoolDamaged:
    """Make the error that says what can be saved of a damaged file, and how."""
    count = sum(1 for _ in islice(records_in(path), _COUNTED))
    many = f"more than {count:,}" if count == _COUNTED else f"{count:,}"
    found = str(damage).removeprefix(f"{path}: ")
    return SpoolDamaged(
        f"the spool's file {str(path)!r} is damaged ({found}); {many} records in it are whole. Save them and move "
        f"the file aside: kinesis-spout spool save {shlex.quote(str(path.parent))} --to records.jsonl"
    )


def _damage(path: Path) -> str | None:
    """Return what is wrong with the pages or records of a file whose lock this process holds."""
    try:
        check(path)
        damaged: list[int] = []
        read_to = 0
        with log_kept(path), SpoolFile(path, synced=False) as file:
            while found := file.read(read_to, _READ_AT_ONCE):
                read_to = found[-1][0]
                damaged += [number for number, record in found if record is None]
        if damaged:
            raise damaged_records(path, damaged)
    except SpoolDamaged as damage:
        return str(damage).removeprefix(f"{path}: ")
    return None


def _frames_of_returned_commits(log: Path) -> int:
    """Count the pages of a log that must be whole: those of every transaction but the last.

    SQLite writes the header of a page, which ends a transaction, and then the page. A process that is killed
    between the two leaves a last transaction that is not whole; its append has not returned. SQLite silently
    ignores what follows a page whose checksum is wrong.
    https://www.sqlite.org/fileformat2.html#the_write_ahead_log
    """
    if not log.exists():
        return 0
    committed = before_last = 0
    with log.open("rb") as file:
        salts = file.read(_LOG_HEADER)[16:24]
        frame_bytes = _FRAME_HEADER.size + PAGE_BYTES
        for frame in range((log.stat().st_size - _LOG_HEADER) // frame_bytes):
            file.seek(_LOG_HEADER + frame * frame_bytes)
            pages_at_commit, found = _FRAME_HEADER.unpack(file.read(_FRAME_HEADER.size))
            if found == salts and pages_at_commit:  # other salts: of an earlier round of the log
                before_last, committed = committed, frame + 1
    return before_last
