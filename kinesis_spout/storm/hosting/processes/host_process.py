"""The process that owns an application's shell components on one machine.

The first Python worker that needs it starts it as ``python -m
kinesis_spout.storm.hosting.processes.host_process FOLDER``. It ends a few seconds after the last executor of
the application on this machine: each worker names the process that lives as long as its executor. Workers of
other machines, whose tasks have their processes here, come over TCP; for them it waits longer until there is
an executor again. It has one thread for each worker, none for a tuple.
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
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.processes.keyed_connections import KeyedServer, Machine
from kinesis_spout.processes.liveness import has_ended
from kinesis_spout.processes.message_channel import MessageChannel
from kinesis_spout.processes.worker_log import print_log_lines
from kinesis_spout.storm.hosting.pipes import PipesHere
from kinesis_spout.storm.hosting.processes.child_process import find_resources
from kinesis_spout.storm.hosting.processes.children import ChildKey, Lease, NotYet, OwnChildren
from kinesis_spout.storm.hosting.processes.host_socket import (
    Answer,
    AskLease,
    AskMachine,
    Exchanged,
    Greet,
    Greeted,
    Greeting,
    Invalid,
    LeaseAnswer,
    PipeExchange,
    Request,
    receive_request,
    send,
)

LINGER_SECONDS: Final = 5.0
"""The time it stays without an executor: between two, and before the first worker has greeted."""
USED_LINGER_SECONDS: Final = 60.0
"""The same while workers of other machines are connected: Spark starts another executor for one that was lost."""

_LOOK_SECONDS: Final = 0.5
_log = logging.getLogger(__name__)

_Held = dict[ChildKey, tuple[Lease, PipesHere]]


@dataclass(frozen=True, slots=True)
class _Executor:
    watched: int | None
    """A descriptor that tells when its process has ended."""
    shipped_to: tuple[Path, ...]


class HostServer:
    def __init__(self, listening: socket.socket) -> None:
        self._listening = listening
        self._children = OwnChildren(find=self._find)
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._executors: dict[int, _Executor] = {}
        self._distant: KeyedServer | None = None
        self._machine: Machine | None = None
        self._distant_workers = 0

    def serve(self) -> None:
        threading.Thread(target=self._accept, name="accept", daemon=True).start()
        needed_at = time.monotonic()
        while time.monotonic() - needed_at < (
            USED_LINGER_SECONDS if self._distant_workers else LINGER_SECONDS
        ):
            if self._has_executors():
                needed_at = time.monotonic()
            if self._stopped.wait(_LOOK_SECONDS):
                break
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)  # closing alone does not wake accept
        self._listening.close()
        with self._lock:  # a worker can be greeted just now
            if self._distant is not None:
                self._distant.close()
        self._children.close()

    def stop(self) -> None:
        self._stopped.set()

    def _has_executors(self) -> bool:
        with self._lock:
            ended = [pid for pid, each in self._executors.items() if not _lives(pid, each.watched)]
            for pid in ended:
                watched = self._executors.pop(pid).watched
                if watched is not None:
                    os.close(watched)
            return bool(self._executors)

    def _find(self, resources: str) -> Path:
        with self._lock:
            executors = list(self._executors.values())
        if not executors:
            raise InvalidConfig(
                f"resources: expected an executor on this machine with {resources!r}, but the last one has ended"
            )
        return find_resources(resources, [root for each in reversed(executors) for root in each.shipped_to])

    def _accept(self) -> None:
        while True:
            try:
                connected, _ = self._listening.accept()
            except OSError:  # it was closed: this process ends
                return
            channel = MessageChannel(connected)
            threading.Thread(target=self._serve_worker, args=(channel,), name="worker", daemon=True).start()

    def _serve_distant_worker(self, channel: MessageChannel) -> None:
        with self._lock:
            self._distant_workers += 1
        try:
            self._serve_worker(channel)
        finally:
            with self._lock:
                self._distant_workers -= 1

    def _serve_worker(self, channel: MessageChannel) -> None:
        held: _Held = {}
        try:
            with channel:
                while (request := receive_request(channel)) is not None:
                    answer, descriptors = self._answer(request, held)
                    send(channel, answer, descriptors if channel.is_local else ())
        except OSError as error:
            _log.info("a Python worker is gone: %r", error)
        except Exception:  # noqa: BLE001 - the other workers are served on
            _log.exception("a Python worker is served no more")
        finally:
            for lease, _ in held.values():
                self._children.abandon(lease)

    def _answer(self, request: Request, held: _Held) -> tuple[Answer, tuple[int, ...]]:
        if isinstance(request, Greet):
            return self._greeted(request), ()
        if isinstance(request, AskLease):
            return self._lease(request, held)
        assert not isinstance(request, AskMachine), "which is for the driver"
        lease, pipes = held.get(request.key, (None, None))
        if lease is None or pipes is None or lease.number != request.number:
            return LeaseAnswer(words="its lease was over"), ()
        if isinstance(request, PipeExchange):
            return _exchanged(request, pipes), ()
        words = ""
        if isinstance(request, Greeted):
            self._children.greeted(lease)
        else:
            del held[request.key]
            if request.has_failed:
                words = self._children.discard(lease, is_proven=request.is_proven)
            else:
                self._children.release(lease, is_proven=request.is_proven)
        return LeaseAnswer(words=words), ()

    def _lease(self, request: AskLease, held: _Held) -> tuple[Answer, tuple[int, ...]]:
        try:
            lease = self._children.lease(request.key, request.settings, request.wait_seconds)
        except InvalidConfig as error:
            return Invalid(error=str(error)), ()
        if isinstance(lease, NotYet):
            return lease, ()
        held[request.key] = lease, PipesHere(lease.stdin, lease.stdout)
        return lease, (lease.stdin, lease.stdout)

    def _greeted(self, greet: Greet) -> Greeting | Invalid:
        """Watch a worker's executor; serve other machines, if any can come, at the address that came first."""
        with self._lock:
            if greet.lives_with not in self._executors:
                self._executors[greet.lives_with] = _Executor(
                    _watched(greet.lives_with), tuple(map(Path, greet.shipped_to))
                )
            if self._distant is None and greet.host is not None:
                try:
                    self._distant = KeyedServer(
                        greet.host, greet.key, self._serve_distant_worker, "distant workers"
                    )
                except OSError as error:
                    return Invalid(
                        error=f"expected to listen at {greet.host}, which is SPARK_LOCAL_IP of this machine, or "
                        f"else the address by which it reaches Spark's driver; got {error}"
                    )
                self._machine = Machine(greet.host, self._distant.port)
            return Greeting(machine=self._machine)


def _exchanged(request: PipeExchange, pipes: PipesHere) -> Exchanged:
    written = pipes.write(request.data) if request.data else 0
    data = pipes.read(request.wait_seconds, waits_for_room=request.waits_for_room)
    return Exchanged(written=None if pipes.is_input_closed else written, data=data)


def _watched(pid: int) -> int | None:
    """A descriptor that tells when a process has ended, even if its id is given to another (Linux)."""
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
    return not has_ended(pid)


def main(folder: Path) -> None:
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
                # The worker that started this waits no longer; the forked process serves, detached from it.
                os._exit(0)
            server = HostServer(listening)
            signal.signal(signal.SIGTERM, lambda *_: server.stop())
            server.serve()
        place.unlink(missing_ok=True)
        _remove(folder)


def _remove(folder: Path) -> None:
    with (folder / "start").open("w") as start:
        try:
            fcntl.flock(start, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
