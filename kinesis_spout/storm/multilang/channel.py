"""A component's end of the pipes to its host: the standard input and output of its process.

Only the protocol has them. Output of user code, its libraries and its child processes goes to standard error,
and their input is empty: neither can damage a message. That holds below Python too, because the file
descriptors are replaced.
"""

import os
import sys
import time
from collections import deque
from typing import Final, NamedTuple

from kinesis_spout.storm.multilang.frames import Codec
from kinesis_spout.storm.multilang.protocol import (
    InvalidOutput,
    Message,
    NotOfTheProtocol,
    Pid,
    Sync,
    TaskIds,
    TupleIn,
    parse,
)

_READ_BYTES: Final = 256 * 1024
_FLUSH_BYTES: Final = 64 * 1024
_FLUSH_SECONDS: Final = 0.005
"""The longest time that messages are held back while more work waits: writes cost more than messages do."""


_INPUT, _OUTPUT, _ERRORS = range(3)


class HostPipes(NamedTuple):
    """File descriptors to talk with the host. Child processes do not inherit them."""

    read_fd: int
    write_fd: int


def take_standard_pipes() -> HostPipes:
    """Call it once. Text that waits in Python's buffer goes to standard error."""
    pipes = HostPipes(os.dup(_INPUT), os.dup(_OUTPUT))
    empty_input(_INPUT)
    os.dup2(_ERRORS, _OUTPUT)
    sys.stdout.flush()
    return pipes


def empty_input(read_fd: int) -> None:
    """End the input of a file descriptor, also for a read that a signal has just interrupted."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, read_fd, inheritable=read_fd == _INPUT)
    os.close(nothing)


class HostGone(Exception):  # noqa: N818 - the name says what happened
    """The host closed the pipe, or ended. The component ends in order."""


class Channel:
    """Reads and writes messages. Mutable; one thread's.

    Heart-beats are answered as soon as they are read, before the tuples that wait here. Messages are written
    when no more work waits, and otherwise every few milliseconds.
    """

    def __init__(self, codec: Codec, pipes: HostPipes) -> None:
        self.component = ""
        """The name of the component, for errors; known after the hand-shake."""
        self._codec = codec
        self._is_greeted = False
        # A host's input is always valid: no size is too large for it.
        self._decoder = codec.decoder(max_frame_bytes=sys.maxsize)
        self._pipes = pipes
        self._messages: deque[Message] = deque()
        self._task_ids: deque[TaskIds] = deque()
        self._unsent: list[bytes] = []
        self._unsent_bytes = 0
        self._flushed_at = time.monotonic()

    def read(self) -> Message:
        """Wait for the next message that is neither a heart-beat nor task ids.

        HostGone: there are no more. NotOfTheProtocol: the host sent something else.
        """
        while not self._messages:
            self._fill()
        if self._unsent and time.monotonic() - self._flushed_at > _FLUSH_SECONDS:
            self.flush()
        return self._messages.popleft()

    def greet(self, pid: Pid) -> None:
        """Answer the hand-shake; heart-beats are answered from now on."""
        self.send(pid)
        self._is_greeted = True
        self._answer_heartbeats()

    def read_task_ids(self) -> TaskIds:
        """Wait for the answer to an emit. Tuples that come before it stay for ``read``. Raises like ``read``."""
        while not self._task_ids:
            self._fill()
        return self._task_ids.popleft()

    def send(self, message: Message) -> None:
        """Send a message soon.

        HostGone: the host no longer reads. UnsendableValue: a value cannot be sent; nothing was sent.
        """
        data = self._codec.encode(message, self.component)
        self._unsent.append(data)
        self._unsent_bytes += len(data)
        if self._unsent_bytes > _FLUSH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write all messages. HostGone: the host no longer reads."""
        data = memoryview(b"".join(self._unsent))
        self._unsent.clear()
        self._unsent_bytes = 0
        self._flushed_at = time.monotonic()
        try:
            while data:
                data = data[os.write(self._pipes.write_fd, data) :]
        except OSError as error:
            raise HostGone("the host no longer reads") from error

    def end_input(self) -> None:
        """Have ``read`` raise ``HostGone`` after what was read already. For signal handlers."""
        empty_input(self._pipes.read_fd)

    def _fill(self) -> None:
        self.flush()
        data = os.read(self._pipes.read_fd, _READ_BYTES)
        if not data:
            raise HostGone("the host closed the pipe")
        heartbeats = 0
        for raw in self._decoder.feed(data):
            if type(raw) is InvalidOutput:
                raise NotOfTheProtocol(f"{raw.reason}, got from the host: {raw.text!r}")
            message = parse(raw)
            if type(message) is TaskIds:
                self._task_ids.append(message)
            else:
                self._messages.append(message)
                heartbeats += type(message) is TupleIn and message.is_heartbeat
        if heartbeats and self._is_greeted:
            self._answer_heartbeats()

    def _answer_heartbeats(self) -> None:
        others = [each for each in self._messages if not (type(each) is TupleIn and each.is_heartbeat)]
        for _ in range(len(self._messages) - len(others)):
            self.send(Sync())
        self._messages = deque(others)
        self.flush()
