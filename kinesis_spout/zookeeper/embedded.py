"""A real ZooKeeper from the jars that PySpark ships, so that a first run needs nothing installed but Java.

It serves on loopback only, keeps its data, and never outlives the process that started it, not even one that
is killed: a shell guards it and reads a pipe whose other end only this process holds. At end of file, however
it came about, the guard kills the server; ZooKeeper's log is made for that.

Several processes may name the same data directory. The first starts the server and leaves a state file; the
others find it there and use that server. When the first ends, so does the server, for all of them.
"""

import fcntl
import importlib.util
import json
import os
import shutil
import socket
import subprocess
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from kinesis_spout.errors import InvalidConfig, StoreError

HOST: Final = "127.0.0.1"
DEFAULT_TICK_MILLIS: Final = 500
"""Sessions may last 2 ticks at least: 1 s."""

_MAX_SESSION_TIMEOUT_MILLIS: Final = 60_000
_START_TIMEOUT_SECONDS: Final = 60.0
_STOP_TIMEOUT_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.05
_COMMAND_TIMEOUT_SECONDS: Final = 2.0
_LOG_TAIL_BYTES: Final = 4_000

_JAVA_OPTIONS: Final = (
    "-Xms16m",
    # A limit, not a need: ZooKeeper keeps its last 500 transactions in memory. Commits of 1,000 shards each
    # second made it end at 128 MiB within minutes; 512 KiB each (``ChunkLimits``) weigh about 800 MiB there.
    "-Xmx1536m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",  # a small, short-lived server: quick to start matters more than quick code
    "-Djava.awt.headless=true",
    "-Dzookeeper.preAllocSize=1024",  # KiB; the default of 64 MiB per log file is much for a small disk
    "-Dzookeeper.snapCount=10000",
)

_GUARD: Final = """
exec 3<&0
"$@" 3<&- </dev/null &
server=$!
( read -r _; kill -KILL "$server" ) <&3 &
watcher=$!
exec 3<&-
wait "$server"
status=$?
kill "$watcher" 2>/dev/null
exit "$status"
"""
"""Runs its arguments until they end, or until standard input ends."""

