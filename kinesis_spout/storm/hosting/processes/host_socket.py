"""The messages between Python workers and the host process of a machine, and the way to find it.

A message is MessagePack. The answer to a lease carries the descriptors of the child's pipes:
tuples do not pass through the host process. Its socket is in a folder that only its user may enter; the first
worker that finds none starts it: one, however many workers need it at the same time.

A worker of another machine comes over TCP, and proves that it knows the application's key. It has no
descriptors: it asks the host process to write and to read (``PipeExchange``). In the same way it asks the driver
which machine a child is on (``AskMachine``; see ``placement``).
"""

import contextlib
import fcntl
import hashlib
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from kinesis_spout.model.directories import make_private
from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.processes.keyed_connections import Machine
from kinesis_spout.processes.message_channel import ChannelClosed, MessageChannel
from kinesis_spout.storm.hosting.processes.child_process import ChildSettings
from kinesis_spout.storm.hosting.processes.children import ChildKey, Lease, NotYet

_MAX_BYTES: Final = 16 * 1024 * 1024
_MAX_NAME: Final = 60
_MAX_PATH: Final = 100
"""A Unix socket's path has 104 to 108 bytes."""
_START_SECONDS: Final = 60.0


class _Message(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    pass


class _AboutLease(_Message, frozen=True):
    key: ChildKey
    number: int


class Greet(_Message, frozen=True):
    """The first message of a worker of this machine. Answered by ``Greeting``, or ``Invalid``."""

    lives_with: int
    """The process whose end ends the host process, if no other is left."""
    shipped_to: tuple[str, ...]
    """The folders of the files that came with the job, valid while that process lives."""
    host: str | None = None
    """The name by which workers of other machines reach this one; None: they need not."""
    key: bytes = b""
    """The key they prove to know."""


class AskLease(_Message, frozen=True):
    """Answered by ``Lease``, with the descriptors of the child's input and output; ``NotYet``, or ``Invalid``."""

    key: ChildKey
    settings: ChildSettings
    wait_seconds: float


class Greeted(_AboutLease, frozen=True):
    """The child has answered the hand-shake. Answered by ``LeaseAnswer``, like the following."""


class GiveBack(_AboutLease, frozen=True):
    is_proven: bool
    has_failed: bool


class PipeExchange(_AboutLease, frozen=True):
    """Write to a child, then wait until it has written something, and read. Answered by ``Exchanged``."""

    data: bytes = b""
    wait_seconds: float = 0.0
    waits_for_room: bool = False
    """True: stop waiting once it takes input."""


class AskMachine(_Message, frozen=True):
    """Asks for the machine of a child; the first to ask gets it on its own. Answered by ``OnMachine``."""

    key: ChildKey
    asking: Machine
    lost: Machine | None = None
    """The machine that the driver answered before, if the asking worker could not reach it."""


class Greeting(_Message, frozen=True):
    machine: Machine | None
    """Its address for workers of other machines."""


class Invalid(_Message, frozen=True):
    error: str


class Exchanged(_Message, frozen=True):
    written: int | None
    """The number of bytes written; None: the child's input is closed."""
    data: bytes | None
    """The bytes read, maybe none; None: there will be no more."""


class LeaseAnswer(_Message, frozen=True):
    words: str = ""


class OnMachine(_Message, frozen=True):
    machine: Machine


Request = Greet | AskLease | Greeted | GiveBack | PipeExchange | AskMachine
Answer = Greeting | Lease | NotYet | Invalid | LeaseAnswer | Exchanged | OnMachine

_encoder: Final = msgspec.msgpack.Encoder()
_requests: Final = msgspec.msgpack.Decoder(Request)
_answers: Final = msgspec.msgpack.Decoder(Answer)


def send(channel: MessageChannel, message: Request | Answer, descriptors: tuple[int, ...] = ()) -> None:
    channel.send(_encoder.encode(message), descriptors)


def receive_request(channel: MessageChannel) -> Request | None:
    """None: the worker is gone."""
    try:
        request: Request = _requests.decode(channel.receive(_MAX_BYTES))
    except ChannelClosed:
        return None
    return request


def receive_answer(channel: MessageChannel) -> tuple[Answer, list[int]]:
    """Wait for an answer, and the descriptors that come with it. ConnectionError: the host process is gone."""
    try:
        body, descriptors = channel.receive_with_descriptors(_MAX_BYTES)
    except ChannelClosed:
        raise ConnectionError("the host process of shell components has ended") from None
    return _answers.decode(body), descriptors


# The socket of the host process of this machine


def connect_here(application: str, greet: Greet) -> tuple[MessageChannel, Greeting]:
    """Connect to the application's host process on this machine, and greet it; start it if there is none.

    OSError: it does not start, or its folder is not ours. InvalidConfig: it cannot serve at the address
    given.
    """
    until = time.monotonic() + _START_SECONDS
    while time.monotonic() < until:
        folder = folder_of(application)
        connected = _connect(folder)
        if connected is not None:
            channel = MessageChannel(connected)
            try:
                send(channel, greet)
                greeting, _ = receive_answer(channel)
            except OSError:  # it was about to end
                channel.close()
            else:
                if isinstance(greeting, Invalid):
                    channel.close()
                    raise InvalidConfig(greeting.error)
                assert isinstance(greeting, Greeting)
                return channel, greeting
        # Not found: the one before removed its folder just now. Timed out: so does the loop.
        with contextlib.suppress(FileNotFoundError, subprocess.TimeoutExpired):
            _start(folder, until)
    raise TimeoutError(f"expected the host process of shell components to start in {_START_SECONDS:g} s")


def folder_of(application: str) -> Path:
    """Make the folder of an application's host process on this machine, or find it.

    OSError: another user can enter it, or it cannot be made.
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


def _connect(folder: Path) -> socket.socket | None:
    connected = socket.socket(socket.AF_UNIX)
    try:
        connected.connect(str(folder / "socket"))
    except OSError:
        connected.close()
        return None
    return connected


def _start(folder: Path, until: float) -> None:
    with _only_one(folder / "start"):
        probe = _connect(folder)
        if probe is not None:
            probe.close()
            return
        starting = subprocess.run(  # noqa: S603 - a module of this package
            [sys.executable, "-m", "kinesis_spout.storm.hosting.processes.host_process", str(folder)],
            check=False,
            timeout=max(1.0, until - time.monotonic()),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            # Spark's daemon ends its own process group when it ends.
            start_new_session=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )
        if starting.returncode:
            raise ChildProcessError(
                f"the host process of shell components did not start (exit code {starting.returncode}); its "
                "standard error, which is this process's, says why"
            )


@contextlib.contextmanager
def _only_one(file: Path) -> Iterator[None]:
    with file.open("w") as locked:
        fcntl.flock(locked, fcntl.LOCK_EX)
        yield
