"""A real ZooKeeper from Spark's jars, so that a first run needs no installation but Java.

It serves on loopback only and keeps its data. Its users share the data directory:

* The first user starts the server; the others find it. It serves as long as one of them lives, even if the
  one that started it is killed, and it ends with the last (``users_pipe``): no Java process is left behind.
* When the server dies, any user starts it again, with its data, at the same port. A lock lets one process at
  a time start it, and no second one starts while the first has a guard or answers.
* The directory remembers the port. Another one is chosen only if a different process took it meanwhile; so
  read ``connect_string`` again before each connection.
"""

import fcntl
import json
import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen
from typing import IO, Final, Self

from kinesis_spout.model.directories import check_directory
from kinesis_spout.model.errors import KinesisSpoutError, StoreError
from kinesis_spout.zookeeper.java_server import HOST, JavaServer, ask, find_jars, find_java, is_free, port_for
from kinesis_spout.zookeeper.users_pipe import UsersPipe

DEFAULT_TICK_MILLIS: Final = 500
"""Sessions last at least 2 ticks: 1 s."""

_START_TIMEOUT_SECONDS: Final = 60.0
_STOP_TIMEOUT_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.05
_LOOK_SECONDS: Final = 0.25
"""The time after which a user notices that the server has died."""
_PAUSE_CAP_SECONDS: Final = 10.0
"""Between two attempts to start it again."""

_log = logging.getLogger(__name__)


def check_startable(data_dir: Path) -> None:
    """Check, without starting it, that the server of a directory could start."""
    find_java()
    find_jars()
    try:
        check_directory(data_dir)
    except OSError as error:
        raise _unusable(data_dir, error) from error


def answer_of_running(data_dir: Path) -> str | None:
    """Return what the server of a directory says of itself to `srvr`; None if it does not run.

    Raises:
        MissingExtra: it does not run, and its jars are missing.
    """
    port = EmbeddedZooKeeper(data_dir).serving_port()
    if port is not None:
        return ask(port, "srvr")
    find_jars()
    return None


def _unusable(data_dir: Path, error: OSError) -> StoreError:
    return StoreError(
        f"the embedded ZooKeeper cannot use its directory {data_dir}: {error}. Make room or allow writing there, "
        'or name another directory: `zookeeper="embedded:DIRECTORY"`'
    )


