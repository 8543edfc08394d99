"""Whether the file of a spool is whole, and what can be saved of one that is not."""

import shlex
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Final

from kinesis_spout.model.errors import SpoolDamaged
from kinesis_spout.producer.spool.files.pages import SpoolPages
from kinesis_spout.producer.spool.files.spool_file import SpoolFile, log_kept, translated

_READ_AT_ONCE: Final = 1_000
_NAMED: Final = 20
"""Of more lost records it is only said how many there are."""
_COUNTED: Final = 1_000_000
"""Of a larger file it is only said that there are more."""


def check(path: Path) -> None:
    """Look at every page of a file whose lock this process holds, and at its log.

    A file that is cut short, or has wrong pages, is found out, and so is a log with a wrong page in front of right
    ones. A log that is merely cut short is like one that was never written further: that is what a crash leaves.

    Raises:
        SpoolDamaged: says what is wrong.
        SpoolError: it cannot be read now.
    """
    with translated(path), SpoolPages(path) as pages:
        written = pages.committed_frames
        if not path.stat().st_size:  # which SQLite would take for a new one
            raise SpoolDamaged("it is empty")
    with log_kept(path), SpoolFile(path, synced=False) as file:
        file.check(written)


def check_records(path: Path) -> None:
    """Look at each record of a file whose pages are sound, and whose lock this process holds.

    Raises:
        SpoolDamaged: says which differ from their checksums.
        SpoolError: it cannot be read now.
    """
    damaged: list[int] = []
    read_to = 0
    with log_kept(path), SpoolFile(path, synced=False) as file:
        while found := file.read(read_to, _READ_AT_ONCE):
            read_to = found[-1][0]
            damaged += [number for number, record in found if record is None]
    if damaged:
        raise damaged_records(path, damaged)


def damaged_records(path: Path, numbers: Sequence[int]) -> SpoolDamaged:
    """Give the error that names records which are lost."""
    named = ", ".join(map(str, numbers[:_NAMED])) + (", …" if len(numbers) > _NAMED else "")
    return SpoolDamaged(
        f"{path}: {len(numbers)} of its records differ from their checksums and are lost: {named}; a producer "
        "puts the others"
    )


def described(path: Path, damage: SpoolDamaged) -> SpoolDamaged:
    """Give the error that says what can be saved of a damaged file, and how."""
    try:
        with SpoolPages(path) as pages:
            count = sum(1 for _ in islice(pages.records(), _COUNTED))
        many = f"more than {count:,}" if count == _COUNTED else f"{count:,}"
    except OSError as error:
        many = f"unknown, because of {error}: an unknown number"
    found = str(damage).removeprefix(f"{path}: ")
    return SpoolDamaged(
        f"the spool's file {str(path)!r} is damaged ({found}); {many} records in it are whole. Save them and move "
        f"the file aside: kinesis-spout spool save {shlex.quote(str(path.parent))} --to records.jsonl"
    )
