"""One named pipe shows who uses the server of a data directory, and whether the server lives.

Every user holds an end for writing, and never writes. The guard of the server holds the only end for reading.
So each side learns from the operating system that the other is gone, however it ended: the guard reads the
end of the file when the last user is gone, and a user's end reports an error while there is no guard.
"""

import errno
import os
import select
import weakref
from contextlib import suppress
from pathlib import Path


class UsersPipe:
    """Mutable. One user's end of the pipe, whose ``path`` `begin` makes. Not thread-safe."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._end: int | None = None
        _pipes.add(self)

    @property
    def guarded(self) -> bool:
        """True if we hold an end, and a guard the other."""
        if self._end is None:
            return False
        poll = select.poll()
        poll.register(self._end, 0)
        return not poll.poll(0)

    @property
    def used(self) -> bool:
        """True if any process holds an end for writing."""
        try:
            look = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK)
        except FileNotFoundError:
            return False
        try:
            return os.read(look, 1) != b""
        except BlockingIOError:
            return True  # the read would wait for what they may write
        finally:
            os.close(look)

    def join(self) -> bool:
        """Hold an end if a guard has the other; returns whether."""
        try:
            end = os.open(self._path, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            if error.errno in {errno.ENOENT, errno.ENXIO}:
                return False
            raise
        self._hold(end)
        return True

    def begin(self) -> int:
        """Make the pipe, hold an end, and return the guard's: the caller closes it once the guard has it."""
        with suppress(FileExistsError):
            os.mkfifo(self._path, 0o600)
        guards_end = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK)
        self._hold(os.open(self._path, os.O_WRONLY | os.O_NONBLOCK))
        os.set_blocking(guards_end, True)
        return guards_end

    def let_go(self) -> None:
        end, self._end = self._end, None
        if end is not None:
            os.close(end)

    def _hold(self, end: int) -> None:
        self.let_go()  # after the new one was opened, so that we never seem to be gone
        self._end = end


_pipes: weakref.WeakSet[UsersPipe] = weakref.WeakSet()


def _let_go_in_forked_child() -> None:
    """Close a forked child's copies of our ends, which would keep the servers alive."""
    for pipe in list(_pipes):
        pipe.let_go()


os.register_at_fork(after_in_child=_let_go_in_forked_child)
