"""The two pipes of a child, for the bolt that leases it, on the child's machine or on another one.

A write to a pipe that has room for all of it is not interrupted, not even by a kill; and there is room,
unless a child reads slower than it gets tuples. So frames are written whole, and a worker that is killed
leaves no half frame behind. Each write can wake the child, which costs more than all else: few are better
than many. Source: pipe(7).
"""

import os
import select
from collections import deque
from collections.abc import Callable
from typing import Final

_READ_BYTES: Final = 1024 * 1024
_MOST_SENT_BYTES: Final = 1024 * 1024
"""At a time, to another machine; a pipe takes no more."""


class PipesHere:
    """Those of a child on this machine. Mutable; one thread's."""

    def __init__(self, stdin: int, stdout: int) -> None:
        self._stdin, self._stdout = stdin, stdout
        self.is_input_closed = False
        self._readable = select.poll()
        self._readable.register(stdout, select.POLLIN)
        self._readable.register(stdin, 0)  # for errors alone: the child reads it no more
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
        """Read what has come; wait this long for it at most. None: the child has closed its output.

        With ``waits_for_room`` wait no longer than until something can be written.
        """
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


class DistantPipes:
    """Those of a child on another machine. The child's output stays in its pipe until it is asked for.

    Nothing of it is on the way when the lease ends. Each write brings along what there is to read.
    ``exchange`` writes there, waits as ``read`` does, and reads. It gives how many bytes were written, None
    if the child has closed its input; and what was read, None if it has closed its output. Both are None when
    that machine is lost.
    """

    def __init__(self, exchange: Callable[[bytes, float, bool], tuple[int | None, bytes | None]]) -> None:
        self._exchange = exchange
        self.is_input_closed = False
        self._come = b""
        self._has_asked = False
        self._is_over = False

    def write(self, data: bytes | memoryview) -> int:
        return self._ask(bytes(data[:_MOST_SENT_BYTES]))

    def read(self, wait_seconds: float, *, waits_for_room: bool) -> bytes | None:
        if not self._come and (wait_seconds > 0 or not self._has_asked):
            self._ask(b"", max(0.0, wait_seconds), waits_for_room=waits_for_room)
        self._has_asked = False
        come, self._come = self._come, b""
        return come or (None if self._is_over else b"")

    def _ask(self, data: bytes, wait_seconds: float = 0.0, *, waits_for_room: bool = False) -> int:
        self._has_asked = True
        if self._is_over:
            return 0
        written, come = self._exchange(data, wait_seconds, waits_for_room)
        self.is_input_closed |= written is None
        self._is_over = come is None
        self._come += come or b""
        return written or 0


class ChildPipes:
    def __init__(self, end: PipesHere | DistantPipes) -> None:
        self._end = end
        self._pieces: deque[bytes | memoryview] = deque()
        self._frames: list[bytes] = []
        self.put = self._frames.append
        """Takes a frame; it is written by ``push`` or ``pull``."""
        self.is_inside_a_frame = False

    @property
    def is_input_closed(self) -> bool:
        return self._end.is_input_closed

    def push(self) -> None:
        """Write as much as goes. Drop it when the child has closed its input: its output is about to end."""
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
        """Write as much as goes; wait this long, at most, for output and read it. None: the output has ended."""
        self.push()
        data = self._end.read(wait_seconds, waits_for_room=bool(self._pieces))
        if self._pieces:
            self.push()
        return data

    def drop_unsent(self) -> None:
        begun = self._pieces[0] if self.is_inside_a_frame else None
        self._pieces.clear()
        self._frames.clear()
        if begun is not None:
            self._pieces.append(begun)
