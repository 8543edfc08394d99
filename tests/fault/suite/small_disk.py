"""A disk so small that it can be filled: memory that is mounted as one, which only root may do."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

_BYTES: Final = 192 << 20
_PIECE_BYTES: Final = 64 << 10


class SmallDisk:
    """Mutable: full or not."""

    def __init__(self, folder: Path) -> None:
        self._filler = folder / "filler"

    def fill(self) -> None:
        """Write until nothing fits any more: whoever else writes meanwhile takes a part."""
        with self._filler.open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(_PIECE_BYTES))

    def clear(self) -> None:
        self._filler.unlink()


@contextmanager
def small_disk(folder: Path) -> Iterator[SmallDisk | None]:
    """Mount one at a folder, which is made; give None where that is not allowed."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={_BYTES}", "none", str(folder)]
    mounted = os.geteuid() == 0 and subprocess.run(command, capture_output=True, check=False).returncode == 0
    try:
        yield SmallDisk(folder) if mounted else None
    finally:
        if mounted:
            kept = folder.with_name(f"{folder.name}-kept")
            shutil.copytree(folder, kept, ignore=shutil.ignore_patterns("users"))  # for who looks into it
            subprocess.run(["umount", "--lazy", str(folder)], check=True)
