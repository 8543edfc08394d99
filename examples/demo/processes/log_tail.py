"""The end of a process's log, for an error about it."""

from pathlib import Path
from typing import Final

_BYTES: Final = 3_000


def log_tail(path: Path) -> str:
    """Give the end of a log, under a line that names it."""
    text = path.read_bytes()[-_BYTES:].decode(errors="replace").strip() if path.exists() else ""
    return f"--- the end of {path}\n{text or '(nothing was logged)'}"
