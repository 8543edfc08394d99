"""Directories in shared places, such as ``/tmp``, whose files only this user can have written."""

import os
import stat
from contextlib import suppress
from pathlib import Path


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