_LOG4J: Final = """\
status = error
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {log}
appender.file.filePattern = {log}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{ISO8601}} %-5p %c{{1}} %m%n
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 1MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 1
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Running:
    """What the state file says of a server."""

    port: int
    pid: int
    """Of the guard; for people who look."""


_held_guards: weakref.WeakSet[subprocess.Popen[bytes]] = weakref.WeakSet()


def _let_go_in_forked_child() -> None:
    """Close our end of the pipes in a forked child, which would otherwise keep the servers alive."""
    for guard in list(_held_guards):
        if guard.stdin is not None:
            guard.stdin.close()


os.register_at_fork(after_in_child=_let_go_in_forked_child)


class EmbeddedZooKeeper:
    """Mutable. A ZooKeeper server of our own; a context manager.

    Args:
        data_dir: where it keeps its data, its configuration and its log; made if missing.
        port: 0 chooses a free one.
        tick_millis: ZooKeeper's tick; sessions last at least two.
        start_timeout_seconds: how long it may take until it serves.
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
        self._tick_millis = tick_millis
        self._start_timeout_seconds = start_timeout_seconds
        self._port: int | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    @property
    def owned(self) -> bool:
        """Whether this object started the server, and will stop it."""
        return self._guard is not None

    @property
    def pid(self) -> int | None:
        """The process id of the guard, if the server is ours."""
        return None if self._guard is None else self._guard.pid

    @property
    def connect_string(self) -> str:
        """``host:port`` for clients.

        Raises:
            StoreError: it is not started.
        """
        if self._port is None:
            raise StoreError("the embedded ZooKeeper is not started: call start() first")
        return f"{HOST}:{self._port}"

    def start(self) -> Self:
        """Start the server, or find the one that serves this data directory, and return when it serves.

        Raises:
            InvalidConfig: Java or PySpark's jars are missing.
            StoreError: it ended, or did not serve in time; ends with the tail of its log.
        """
        if self._port is not None:
            return self
        self.data_dir.mkdir(parents=True, exist_ok=True)
        with self._starting_alone():
            running = self._find_running()
            if running is None:
                self._launch()
            else:
                self._port = running.port
        return self

    def stop(self) -> None:
        """Stop the server if it is ours. The data stays. May be called twice."""
        self._port = None
        if self._guard is None:
            return
        guard, self._guard = self._guard, None
        _held_guards.discard(guard)
        self._state_file.unlink(missing_ok=True)
        assert guard.stdin is not None, "the guard is started with a pipe"
        guard.stdin.close()
        guard.wait(timeout=_STOP_TIMEOUT_SECONDS)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def _state_file(self) -> Path:
        return self.data_dir / "server.json"

    @property
    def _output_file(self) -> Path:
        return self.data_dir / "server.out"

    @property
    def _log_file(self) -> Path:
        return self.data_dir / "server.log"

    @property
    def _zookeeper_dir(self) -> Path:
        return self.data_dir / "data"

    @contextmanager
    def _starting_alone(self) -> Iterator[None]:
        """Let one process at a time look for a server and start one."""
        with (self.data_dir / "start.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _find_running(self) -> _Running | None:
        """Give the living server of this data directory, if there is one."""
        try:
            running = _Running(**json.loads(self._state_file.read_text()))
        except (FileNotFoundError, ValueError, TypeError):
            return None  # none, or one cut short by a crash: then its server is dead too
        return running if self._serves_our_data(running.port) else None

    def _serves_our_data(self, port: int) -> bool:
        """Whether a ZooKeeper serves at ``port``, and from this very directory: ports are used again."""
        lines = _command(port, "conf").splitlines()
        return f"dataDir={self._zookeeper_dir}/version-2" in lines and "Mode:" in _command(port, "srvr")

    def _launch(self) -> None:
        java, jars = find_java(), find_jars()
        port = self._wanted_port or _free_port()
        config = self._write_configuration(port)
        command = [
            java,
            *_JAVA_OPTIONS,
            f"-Dlog4j2.configurationFile={self.data_dir / 'log4j2.properties'}",
            "-cp",
            f"{jars}/*",
            "org.apache.zookeeper.server.ZooKeeperServerMain",
            str(config),
        ]
        with self._output_file.open("wb") as output:
            guard = subprocess.Popen(  # noqa: S603 - our own command line
                ["/bin/sh", "-c", _GUARD, "zookeeper-guard", *command],
                stdin=subprocess.PIPE,
                bufsize=0,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for us: the last commit still needs the server
            )
        _held_guards.add(guard)
        self._guard, self._port = guard, port
        try:
            self._await_serving(guard, port)
        except BaseException:
            self.stop()
            raise
        self._state_file.write_text(json.dumps(asdict(_Running(port=port, pid=guard.pid))))

    def _await_serving(self, guard: subprocess.Popen[bytes], port: int) -> None:
        deadline = time.monotonic() + self._start_timeout_seconds
        while not self._serves_our_data(port):
            status = guard.poll()
            if status is not None:
                raise StoreError(
                    f"the embedded ZooKeeper ended with status {status} before it served on port {port}.\n"
                    f"{self._log_tail()}"
                )
            if time.monotonic() >= deadline:
                raise StoreError(
                    f"the embedded ZooKeeper did not serve on port {port} within "
                    f"{self._start_timeout_seconds:g} s.\n{self._log_tail()}"
                )
            time.sleep(_POLL_SECONDS)

    def _write_configuration(self, port: int) -> Path:
        self._zookeeper_dir.mkdir(exist_ok=True)
        (self.data_dir / "log4j2.properties").write_text(_LOG4J.format(log=self._log_file))
        config = self.data_dir / "zoo.cfg"
        settings = {
            "dataDir": self._zookeeper_dir,
            "clientPortAddress": HOST,
            "clientPort": port,
            "tickTime": self._tick_millis,
            "minSessionTimeout": 2 * self._tick_millis,
            "maxSessionTimeout": _MAX_SESSION_TIMEOUT_MILLIS,
            "maxClientCnxns": 0,
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "ruok,srvr,conf",
            "autopurge.snapRetainCount": 3,
            "autopurge.purgeInterval": 1,
        }
        config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        return config

    def _log_tail(self) -> str:
        parts = []
        for path in (self._output_file, self._log_file):
            text = path.read_bytes()[-_LOG_TAIL_BYTES:].decode(errors="replace") if path.exists() else ""
            if text.strip():
                parts.append(f"--- the end of {path}\n{text.rstrip()}")
        return "\n".join(parts) or f"Nothing was logged in {self.data_dir}."


def find_java() -> str:
    """Find the ``java`` command, in JAVA_HOME or else on the PATH.

    Raises:
        InvalidConfig: says how to install it.
    """
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    if java is None:
        where = f"in JAVA_HOME={home}" if home else "on the PATH, and JAVA_HOME is not set"
        raise InvalidConfig(
            f"no java {where}: the embedded ZooKeeper, like Spark itself, needs Java 17. Install it (Debian, "
            "Ubuntu: apt install openjdk-17-jre-headless; Fedora: dnf install java-17-openjdk-headless; macOS: "
            "brew install openjdk@17) or name an existing ensemble: zookeeper=host:2181"
        )
    return java


def find_jars() -> Path:
    """Find the directory of the jars that PySpark ships.

    Raises:
        InvalidConfig: this PySpark ships none, or no ZooKeeper among them.
    """
    spec = importlib.util.find_spec("pyspark")
    places = [] if spec is None else [Path(place) for place in spec.submodule_search_locations or ()]
    # The processes that Spark starts have it from <Spark>/python/lib/pyspark.zip: the jars are beside "python".
    homes = [home for place in places for home in place.parents[3:4]]
    for place in (*places, *homes):
        jars = place / "jars"
        if any(jars.glob("zookeeper-[0-9]*.jar")):
            return jars
    raise InvalidConfig(
        f"expected ZooKeeper among the jars of PySpark, found none in {places or 'any pyspark package'}: install "
        "the full package (pip install pyspark) or name an existing ensemble: zookeeper=host:2181"
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _command(port: int, word: str) -> str:
    """Ask a ZooKeeper one of its four-letter questions; nothing, if nobody answers."""
    answer = b""
    try:
        with socket.create_connection((HOST, port), timeout=_COMMAND_TIMEOUT_SECONDS) as connection:
            connection.sendall(word.encode())
            while chunk := connection.recv(4096):
                answer += chunk
    except OSError:
        return ""  # nobody there, or nobody that speaks ZooKeeper's language
    return answer.decode(errors="replace")
