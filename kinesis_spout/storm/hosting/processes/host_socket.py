"""What Python workers and the host process of a machine say to each other, and where they find each other.

A message is its length and MessagePack. The answer to a lease carries the descriptors of the child's pipes: tuples
do not pass through the host process. The socket is in a folder that only its user may enter.

A worker of another machine comes over TCP, and proves that it knows the application's key. It has no descriptors:
it asks the host process to write and to read (``Exchange``).
"""

import hashlib
import os
import re
import socket
import struct
import tempfile
from pathlib import Path
from typing import Any, Final

import msgspec

from kinesis_spout.model.directories.private_directory import make_private
from kinesis_spout.storm.hosting.processes.child_process import ChildSettings
from kinesis_spout.storm.hosting.processes.children import ChildKey

_LENGTH: Final = struct.Struct("!I")
_MAX_BYTES: Final = 16 * 1024 * 1024
_MAX_NAME: Final = 60
_MAX_PATH: Final = 100
"""A Unix socket's path has 104 to 108 bytes."""


class _Message(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    pass


class Greet(_Message, frozen=True):
    """The first message of a worker of this machine. Answered by ``Greeting``."""

    lives_with: int
    """The process whose end ends the host process, if no other is left."""
    shipped_to: tuple[str, ...]
    """Where to look for what the job has brought, as long as that process lives."""
    host: str | None = None
    """By which name workers of other machines reach this one; None: they need not."""
    key: bytes = b""
    """What they prove to know."""


class AskLease(_Message, frozen=True):
    """See ``Keeper.lease``. Answered by ``Granted``, ``Refused`` or ``Invalid``."""

    key: ChildKey
    settings: ChildSettings
    wait_seconds: float


class Greeted(_Message, frozen=True):
    """See ``Keeper.greeted``. Answered by ``Done``, like the following."""

    key: ChildKey
    number: int


class Release(_Message, frozen=True):
    """See ``Keeper.release``."""

    key: ChildKey
    number: int
    is_proven: bool


class Condemn(_Message, frozen=True):
    """See ``Keeper.condemn``."""

    key: ChildKey
    number: int
    is_proven: bool


class Exchange(_Message, frozen=True):
    """Write to a child, then wait until it has written something, and read. Answered by ``Exchanged``."""

    key: ChildKey
    number: int
    data: bytes = b""
    wait_seconds: float = 0.0
    waits_for_room: bool = False
    """Whether to wait no longer than until it takes input."""


class Greeting(_Message, frozen=True):
    """The host process serves this machine."""

    port: int | None
    """Where it serves workers of other machines."""


class Granted(_Message, frozen=True):
    """A lease; with it come the descriptors of the child's input and output."""

    number: int
    pid: int
    pid_folder: str
    is_fresh: bool
    is_disturbed: bool


class Refused(_Message, frozen=True):
    """No lease for the time being."""

    reason: str


class Invalid(_Message, frozen=True):
    """The child cannot be started."""

    error: str


class Exchanged(_Message, frozen=True):
    """What came of an ``Exchange``."""

    written: int | None
    """How many bytes were written; None: the child's input is closed."""
    data: bytes | None
    """What was read, maybe nothing; None: there will be nothing more."""


class Done(_Message, frozen=True):
    """It was done."""

    words: str = ""
    """How a condemned child ended."""


Request = Greet | AskLease | Greeted | Release | Condemn | Exchange
Answer = Greeting | Granted | Refused | Invalid | Done | Exchanged

_encoder: Final = msgspec.msgpack.Encoder()
_requests: Final = msgspec.msgpack.Decoder(Request)
_answers: Final = msgspec.msgpack.Decoder(Answer)


def folder_of(application: str) -> Path:
    """Make the folder of an application's host process on this machine, or find it.

    Raises:
        OSError: somebody else may enter it, or it cannot be made.
    """
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", application)
    if len(name) > _MAX_NAME or name != application:
        name = f"{name[: _MAX_NAME // 2]}-{hashlib.sha256(application.encode()).hexdigest()[:16]}"
    roots = [Path(tempfile.gettempdir()), Path("/tmp")]  # noqa: S108 - made private below
    mine = f"kinesis-spout-shell-{os.getuid()}"
    root = next((each for each in roots if len(str(each / mine / name / "socket")) <= _MAX_PATH), roots[-1])
    folder = root
    for part in (mine, name):
        folder /= part
        make_private(folder)
    return folder


def send(connected: socket.socket, message: Request | Answer, descriptors: tuple[int, ...] = ()) -> None:
    """Send a message, and maybe descriptors with it."""
    body = _encoder.encode(message)
    frame = _LENGTH.pack(len(body)) + body
    sent = socket.send_fds(connected, [frame], descriptors) if descriptors else 0
    connected.sendall(frame[sent:])


def receive_request(connected: socket.socket) -> Request | None:
    """Wait for a request. None: the worker is gone."""
    body, _ = _received(connected)
    return None if body is None else _requests.decode(body)


def receive_answer(connected: socket.socket) -> tuple[Answer, list[int]]:
    """Wait for an answer, and the descriptors that come with it.

    Raises:
        ConnectionError: the host process is gone.
    """
    body, descriptors = _received(connected)
    if body is None:
        raise ConnectionError("the host process of shell components has ended")
    return _answers.decode(body), descriptors


def _received(connected: socket.socket) -> tuple[bytes | None, list[int]]:
    data: bytes
    descriptors: list[int]
    data, descriptors, *_ = socket.recv_fds(connected, _LENGTH.size, 2)
    while len(data) < _LENGTH.size:
        if not data:
            return None, descriptors
        data += _some(connected, _LENGTH.size - len(data))
    (size,) = _LENGTH.unpack(data)
    if size > _MAX_BYTES:
        raise ConnectionError(f"expected a message of at most {_MAX_BYTES} bytes, got {size}")
    parts: list[bytes] = []
    while size:
        parts.append(_some(connected, size))
        size -= len(parts[-1])
    return b"".join(parts), descriptors


def _some(connected: socket.socket, size: int) -> bytes:
    data: Any = connected.recv(size)
    if not data:
        raise ConnectionError("the other end closed the connection in the middle of a message")
    return bytes(data)
