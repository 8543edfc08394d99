"""The children of this machine, as a Python worker has them: leased from the host process.

Python workers come and go, so the processes of components do not belong to them. The first worker starts the host
process. Descriptors of pipes are handed over with each lease: a worker speaks with its child directly, and the
host process only starts, keeps and ends.
"""

import contextlib
import fcntl
import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kinesis_spout.errors import InvalidConfig
from kinesis_spout.multilang.host.processes.child_process import ChildSettings
from kinesis_spout.multilang.host.processes.children import ChildKey, Lease, NotYet
from kinesis_spout.multilang.host.processes.host_socket import (
    Answer,
    AskLease,
    Condemn,
    Done,
    Granted,
    Greet,
    Greeted,
    Invalid,
    Refused,
    Release,
    Request,
    folder_of,
    receive_answer,
    send,
)
from kinesis_spout.topology.running.program import SHELL_HOST

_START_SECONDS: Final = 60.0
_log = logging.getLogger(__name__)


def host_conf(application: str) -> dict[str, str]:
    """Give what a topology's conf needs so that its shell bolts use one host process on each machine.

    Without it each Python process owns the processes of its own shell bolts, and they end with it.

    Args:
        application: an id, such as Spark's of the application: who has the same shares the processes.
    """
    return {SHELL_HOST: application}


class HostedChildren:
    """See ``Keeper``. Mutable; one thread's. Connects when it is first needed, and again when that was lost."""

    def __init__(self, application: str) -> None:
        self._application = application
        self._connected: socket.socket | None = None
        self._held: dict[ChildKey, Lease] = {}

    def lease(self, key: ChildKey, settings: ChildSettings, wait_seconds: float) -> Lease | NotYet:
        """See ``Keeper``."""
        answer, descriptors = self._ask(
            AskLease(key=key, settings=settings, wait_seconds=wait_seconds), again=True
        )
        if isinstance(answer, Invalid):
            raise InvalidConfig(answer.error)
        if isinstance(answer, Refused):
            return NotYet(answer.reason)
        assert isinstance(answer, Granted)
        stdin, stdout = descriptors
        lease = Lease(
            number=answer.number,
            pid=answer.pid,
            stdin=stdin,
            stdout=stdout,
            pid_folder=answer.pid_folder,
            is_fresh=answer.is_fresh,
            is_disturbed=answer.is_disturbed,
        )
        self._held[key] = lease
        return lease

    def greeted(self, key: ChildKey, lease: Lease) -> None:
        """See ``Keeper``."""
        with contextlib.suppress(OSError):  # then there is no host process that could lease it again
            self._ask(Greeted(key=key, number=lease.number))

    def release(self, key: ChildKey, lease: Lease, *, is_proven: bool) -> None:
        """See ``Keeper``."""
        self._drop(key, lease)
        try:
            self._ask(Release(key=key, number=lease.number, is_proven=is_proven))
        except OSError as error:
            _log.warning(
                "the host process of shell components is gone, and with it their processes: %r", error
            )

    def condemn(self, key: ChildKey, lease: Lease, *, is_proven: bool) -> str:
        """See ``Keeper``."""
        self._drop(key, lease)
        try:
            answer, _ = self._ask(Condemn(key=key, number=lease.number, is_proven=is_proven))
        except OSError as error:
            return f"the host process of shell components, which owned it, is gone: {error!r}"
        assert isinstance(answer, Done)
        return answer.words

    def close(self) -> None:
        """See ``Keeper``. The processes stay with the host process."""
        for key, lease in list(self._held.items()):
            self._drop(key, lease)
        if self._connected is not None:
            self._connected.close()
            self._connected = None

    def _drop(self, key: ChildKey, lease: Lease) -> None:
        if self._held.pop(key, None) is not None:
            os.close(lease.stdin)
            os.close(lease.stdout)

    def _ask(self, request: Request, *, again: bool = False) -> tuple[Answer, list[int]]:
        is_new = self._connected is None
        if self._connected is None:
            if not again:
                raise ConnectionError("the connection was lost")
            self._connected = connect(self._application)
        try:
            send(self._connected, request)
            return receive_answer(self._connected)
        except OSError:
            self._connected.close()
            self._connected = None
            if is_new or not again:
                raise
        return self._ask(request, again=True)


def connect(application: str) -> socket.socket:
    """Connect to the application's host process on this machine; start it if there is none.

    Raises:
        OSError: it does not start, or its folder is not ours.
    """
    until = time.monotonic() + _START_SECONDS
    while True:
        folder = folder_of(application)
        connected = _connect(folder)
        if connected is not None:
            try:
                send(connected, Greet(lives_with=_lives_with()))
                receive_answer(connected)
            except OSError:  # it was about to end
                connected.close()
            else:
                return connected
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
            [sys.executable, "-m", "kinesis_spout.multilang.host.processes.host_process", str(folder)],
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


def _lives_with() -> int:
    """Say which process lives as long as this machine takes part in the application.

    A Python worker of Spark is the child of a daemon (or of the executor), which lives as long as the executor
    does; the worker itself is ended after a minute without work.
    """
    parent = os.getppid()
    return parent if "pyspark.worker" in sys.modules and parent > 1 else os.getpid()
