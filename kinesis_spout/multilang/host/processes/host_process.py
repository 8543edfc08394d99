"""The process that owns an application's shell components on one machine.

It is started as ``python -m kinesis_spout.multilang.host.processes.host_process FOLDER`` by the first Python
worker that needs it, and ends a few seconds after the last executor of the application on this machine: each
worker names the process that lives as long as its executor. A thread for each connected worker; none for a tuple.
"""

import contextlib
import fcntl
import logging
import os
import select
import shutil
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Final

from kinesis_spout.errors import InvalidConfig
from kinesis_spout.multilang.host.processes.children import ChildKey, Children, Lease, NotYet
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
    receive_request,
    send,
)
from kinesis_spout.workers.worker_log import print_log_lines

LINGER_SECONDS: Final = 5.0
"""How long it stays when nobody needs it: between two executors, and before the first worker has greeted."""

_LOOK_SECONDS: Final = 0.5
_log = logging.getLogger(__name__)


class HostServer:
    """Serves the children of one machine to the workers there. Thread-safe."""

    def __init__(self, listening: socket.socket) -> None:
        self._listening = listening
        self._children = Children()
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._lives_with: dict[int, int | None] = {}

    def serve(self) -> None:
        """Serve until nobody is left. Ends the children."""
        threading.Thread(target=self._accept, name="accept", daemon=True).start()
        needed_at = time.monotonic()
        while time.monotonic() - needed_at < LINGER_SECONDS:
            if self._is_needed():
                needed_at = time.monotonic()
            if self._stopped.wait(_LOOK_SECONDS):
                break
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)  # closing alone does not wake who accepts
        self._listening.close()
        self._children.close()

    def stop(self) -> None:
        """Have ``serve`` return soon."""
        self._stopped.set()

    def _is_needed(self) -> bool:
        with self._lock:
            ended = [pid for pid, watched in self._lives_with.items() if not _lives(pid, watched)]
            for pid in ended:
                watched = self._lives_with.pop(pid)
                if watched is not None:
                    os.close(watched)
            return bool(self._lives_with)

    def _accept(self) -> None:
        while True:
            try:
                connected, _ = self._listening.accept()
            except OSError:  # it was closed: this process ends
                return
            threading.Thread(target=self._serve_worker, args=(connected,), name="worker", daemon=True).start()

    def _serve_worker(self, connected: socket.socket) -> None:
        held: dict[ChildKey, Lease] = {}
        try:
            with connected:
                while (request := receive_request(connected)) is not None:
                    answer, descriptors = self._answer(request, held)
                    send(connected, answer, descriptors)
        except OSError as error:
            _log.info("a Python worker is gone: %r", error)
        except Exception:  # noqa: BLE001 - the other workers are served on
            _log.exception("a Python worker is served no more")
        finally:
            for key, lease in held.items():
                self._children.abandon(key, lease)

    def _answer(self, request: Request, held: dict[ChildKey, Lease]) -> tuple[Answer, tuple[int, ...]]:
        if isinstance(request, Greet):
            self._watch(request.lives_with)
            return Done(), ()
        if isinstance(request, AskLease):
            return self._lease(request, held)
        lease = held.get(request.key)
        if lease is None or lease.number != request.number:
            return Done(words="its lease was over"), ()
        words = ""
        if isinstance(request, Greeted):
            self._children.greeted(request.key, lease)
        elif isinstance(request, Release):
            del held[request.key]
            self._children.release(request.key, lease, is_proven=request.is_proven)
        elif isinstance(request, Condemn):
            del held[request.key]
            words = self._children.condemn(request.key, lease, is_proven=request.is_proven)
        return Done(words=words), ()

    def _lease(self, request: AskLease, held: dict[ChildKey, Lease]) -> tuple[Answer, tuple[int, ...]]:
        try:
            lease = self._children.lease(request.key, request.settings, request.wait_seconds)
        except InvalidConfig as error:
            return Invalid(error=str(error)), ()
        if isinstance(lease, NotYet):
            return Refused(reason=lease.reason), ()
        held[request.key] = lease
        granted = Granted(
            number=lease.number,
            pid=lease.pid,
            pid_folder=lease.pid_folder,
            is_fresh=lease.is_fresh,
            is_disturbed=lease.is_disturbed,
        )
        return granted, (lease.stdin, lease.stdout)

    def _watch(self, pid: int) -> None:
        with self._lock:
            if pid not in self._lives_with:
                self._lives_with[pid] = _watched(pid)


def _watched(pid: int) -> int | None:
    """Give a descriptor that tells when a process has ended, even if its id is given to another (Linux)."""
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def _lives(pid: int, watched: int | None) -> bool:
    if watched is not None:
        poll = select.poll()
        poll.register(watched, select.POLLIN)
        return not poll.poll(0)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def main(folder: Path) -> None:
    """Serve in a folder, unless another process does."""
    print_log_lines()
    with (folder / "life").open("w") as life:
        try:
            fcntl.flock(life, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        place = folder / "socket"
        place.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(place))
            listening.listen(128)
            if os.fork():
                # Whoever started this waits for it no longer: it serves, in a process that is nobody's child.
                os._exit(0)
            server = HostServer(listening)
            signal.signal(signal.SIGTERM, lambda *_: server.stop())
            server.serve()
        place.unlink(missing_ok=True)
        _remove(folder)


def _remove(folder: Path) -> None:
    """Remove the folder, unless another worker is about to start a host process in it."""
    with (folder / "start").open("w") as start:
        try:
            fcntl.flock(start, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
