"""The server as a Java process: found, configured, started, guarded and asked; and its port."""

import importlib.util
import os
import shutil
import socket
import subprocess
import zlib
from pathlib import Path
from typing import Final

from kinesis_spout.model.errors import InvalidConfig, MissingExtra, StoreError

HOST: Final = "127.0.0.1"

_PORTS: Final = range(20_000, 32_000)
"""Below every system's ports for outgoing connections (Linux: 32,768, others: 49,152). Any connection could
take one of those while the server is down, even a client's own attempts to reconnect."""
_MAX_SESSION_TIMEOUT_MILLIS: Final = 60_000
_COMMAND_TIMEOUT_SECONDS: Final = 2.0
_LOG_TAIL_BYTES: Final = 4_000

_JAVA_OPTIONS: Final = (
    "-Xms16m",
    # A limit, not a need: ZooKeeper keeps its last 500 transactions in memory. Commits of 1,000 shards each
    # second exhausted 128 MiB within minutes; 512 KiB each (``ChunkLimits``) weigh about 800 MiB there.
    "-Xmx1536m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",  # a small, short-lived server: a quick start matters more than quick code
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


class JavaServer:
    """ZooKeeper's process on one data directory, which also holds its configuration and log."""

    def __init__(self, data_dir: Path, tick_millis: int) -> None:
        self._data_dir = data_dir
        self._tick_millis = tick_millis
        self._output = data_dir / "server.out"
        self._log = data_dir / "server.log"
        self._zookeeper_dir = data_dir / "data"

    def launch(self, port: int, standard_input: int) -> "subprocess.Popen[bytes]":
        """Start it, guarded: it is killed when ``standard_input`` ends.

        Returns the guard, which ends after the server, with its status.
        """
        java, jars = find_java(), find_jars()
        config = self._write_configuration(port)
        command = [
            java,
            *_JAVA_OPTIONS,
            f"-Dlog4j2.configurationFile={self._data_dir / 'log4j2.properties'}",
            "-cp",
            f"{jars}/*",
            "org.apache.zookeeper.server.ZooKeeperServerMain",
            str(config),
        ]
        with self._output.open("wb") as output:
            return subprocess.Popen(  # noqa: S603 - our own command line
                ["/bin/sh", "-c", _GUARD, "zookeeper-guard", *command],
                stdin=standard_input,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for us: the last commit still needs the server
            )

    def serves(self, port: int) -> bool:
        """Return whether a ZooKeeper serves at ``port``, and from this very directory: ports are used again."""
        lines = ask(port, "conf").splitlines()
        return f"dataDir={self._zookeeper_dir}/version-2" in lines and "Mode:" in ask(port, "srvr")

    def log_tail(self) -> str:
        """Return the end of what it printed and logged, for error messages."""
        parts = []
        for path in (self._output, self._log):
            text = path.read_bytes()[-_LOG_TAIL_BYTES:].decode(errors="replace") if path.exists() else ""
            if text.strip():
                parts.append(f"--- the end of {path}\n{text.rstrip()}")
        return "\n".join(parts) or f"Nothing was logged in {self._data_dir}."

    def _write_configuration(self, port: int) -> Path:
        self._zookeeper_dir.mkdir(exist_ok=True)
        (self._data_dir / "log4j2.properties").write_text(_LOG4J.format(log=self._log))
        config = self._data_dir / "zoo.cfg"
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


def find_java() -> str:
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    if java is None:
        where = f"in JAVA_HOME={home}" if home else "on the PATH, and JAVA_HOME is not set"
        raise InvalidConfig(
            f"no java {where}: the embedded ZooKeeper, like Spark itself, needs Java 17. Install it (Debian, "
            "Ubuntu: apt install openjdk-17-jre-headless; Fedora: dnf install java-17-openjdk-headless; macOS: "
            'brew install openjdk@17) or name an existing ensemble: `zookeeper="host:2181"`'
        )
    return java


def find_jars() -> Path:
    """Find the directory of Spark's jars, which include ZooKeeper: in SPARK_HOME, or those of PySpark."""
    home = os.environ.get("SPARK_HOME")
    spec = importlib.util.find_spec("pyspark")
    packages = [] if spec is None else [Path(folder) for folder in spec.submodule_search_locations or ()]
    # Processes that Spark starts import us from <Spark>/python/lib/pyspark.zip: the jars are next to "python".
    homes = [home for folder in packages for home in folder.parents[3:4]]
    for folder in (*([] if home is None else [Path(home)]), *packages, *homes):
        jars = folder / "jars"
        if any(jars.glob("zookeeper-[0-9]*.jar")):
            return jars
    where = f"in {packages[0]}" if packages else "because PySpark is not installed"
    raise MissingExtra(
        f"the embedded ZooKeeper: expected its jars among those of Spark, found none {where} and SPARK_HOME is "
        f'{home or "not set"}: pip install "kinesis-spout[spark]", or set SPARK_HOME to a Spark that is unpacked '
        'on this machine, or name a ZooKeeper of your own: `zookeeper="host:2181"`'
    )


def ask(port: int, word: str) -> str:
    """Ask a ZooKeeper one of its four-letter questions; empty without an answer."""
    answer = b""
    try:
        with socket.create_connection((HOST, port), timeout=_COMMAND_TIMEOUT_SECONDS) as connection:
            connection.sendall(word.encode())
            while chunk := connection.recv(4096):
                answer += chunk
    except OSError:
        return ""  # no listener, or not a ZooKeeper
    return answer.decode(errors="replace")


def is_free(port: int) -> bool:
    """Return whether no process listens at ``port``."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # ignores the server's dead connections
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def port_for(data_dir: Path) -> int:
    """Choose a free port; the same one for the same directory, while it is free."""
    first = zlib.crc32(str(data_dir).encode())
    for step in range(len(_PORTS)):
        port = _PORTS[(first + step) % len(_PORTS)]
        if is_free(port):
            return port
    raise StoreError(
        f"expected a free port for the embedded ZooKeeper on {HOST} between {_PORTS[0]} and {_PORTS[-1]}, "
        'found every one in use: free one, or name an existing ensemble: `zookeeper="host:2181"`'
    )
