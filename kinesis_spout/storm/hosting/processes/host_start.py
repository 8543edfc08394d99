"""Finds the host process of this machine, and starts it: one, however many workers need it at the same time."""

import contextlib
import fcntl
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.storm.hosting.processes.host_socket import (
    Greet,
    Greeting,
    Invalid,
    folder_of,
    receive_answer,
    send,
)

_START_SECONDS: Final = 60.0


def connect_here(application: str, greet: Greet) -> tuple[socket.socket, Greeting]:
    """Connect to the application's host process on this machine, and greet it; start it if there is none.

    Raises:
        OSError: it does not start, or its folder is not ours.
        InvalidConfig: it cannot serve other machines by the address given.
    """
    until = time.monotonic() + _START_SECONDS
    while True:
        folder = folder_of(application)
        connected = _connect(folder)
        if connected is not None:
            try:
                send(connected, greet)
                greeting, _ = receive_answer(connected)
            except OSError:  # it was about to end
                connected.close()
            else:
                if isinstance(greeting, Invalid):
                    connected.close()
                    raise InvalidConfig(greeting.error)
                assert isinstance(greeting, Greeting)
                return connected, greeting
        if time.monotonic() > until:
            raise TimeoutError(
                f"expected the host process of shell components to start in {_START_SECONDS:g} s"
            )
        try:
            _start(folder, until)
        except FileNotFoundError:
            continue  # the one before removed its folder just now
        except subprocess.TimeoutExpired as error:
            raise TimeoutError(f"expected the host process to start in {_START_SECONDS:g} s") from error


def _connect(folder: Path) -> socket.socket | None:
    connected = socket.socket(socket.AF_UNIX)
    try:
        connected.connect(str(folder / "socket"))
    except OSError:
        connected.close()
        return None
    return connected


def _start(folder: Path, until: float) -> None:
    """Start the host process, unless another worker has done so; return when it serves."""
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
