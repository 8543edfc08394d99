"""The two pipes of a child, at the end of whoever leases it.

A write to a pipe that has room for all of it is not interrupted, not even by a kill; and there is room, unless a
child reads less than it is given. So whole frames are written at once, and who is killed leaves no half a frame
behind. Each write may wake the child, which costs more than all else: few are better than many.
Source: pipe(7).
"""

import os
import select
from collections import deque
from typing import Final, Protocol

_READ_BYTES: Final = 1024 * 1024


class PipeEnd(Protocol):
    """Writes to a child and reads from it. Mutable; one thread's."""

    @property
    def is_input_closed(self) -> bool:
        """Whether the child is known to have closed the pipe that it reads."""
        ...

    def write(self, data: bytes | memoryview) -> int:
        """Write as much as goes, maybe nothing, without waiting."""
        ...

    def read(self, wait_seconds: float, *, waits_for_room: bool) -> bytes | None:
        """Read what has come, maybe nothing. None: there will be nothing more.

        Args:
            wait_seconds: how long to wait for something, at most.
            waits_for_room: wait no longer than until something can be written.
        """
        ...


class PipesHere:
    """Those of a child on this machine. A ``PipeEnd``."""

    def __init__(self, stdin: int, stdout: int) -> None:
        self._stdin, self._stdout = stdin, stdout
        self.is_input_closed = False
        self._readable = select.poll()
        self._readable.register(stdout, select.POLLIN)
        self._readable.register(stdin, 0)  # for errors alone: nobody reads it any more
        self._either = select.poll()
        self._either.register(stdout, select.POLLIN)
        self._either.register(stdin, select.POLLOUT)

    def write(self, data: bytes | memoryview) -> int:
        try:
            return os.write(self._stdin, data)
        except BlockingIOError:
            return 0
        except BrokenPipeError:
            self._note_closed_input()
            return 0

    def read(self, wait_seconds: float, *, waits_for_room: bool) -> bytes | None:
        if wait_seconds > 0:
            waits = self._either if waits_for_room and not self.is_input_closed else self._readable
            for descriptor, event in waits.poll(wait_seconds * 1000):
                if descriptor == self._stdin and event & select.POLLERR:
                    self._note_closed_input()
        try:
            return os.read(self._stdout, _READ_BYTES) or None
        except BlockingIOError:
            return b""

    def _note_closed_input(self) -> None:
        if not self.is_input_closed:
            self.is_input_closed = True
            self._readable.unregister(self._stdin)


class Pipes:
    """Keeps frames until they go, in few writes. Mutable; one thread's."""

    def __init__(self, end: PipeEnd) -> None:
        self._end = end
        self._pieces: deque[bytes | memoryview] = deque()
        self._frames: list[bytes] = []
        self.put = self._frames.append
        """Takes a frame; it is written by ``push`` or ``pull``."""
        self.is_inside_a_frame = False
        """Whether a frame was begun to be written, and not finished."""

    @property
    def is_input_closed(self) -> bool:
        """Whether the child is known to have closed the pipe that it reads."""
        return self._end.is_input_closed

    def push(self) -> None:
        """Write as much as goes. What a child does not read any more is dropped: its output is about to end."""
        if self._frames:
            self._pieces.append(b"".join(self._frames))
            self._frames.clear()
        pieces = self._pieces
        while pieces:
            piece = pieces[0]
            written = 0 if self.is_input_closed else self._end.write(piece)
            if self.is_input_closed:
                pieces.clear()
                self.is_inside_a_frame = False
            elif not written:
                return
            elif written < len(piece):
                self.is_inside_a_frame = True
                pieces[0] = memoryview(piece)[written:]
            else:
                self.is_inside_a_frame = False
                pieces.popleft()

    def pull(self, wait_seconds: float) -> bytes | None:
        """Write as much as goes; read what has come, waiting so long for it at most. None: that was all."""
        self.push()
        data = self._end.read(wait_seconds, waits_for_room=bool(self._pieces))
        if self._pieces:
            self.push()
        return data

    def drop_unsent(self) -> None:
        """Drop what was put and not written, but for the rest of a frame that was begun."""
        begun = self._pieces[0] if self.is_inside_a_frame else None
        self._pieces.clear()
        self._frames.clear()
        if begun is not None:
            self._pieces.append(begun)
