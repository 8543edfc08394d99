"""Directories: durable names, folders in shared places that only this user enters, a check for writing."""

import os
import stat
import uuid
from contextlib import suppress
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


def make_private(directory: Path) -> None:
    """Make a directory that only this user may enter, or find the one that was made so.

    Raises:
        OSError: it cannot be made, or see ``check_private``.
    """
    with suppress(FileExistsError):
        directory.mkdir(mode=0o700)
    check_private(directory)


def check_private(directory: Path) -> None:
    """Refuse a directory that another user has made or may enter. Call it before trusting its content.

    Raises:
        PermissionError: it is another user's, others may enter it, or it is a link or a file.
        FileNotFoundError: it does not exist.
    """
    status = directory.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise PermissionError(
            f"expected {directory} to be a folder of this user ({os.geteuid()}) that no other may enter, got "
            f"{stat.filemode(status.st_mode)} of user {status.st_uid}: another user may have made it; remove it"
        )


def check_directory(directory: Path) -> None:
    """Make an empty file and remove it: in the directory, or in the nearest existing one above it.

    Raises:
        OSError: no file can be made there.
    """
    absolute = directory.absolute()
    existing = next(each for each in (absolute, *absolute.parents) if each.exists())
    probe = existing / f".kinesis-spout-probe-{uuid.uuid4().hex}"
    os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    probe.unlink()
