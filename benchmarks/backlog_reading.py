"""Reading a backlog, and what a client uses for it: the rules of every benchmark that compares clients.

A client reads some pages of each shard first, to be warm. When it has seen them all, more pages are put behind
them, and the CPU of all its processes until it has seen those is its cost: nothing was fetched ahead at either
end, and its start is not in it.
"""

import os
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol, Self

from canned_kinesis import CannedKinesis
from figures import ProcessTree
from local_spark import Batches, spark_processes
from pyspark.sql import DataFrame, SparkSession
from unpaced import UnpacedKinesis

PAGE: Final = 10_000
REFERENCE: Final = "boto3"
ASYNC: Final = "async-kinesis"
RUST: Final = "kcl-rs"
BYTEWAX: Final = "bytewax"
PACKAGES: Final = {ASYNC: "async-kinesis==3.0.1", RUST: "kcl-rs==0.1.4", BYTEWAX: "bytewax==0.21.1"}
"""From PyPI, into an environment of their own: their dependencies contradict ours."""
DEADLINE_SECONDS: Final = 600.0
_SCRIPT: Final = Path(__file__).with_name("source_clients.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Of reading a backlog."""

    cpu_micros: float
    """Per record."""
    records_per_second: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What is read."""

    shards: int
    size_bytes: int
    records: int
    """To measure, at least one page of each shard."""
    warm_up_records: int
    kind: str = "backlog"
    """Of data; see ``canned_backlog``."""
    page: int = PAGE
    """How many records each page has."""

    @property
    def pages(self) -> int:
        """Per shard."""
        return -(-self.records // (self.shards * self.page))

    @property
    def warm_up_pages(self) -> int:
        """Per shard, before what is measured."""
        return -(-self.warm_up_records // (self.shards * self.page))

    def stream(self, client: str) -> str:
        """Name the stream: one for each client, as each gets its further pages at its own time."""
        name = "".join(sign if sign.isalnum() else "_" for sign in client)
        return f"{self.kind}-{self.shards}-{self.page}-{self.size_bytes}-{self.warm_up_pages}-{name}_{os.getpid()}"

    def records_in(self, pages: int) -> int:
        """Count the records of so many pages per shard."""
        return pages * self.shards * self.page


class Reading(Protocol):
    """A client at work."""

    def cpu_seconds(self) -> float:
        """Tell what its processes used so far."""
        ...

    def wait_for(self, records: int) -> None:
        """Wait until it has seen so many."""
        ...


def cost_of(reading: Reading, kinesis: CannedKinesis, client: str, load: Load) -> Cost:
    """Measure a client that has just been started on its stream."""
    warm_up, measured = load.records_in(load.warm_up_pages), load.records_in(load.pages)
    reading.wait_for(warm_up)
    cpu, started = reading.cpu_seconds(), time.perf_counter()
    kinesis.extend(load.stream(client), load.pages)
    reading.wait_for(warm_up + measured)
    seconds = time.perf_counter() - started
    return Cost(
        cpu_micros=(reading.cpu_seconds() - cpu) / measured * 1e6, records_per_second=measured / seconds
    )


class SourceQuery(AbstractContextManager["SourceQuery"]):
    """A query on ``format("kinesis")``, without the read limits.

    Args:
        each_batch: what ``foreachBatch`` calls; None: the rows are dropped.
    """

    def __init__(
        self,
        spark: SparkSession,
        kinesis: CannedKinesis,
        stream: str,
        checkpoints: Path,
        each_batch: Callable[[DataFrame, int], None] | None = None,
    ) -> None:
        checkpoint = checkpoints / stream
        rows = (
            spark.readStream.format(UnpacedKinesis.name())
            .option("streamName", stream)
            .option("region", "us-east-1")
            .option("endpointUrl", kinesis.url)
            .option("awsAccessKey", "test")
            .option("awsSecretKey", "test")
            .option("initialPosition", "trim_horizon")
            .load()
            .writeStream
        )
        written = rows.format("noop") if each_batch is None else rows.foreachBatch(each_batch)
        self._query = written.option("checkpointLocation", str(checkpoint)).start()
        self._batches = Batches(self._query, checkpoint)
        self._jvm = spark_processes(spark)

    def __exit__(self, *_error: object) -> None:
        self._query.stop()

    def cpu_seconds(self) -> float:
        """See ``Reading``."""
        return time.process_time() + self._jvm.cpu_seconds()

    def wait_for(self, records: int) -> None:
        """See ``Reading``."""
        self._batches.wait_for(records, seconds=DEADLINE_SECONDS)


class ClientProcess:
    """One of ``source_clients``, in a process of its own."""

    def __init__(
        self,
        python: Path,
        kinesis: CannedKinesis,
        client: str,
        load: Load,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        warm_up = load.records_in(load.warm_up_pages)
        counts = (warm_up, warm_up + load.records_in(load.pages))
        self._process = subprocess.Popen(
            [str(python), str(_SCRIPT), client, kinesis.url, load.stream(client), *map(str, counts)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=dict(os.environ) | dict(environment or {}),
        )
        self._tree = ProcessTree(self._process.pid)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._process.communicate()  # closes its standard input, which ends it

    def cpu_seconds(self) -> float:
        """See ``Reading``."""
        return self._tree.cpu_seconds()

    def wait_for(self, records: int) -> None:
        """See ``Reading``."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line == f"{records}\n", f"expected to see {records} records, got {line!r}"


def let_processes_import_benchmarks() -> None:
    """Put this folder on the ``PYTHONPATH`` of the processes that are started from here on."""
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(_SCRIPT.parent), *sys.path]))


def other_environment(directory: Path, clients: Sequence[str]) -> tuple[Path, dict[str, str]]:
    """Install clients from PyPI. Returns their Python, and why some are not there."""
    venv.create(directory, with_pip=True)
    python = directory / "bin" / "python"
    missing = {}
    for client in clients:
        installed = subprocess.run(
            [str(python), "-m", "pip", "install", "--quiet", "--only-binary=:all:", PACKAGES[client]],
            capture_output=True,
            text=True,
            check=False,
        )
        if installed.returncode:
            missing[client] = _last_line(installed.stderr.splitlines())
    return python, missing


def _last_line(lines: Sequence[str]) -> str:
    return next((line for line in reversed(lines) if line.startswith("ERROR")), "pip could not install it")
