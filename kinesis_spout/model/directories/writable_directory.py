"""Checks that a directory can be written to, or made and written to, and leaves nothing behind."""

import os
import uuid
from pathlib import Path


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
