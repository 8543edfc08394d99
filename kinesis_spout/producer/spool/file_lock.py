"""A lock that the operating system releases when its owner dies, however it dies.

flock(2), because its locks exclude each other within one process as well, and are not lost when another part
of the process opens and closes the same file. A fork inherits them; so the child closes its copies, which
leaves the parent's lock alone, and no child holds a spool that its parent can no longer use.
"""

import fcntl
import os
from pathlib import Path
from typing import Self
from weakref import WeakSet


class FileLock:
    """The exclusive lock of a file. Mutable: held until ``release``. Made by ``taken``."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor: int | None = descriptor
        _held.add(self)

    @classmethod
    def taken(cls, path: Path) -> Self | None:
        """Take the lock, making the file if needed; None if another process or thread has it."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_current = _is_named(path, descriptor)
        except BlockingIOError:
            is_current = False
        except BaseException:
            os.close(descriptor)
            raise
        if not is_current:
            os.close(descriptor)
            return None
        return cls(path, descriptor)

    def release(self, *, remove: bool = False) -> None:
        """Release it; remove the file first if it is no longer needed. Idempotent."""
        descriptor, self._descriptor = self._descriptor, None
        _held.discard(self)
        if descriptor is None:
            return
        if remove:
            self.path.unlink(missing_ok=True)
        os.close(descriptor)


_held: WeakSet[FileLock] = WeakSet()


def _is_named(path: Path, descriptor: int) -> bool:
    """Whether the open file still has this name: an owner that ended meanwhile has removed it."""
    try:
        named = path.stat()
    except FileNotFoundError:
        return False
    return os.path.samestat(named, os.fstat(descriptor))


def _leave_to_the_parent() -> None:
    for lock in list(_held):
        lock.release()


os.register_at_fork(after_in_child=_leave_to_the_parent)
