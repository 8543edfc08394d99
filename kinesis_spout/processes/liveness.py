"""Processes of this machine, and whether they live."""

import os

__all__ = ["has_ended"]


def has_ended(pid: int) -> bool:
    """Return whether no process has this id, kill(2). Another process can get the id of one that ended."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False  # another user's, but it is there
    return False
