"""The two pipes of a child, at the end of whoever leases it.

A write to a pipe that has room for all of it is not interrupted, not even by a kill; and there is room, unless a
child reads less than it is given. So whole frames are written at once, and who is killed leaves no half a frame
behind. Each write may wake the child, which costs more than all else: few are better than many.
Source: pipe(7).
"""

import os
import select
from abc import ABC, abstractmethod
from collections import deque
from typing import Final

from kinesis_spout.storm.hosting.processes.children import ExchangeBytes, Lease

_READ_BYTES: Final = 1024 * 1024
_MOST_SENT_BYTES: Final = 1024 * 1024
"""At a time, to another machine; a pipe takes no more."""


def pipes_of(lease: Lease) -> "Pipes":
    """Give the pipes of a leased child, wherever it is."""
    if lease.exchange is None:
        return NearPipes(lease.stdin, lease.stdout)
    return DistantPipes(lease.exchange)


class Pipes(ABC):
    """Writes and reads without waiting, unless told to. Mutable; one thread's."""

    def __init__(self) -> None:
        self._pieces: deque[bytes | memoryview] = deque()
        self._frames: list[bytes] = []
        self.put = self._frames.append
        """Takes a frame; it is written by ``push``."""
        self.is_input_closed = False
        """Whether the child is known to have closed the pipe that it reads."""
        self.is_inside_a_frame = False
        """Whether a frame was begun to be written, and not finished."""

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
                written = self._write(piece)
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

    @property
    def _wants_room(self) -> bool:
        return bool(self._pieces) and not self.is_input_closed

    def _note_closed_input(self) -> None:
        self.is_input_closed = True

    @abstractmethod
    def pull(self) -> bytes | None:
        """Read what has come, maybe nothing. None: there will be nothing more."""

    @abstractmethod
    def wait(self, seconds: float) -> None:
        """Return when there is something to read, or room to write what was put; after that time at the latest."""

    @abstractmethod
    def _write(self, piece: bytes | memoryview) -> int:
        """Write as much as goes.

        Raises:
            BlockingIOError: nothing goes now.
            BrokenPipeError: nothing ever will.
        """


class NearPipes(Pipes):
    """Those of a child on this machine."""

    def __init__(self, stdin: int, stdout: int) -> None:
        super().__init__()
        self._stdin, self._stdout = stdin, stdout
        self._readable = select.poll()
        self._readable.register(stdout, select.POLLIN)
        self._readable.register(stdin, 0)  # for errors alone: nobody reads it any more
        self._either = select.poll()
        self._either.register(stdout, select.POLLIN)
        self._either.register(stdin, select.POLLOUT)

    def pull(self) -> bytes | None:
        try:
            return os.read(self._stdout, _READ_BYTES) or None
        except BlockingIOError:
            return b""

    def wait(self, seconds: float) -> None:
        waits = self._either if self._wants_room else self._readable
        for descriptor, event in waits.poll(max(0.0, seconds) * 1000):
            if descriptor == self._stdin and event & select.POLLERR:
                self._note_closed_input()

    def _note_closed_input(self) -> None:
        if not self.is_input_closed:
            super()._note_closed_input()
            self._readable.unregister(self._stdin)

    def _write(self, piece: bytes | memoryview) -> int:
        return os.write(self._stdin, piece)


class DistantPipes(Pipes):
    """Those of a child on another machine. What it has written stays in its pipe until it is asked for here.

    So nothing of it is on the way when the lease ends. Each write brings along what there is to read.
    """

    def __init__(self, exchange: ExchangeBytes) -> None:
        super().__init__()
        self._exchange = exchange
        self._come = b""
        self._has_asked = False
        """Since the last ``pull``."""
        self._is_over = False

    def pull(self) -> bytes | None:
        if not self._has_asked:
            self._ask(b"", 0.0)
        self._has_asked = False
        come, self._come = self._come, b""
        return come or (None if self._is_over else b"")

    def wait(self, seconds: float) -> None:
        if not self._come:
            self._ask(b"", max(0.0, seconds))

    def _write(self, piece: bytes | memoryview) -> int:
        written = self._ask(memoryview(piece)[:_MOST_SENT_BYTES], 0.0)
        if written is None:
            raise BrokenPipeError
        if not written:
            raise BlockingIOError
        return written

    def _ask(self, data: bytes | memoryview, wait_seconds: float) -> int | None:
        self._has_asked = True
        if self._is_over:
            return None
        try:
            written, come = self._exchange(data, wait_seconds, waits_for_room=self._wants_room)
        except OSError:
            # As if it had ended here: who gives the lease back is told why.
            written, come = None, None
        if come is None:
            self._is_over = True
        else:
            self._come += come
        return written
