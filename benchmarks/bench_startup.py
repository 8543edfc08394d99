"""What a program waits for before its first record: imports, and the plain door from its start to the first tuple.

Each row is of a fresh Python process. ZooKeeper and the endpoint run already, as they do in production.
"""

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from backlog_reading import PAGE, let_processes_import_benchmarks
from canned_kinesis import CannedKinesis
from figures import Figure, Step

from kinesis_spout.zookeeper import EmbeddedZooKeeper

IMPORTS: Final = {
    "from kinesis_spout import KinesisSpout": 0.3,
    "from kinesis_spout import KinesisProducer": 0.3,
    "import kinesis_spout.consumer.open_ports": None,
    "import kinesis_spout.spark.tasks.handler_runner": None,
    "import kinesis_spout.cli.app": None,
}
"""Each with its goal, in seconds of CPU."""
FIRST_RECORD_SECONDS: Final = 2.0

_IMPORT: Final = """
import sys, time
from pathlib import Path
began = time.process_time()
{statement}
cpu = time.process_time() - began
resident = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS"))
print(cpu, len(sys.modules), int(resident.split()[1]) // 1024)
"""
_FIRST_RECORD: Final = """
import os, time
began = time.monotonic()
from kinesis_spout import KinesisSpout
imported = time.monotonic()
spout = KinesisSpout(
    stream={stream!r}, app={app!r}, region="us-east-1", endpoint_url={url!r}, initial_position="trim_horizon",
    aws_access_key_id="test", aws_secret_access_key="test", zookeeper={zookeeper!r}, dead_letters={letters!r},
)
with spout.open() as tuples:
    opened = time.monotonic()
    emitted = next(iter(tuples))
    first = time.monotonic()
    tuples.ack(emitted.message_id)
print(first - began, imported - began, opened - imported, first - opened, sep=" ", flush=True)
"""


def figures(*, quick: bool) -> Iterator[Figure | Step]:
    let_processes_import_benchmarks()
    repeats = 3 if quick else 7
    for statement, goal in IMPORTS.items():
        runs = [_printed(_IMPORT.format(statement=statement)) for _ in range(repeats)]
        cpu, modules, megabytes = map(statistics.median, zip(*runs, strict=True))
        yield Figure(
            what=statement,
            value=cpu,
            unit="s CPU",
            at_most=goal,
            note=f"{modules:.0f} modules, {megabytes:.0f} MB",
        )
    with tempfile.TemporaryDirectory() as directory, CannedKinesis() as kinesis:
        yield Step("starting ZooKeeper")
        with EmbeddedZooKeeper(Path(directory) / "zookeeper") as zookeeper:
            runs = [
                _printed(
                    _FIRST_RECORD.format(
                        stream=f"backlog-8-{PAGE}-100-1-startup_{os.getpid()}",
                        app=f"startup-{number}",
                        url=kinesis.url,
                        zookeeper=zookeeper.connect_string,
                        letters=str(Path(directory) / "dead-letters"),
                    )
                )
                for number in range(repeats)
            ]
    whole, imports, opening, reading = map(statistics.median, zip(*runs, strict=True))
    yield Figure(
        what="plain door: start of the program to its first record",
        value=whole,
        unit="s",
        at_most=FIRST_RECORD_SECONDS,
        note=f"import {imports:.2f}, open {opening:.2f}, first tuple {reading:.2f} s",
    )


def _printed(program: str) -> list[float]:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return [float(word) for word in done.stdout.split()]
