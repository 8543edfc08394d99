"""The standard input and output of this process, taken away from everybody but the protocol.

What user code, its libraries and its child processes print goes to standard error from then on, and what they read
is empty: neither can damage a message. That holds below Python too, because the file descriptors are replaced.
"""

import os
import sys
from typing import Final, NamedTuple

_INPUT: Final = 0
_OUTPUT: Final = 1
_ERRORS: Final = 2


class Pipes(NamedTuple):
    """File descriptors to talk with the host. Child processes do not inherit them."""

    read_fd: int
    write_fd: int


def take_standard_pipes() -> Pipes:
    """Take them; call it once. What was printed before, and waits in Python's buffer, is no message either."""
    pipes = Pipes(os.dup(_INPUT), os.dup(_OUTPUT))
    empty_input(_INPUT)
    os.dup2(_ERRORS, _OUTPUT)
    sys.stdout.flush()
    return pipes


def empty_input(read_fd: int) -> None:
    """Let a file descriptor give the end of its input, also to a read that a signal has just interrupted."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, read_fd, inheritable=read_fd == _INPUT)
    os.close(nothing)