class EmbeddedZooKeeper:
    """Mutable. One user's hold on the server of a data directory; a context manager.

    Between ``start`` and ``stop`` a thread watches the server, and starts it again when it has died.

    Args:
        data_dir: for data, configuration and log; made if missing.
        port: 0 takes the directory's own.
        tick_millis: ZooKeeper's tick; sessions last at least two.
    """

    def __init__(
        self,
        data_dir: str | os.PathLike[str],
        port: int = 0,
        tick_millis: int = DEFAULT_TICK_MILLIS,
        start_timeout_seconds: float = _START_TIMEOUT_SECONDS,
    ) -> None:
        self.data_dir = Path(data_dir).resolve()
        self._wanted_port = port
        self._start_timeout_seconds = start_timeout_seconds
        self._java = JavaServer(self.data_dir, tick_millis)
        self._pipe = UsersPipe(self.data_dir / "users")
        self._state_file = self.data_dir / "server.json"
        self._port: int | None = None
        self.started_here = False
        """True if this object started the server now running."""
        self._leaving = threading.Event()
        self._carer: threading.Thread | None = None

    @property
    def connect_string(self) -> str:
        """``host:port`` for clients, as it is now."""
        if self._port is None:
            raise StoreError("the embedded ZooKeeper is not started: call start() first")
        return f"{HOST}:{self._port}"

    def start(self) -> Self:
        """Find the server of this data directory, or start it, and return when it serves.

        Raises:
            InvalidConfig: Java is missing.
            MissingExtra: Spark's jars are missing.
            StoreError: it ended, or did not serve in time; includes the tail of its log. Or the directory
                cannot be used.
        """
        if self._port is not None:
            return self
        self._leaving.clear()
        try:
            self._port = self._ensure_serving()
        except BaseException:
            self._pipe.let_go()
            raise
        self._carer = threading.Thread(target=self._care, name="kinesis-spout-zookeeper", daemon=True)
        self._carer.start()
        return self

    def stop(self) -> None:
        """Release the server. Without other users it ends. The data stays. Idempotent."""
        if self._port is None:
            return
        self._leaving.set()
        if self._carer is not None:
            self._carer.join()
        port, self._port = self._port, None
        self.started_here = False
        ends_with_us = self._pipe.guarded
        self._pipe.let_go()
        deadline = time.monotonic() + _STOP_TIMEOUT_SECONDS
        while ends_with_us and not (self._pipe.used or is_free(port)):
            if time.monotonic() >= deadline:
                raise StoreError(
                    f"expected the embedded ZooKeeper in {self.data_dir} to end within "
                    f"{_STOP_TIMEOUT_SECONDS:g} s after its last user, but port {port} is still in use"
                )
            time.sleep(_POLL_SECONDS)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _care(self) -> None:
        """Start the server again whenever it has died, and follow its address."""
        pause = _LOOK_SECONDS
        while not self._leaving.wait(pause):
            if self._pipe.guarded:
                # Another user may have started it meanwhile, at another port.
                self._port = self._remembered_port() or self._port
                continue
            try:
                self._port = self._ensure_serving()
            except KinesisSpoutError as error:
                if not self._leaving.is_set():
                    pause = min(_PAUSE_CAP_SECONDS, 2 * pause)
                    _log.warning("%s; trying again in %.1f s", error, pause)
            else:
                pause = _LOOK_SECONDS

    # -- finding or starting it

    def _ensure_serving(self) -> int:
        """Return the port at which this directory's server serves; start it if needed."""
        deadline = time.monotonic() + self._start_timeout_seconds
        try:
            self.data_dir.mkdir(parents=True, exist_ok=True)
            with (self.data_dir / "start.lock").open("w") as lock:
                while True:
                    if self._pipe.join():
                        port = self._await_guarded(deadline)
                        if port is not None:
                            self.started_here = False
                            return port
                        continue
                    with _held_alone(lock) as alone:
                        if alone and not self._pipe.join():
                            return self.serving_port() or self._launch(deadline)
                    self._check_deadline(deadline, "another process is starting it, and is not ready")
                    time.sleep(_POLL_SECONDS)
        except OSError as error:
            raise _unusable(self.data_dir, error) from error

    def _await_guarded(self, deadline: float) -> int | None:
        """Wait until the guarded server serves, and return its port; None if it ends before."""
        while self._pipe.guarded:
            port = self._remembered_port()
            if port is not None and self._java.serves(port):
                return port
            self._check_deadline(
                deadline,
                f"a process on this machine has it running, but nobody answers at {HOST}:{port}. Does that "
                "process have a network of its own, as in a container? Then give it a directory of its own",
            )
            time.sleep(_POLL_SECONDS)
        return None

    def serving_port(self) -> int | None:
        """Return the port of the server of this directory if it runs; nothing is started."""
        port = self._remembered_port()
        return port if port is not None and self._java.serves(port) else None

    def _launch(self, deadline: float) -> int:
        """Start the server; the caller holds the lock, and has made sure that none runs."""
        port = self._remembered_port()
        if self._wanted_port or port is None or not is_free(port):
            port = self._wanted_port or port_for(self.data_dir)
        guards_end = self._pipe.begin()
        try:
            guard = self._java.launch(port, guards_end)
        finally:
            os.close(guards_end)
        # Other users may outlive us, and the server our hold: this thread notes its end.
        threading.Thread(target=guard.wait, name="kinesis-spout-zookeeper-guard", daemon=True).start()
        self._remember(port, guard.pid)
        try:
            self._await_serving(guard, port, deadline)
        except BaseException:
            self._pipe.let_go()
            raise
        self.started_here = True
        return port

    def _await_serving(self, guard: Popen[bytes], port: int, deadline: float) -> None:
        while not self._java.serves(port):
            status = guard.poll()
            if status is not None:
                raise StoreError(
                    f"the embedded ZooKeeper ended with status {status} before it served on port {port}.\n"
                    f"{self._java.log_tail()}"
                )
            self._check_deadline(deadline, f"it does not serve on port {port}.\n{self._java.log_tail()}")
            time.sleep(_POLL_SECONDS)

    def _check_deadline(self, deadline: float, problem: str) -> None:
        if self._leaving.is_set():
            raise StoreError(f"the embedded ZooKeeper in {self.data_dir} is no longer needed")
        if time.monotonic() >= deadline:
            raise StoreError(
                f"expected the embedded ZooKeeper in {self.data_dir} to serve within "
                f"{self._start_timeout_seconds:g} s: {problem}"
            )

    # -- what the directory remembers

    def _remembered_port(self) -> int | None:
        try:
            return int(json.loads(self._state_file.read_text())["port"])
        except (FileNotFoundError, ValueError, TypeError, KeyError):
            return None  # none yet, or one cut short by a crash

    def _remember(self, port: int, guard_pid: int) -> None:
        """Write it in one step: others read it without the lock. The pid is for people who look."""
        written = self._state_file.with_suffix(".new")
        written.write_text(json.dumps({"port": port, "pid": guard_pid}))
        written.replace(self._state_file)


@contextmanager
def _held_alone(lock: IO[str]) -> Iterator[bool]:
    """Try to hold the lock that lets one process at a time start the server; yields whether it is held."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        yield False
        return
    try:
        yield True
    finally:
        # Closing is not enough: a child that was forked meanwhile shares the lock.
        fcntl.flock(lock, fcntl.LOCK_UN)
