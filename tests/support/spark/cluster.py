"""A standalone cluster of Spark, from PySpark's own jars: a master and workers, each on its own loopback address.

So drivers, executors and workers talk over sockets as on several machines, but for the disk, which they share.
Each has a folder of its own there for temporary files.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyspark
import pytest

from tests.spark_classes import quick_java
from tests.support.kinesis.endpoints import REPOSITORY
from tests.support.waiting import wait_until

DRIVER_HOST: Final = "127.0.0.1"
_MASTER_HOST: Final = "127.0.0.2"
_QUICK_JAVA: Final = quick_java(Path(sys.prefix))
_MASTER_ADDRESS: Final = re.compile(r"Starting Spark master at (spark://\S+)")

APPLICATION_SETTINGS: Final[Mapping[str, str]] = {
    "spark.driver.host": DRIVER_HOST,
    "spark.driver.bindAddress": DRIVER_HOST,
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": _QUICK_JAVA,
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
}
"""What an application on this cluster sets: executors that are small and quick to start."""


@dataclass(frozen=True, kw_only=True)
class SparkWorker:
    """The daemon of one machine, with the executors that it started."""

    host: str
    work: Path
    """Below it each executor has a folder to work in, ``<application>/<executor>``."""
    temporary: Path
    process: "subprocess.Popen[bytes]"

    def executors(self) -> list[int]:
        """Give the processes of the executors that run now."""
        table = subprocess.run(
            ["ps", "-ww", "-eo", "pid=,ppid=,pgid=,stat=,args="], check=True, capture_output=True, text=True
        )
        parents = {}
        for line in table.stdout.splitlines():
            pid, parent, group, state, command = line.split(maxsplit=4)
            is_executor = "CoarseGrainedExecutorBackend" in command
            if int(group) == self.process.pid and is_executor and not state.startswith("Z"):
                parents[int(pid)] = int(parent)
        # A process that an executor is about to start has its command line for a moment.
        return [pid for pid, parent in parents.items() if parent not in parents]

    def kill(self) -> None:
        """Lose the machine: the daemon, the executors, which are in its process group, and the host processes."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(timeout=60)
        for pid in self.host_processes():
            with suppress(ProcessLookupError):  # it has ended meanwhile
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.temporary, ignore_errors=True)

    def host_processes(self) -> list[int]:
        """Give the processes that own the shell components of this machine."""
        table = subprocess.run(["ps", "-ww", "-eo", "pid=,args="], check=True, capture_output=True, text=True)
        rows = (line.split(maxsplit=1) for line in table.stdout.splitlines())
        return [int(pid) for pid, *command in rows if f"{self.temporary}/" in "".join(command)]


class SparkCluster:
    """Mutable."""

    def __init__(self, folder: Path, processes: ExitStack) -> None:
        self._folder = folder
        self._processes = processes
        self._hosts = (f"127.0.0.{number}" for number in range(3, 100))
        process = self._start(_MASTER_HOST, "master.Master")
        log = self._log(_MASTER_HOST)
        wait_until(
            lambda: process.poll() is not None or _MASTER_ADDRESS.search(log.read_text()) is not None,
            f"the master; see {log}",
        )
        said = _MASTER_ADDRESS.search(log.read_text())
        assert said is not None, f"the master ended: {log.read_text()[-3_000:]}"
        self.master: str = said[1]
        """Its address, for ``SparkSession.builder.master``."""

    def add_worker(self) -> SparkWorker:
        """Add a machine with one core. It makes itself known to the master when it is ready."""
        host = next(self._hosts)
        work = self._folder / f"work-{host}"
        options = ("--cores", "1", "--memory", "1g", "--work-dir", str(work), self.master)
        # A short path: there will be Unix sockets below it.
        temporary = Path(tempfile.mkdtemp(prefix="machine-", dir="/tmp"))
        worker = SparkWorker(
            host=host,
            work=work,
            temporary=temporary,
            process=self._start(host, "worker.Worker", *options, temporary=temporary),
        )
        self._processes.callback(worker.kill)
        return worker

    def _log(self, host: str) -> Path:
        return self._folder / f"{host}.log"

    def _start(
        self, host: str, main: str, *options: str, temporary: Path | None = None
    ) -> "subprocess.Popen[bytes]":
        with self._log(host).open("wb") as output:
            process = subprocess.Popen(
                [
                    str(Path(pyspark.__file__).parent / "bin" / "spark-class"),
                    f"org.apache.spark.deploy.{main}",
                    *("--host", host, "--port", "0", "--webui-port", "0"),
                    *options,
                ],
                # Executors have the environment of their worker.
                env=os.environ
                | {
                    "PYTHONPATH": str(REPOSITORY),
                    "SPARK_LOCAL_IP": host,
                    "TMPDIR": str(temporary or self._folder),
                    "SPARK_DAEMON_MEMORY": "256m",
                    "SPARK_DAEMON_JAVA_OPTS": f"{_QUICK_JAVA} -Dspark.master.rest.enabled=false",
                },
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._processes.callback(_kill, process)
        return process


def _kill(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait(timeout=60)


@contextmanager
def spark_cluster(folder: Path) -> Iterator[SparkCluster]:
    """Run a cluster that has no workers yet; all that was started for it ends with the body."""
    with socket.socket() as probe:
        try:
            probe.bind((_MASTER_HOST, 0))
        except OSError as error:
            pytest.skip(f"this machine has no loopback address but {DRIVER_HOST}: {error}")
    with ExitStack() as processes:
        yield SparkCluster(folder, processes)
