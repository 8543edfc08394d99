"""The two pipes of a child, at the end of whoever leases it.

A write to a pipe that has room for all of it is not interrupted, not even by a kill; and there is room, unless a
child reads less than it is given. So whole frames are written at once, and who is killed leaves no half a frame
behind. Each write may wake the child, which costs more than all else: few are better than many.
Source: pipe(7).
"""

import os
import select
from collections import deque
from typing import Final

_READ_BYTES: Final = 1024 * 1024


class Pipes:
    """Writes and reads without waiting, unless told to. Mutable; one thread's."""

    def __init__(self, stdin: int, stdout: int) -> None:
        self._stdin, self._stdout = stdin, stdout
        self._pieces: deque[bytes | memoryview] = deque()
        self._frames: list[bytes] = []
        self.put = self._frames.append
        """Takes a frame; it is written by ``push``."""
        self.is_input_closed = False
        """Whether the child has closed the pipe that it reads."""
        self.is_inside_a_frame = False
        """Whether a frame was begun to be written, and not finished."""
        self._readable = select.poll()
        self._readable.register(stdout, select.POLLIN)
        self._readable.register(stdin, 0)  # for errors alone: nobody reads it any more
        self._either = select.poll()
        self._either.register(stdout, select.POLLIN)
        self._either.register(stdin, select.POLLOUT)

    def push(self) -> None:
        """Write as much as goes. What a child does not read any more is dropped: its output is about to end."""
        if self._frames:
            self._pieces.append(b"".join(self._frames))
            self._frames.clear()
        pieces = self._pieces
        while pieces:
            if self.is_input_closed:
                pieces.clear()
                self.is_inside_a_frame = False
                return
            piece = pieces[0]
            try:
                written = os.write(self._stdin, piece)
            except BlockingIOError:
                return
            except BrokenPipeError:
                self._note_closed_input()
                continue
            self.is_inside_a_frame = written < len(piece)
            if self.is_inside_a_frame:
                pieces[0] = memoryview(piece)[written:]
            else:
                pieces.popleft()

    def drop_unsent(self) -> None:
        """Drop what was put and not written, but for the rest of a frame that was begun."""
        begun = self._pieces[0] if self.is_inside_a_frame else None
        self._pieces.clear()
        self._frames.clear()
        if begun is not None:
            self._pieces.append(begun)

    def pull(self) -> bytes | None:
        """Read what has come, maybe nothing. None: there will be nothing more."""
        try:
            return os.read(self._stdout, _READ_BYTES) or None
        except BlockingIOError:
            return b""

    def wait(self, seconds: float) -> None:
        """Return when there is something to read, or room to write what was put; after that time at the latest."""
        waits = self._either if self._pieces and not self.is_input_closed else self._readable
        for descriptor, event in waits.poll(max(0.0, seconds) * 1000):
            if descriptor == self._stdin and event & select.POLLERR:
                self._note_closed_input()

    def _note_closed_input(self) -> None:
        if not self.is_input_closed:
            self.is_input_closed = True
            self._readable.unregister(self._stdin)
