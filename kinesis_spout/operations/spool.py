"""A producer's spool: what it holds."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kinesis_spout.model.logs import counted
from kinesis_spout.operations.errors import NotFound
from kinesis_spout.operations.world import World


def list_files(world: World, folder: Path) -> list[dict[str, Any]]:
    """Count what each process has in a spool, and name what was put aside.

    The folder of an ended process is locked for that moment: a producer that starts meanwhile takes it over at its
    next look.
    """
    from kinesis_spout.producer.spool.folder import SpoolFolder  # noqa: PLC0415 - imports boto3

    spool = SpoolFolder(folder)
    if spool.stream() is None:
        raise NotFound(
            f"expected the folder of a spool, got {str(folder)!r}, which has no stream.json: name the folder that "
            "the producer was given"
        )
    with world.listener.progress("files read") as advance:
        found = []
        for each in _each(spool):
            found.append(each)
            advance(1)
        return found


def _each(spool: Any) -> Iterator[dict[str, Any]]:
    from kinesis_spout.producer.spool.folder import FolderLock, files_in  # noqa: PLC0415 - imports boto3

    for owned in spool.owned():
        lock = FolderLock.taken(owned)
        try:
            if owned.exists():  # else its process has ended, with nothing left
                yield _counted(owned.name, "left over" if lock else "in use", files_in(owned))
        finally:
            if lock is not None:
                lock.release()
    for path in spool.damaged():
        yield _counted(path.name, "damaged", [path])


def _counted(name: str, state: str, files: list[Path]) -> dict[str, Any]:
    from kinesis_spout.producer.spool.spool_file import lines_in  # noqa: PLC0415 - imports boto3

    records = damaged = size_bytes = 0
    for path in files:
        text = path.read_bytes() if path.exists() else b""
        size_bytes += len(text)
        for line in lines_in(text):
            records += line.entry is not None
            damaged += line.entry is None
    return {
        "file": name,
        "state": state,
        "records": records,
        "size_bytes": size_bytes,
        "damage": f"at least {counted(damaged, 'record')}" if damaged else None,
    }
