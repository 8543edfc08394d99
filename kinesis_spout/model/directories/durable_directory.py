"""Makes the names of files and directories durable: an fsync of the directory above them."""

import os
from pathlib import Path


def make_durably(directory: Path, mode: int = 0o777) -> None:
    """Make a directory and its missing parents, so that a power cut does not undo it.

    Raises:
        OSError: one of them cannot be made.
    """
    if directory.is_dir():
        return
    make_durably(directory.parent)
    directory.mkdir(mode=mode, exist_ok=True)
    sync_directory(directory.parent)


def sync_directory(directory: Path) -> None:
    """Return when the names in a directory are on the disk.

    Raises:
        OSError: they may not be.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
