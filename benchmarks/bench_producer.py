"""Putting records: `KinesisProducer` beside a boto3 loop and other producers of PyPI, in CPU seconds.

Each client runs in a process of its own against an endpoint that takes everything; see ``put_clients``. The CPU of
the caller's ``put`` is a row of its own. kinesis-python is not measured: it was written for
Python 2, and does not run on this one. Nor is kinesis-producer, though it runs: it joins
records into one, which has a random key, puts one by one, and says of none what became of it.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from figures import Figure, Step
from put_endpoint import STREAM, PutEndpoint

PACKAGES: Final = {"async_kinesis": "async-kinesis[kpl]", "async_kinesis_aggregated": "async-kinesis[kpl]"}
"""What a client needs from PyPI."""
REFERENCE: Final = "boto3_loop"
NAMES: Final = {
    REFERENCE: "boto3, a loop of full calls",
    "producer_plain": "KinesisProducer",
    "producer_ordered": "KinesisProducer, order='key'",
    "producer_aggregated": "KinesisProducer, aggregation=True",
    "producer_many": "put_many",
    "producer_many_aggregated": "put_many, aggregation=True",
    "producer_send_aggregated": "send, aggregation=True",
    "producer_many_spool_record": "put_many, spool: record",
    "producer_spool_record": "KinesisProducer, spool: record",
    "producer_spool_interval": "KinesisProducer, spool: interval",
    "producer_spool_system": "KinesisProducer, spool: system",
    "async_kinesis": "async-kinesis",
    "async_kinesis_aggregated": "async-kinesis, aggregated",
}
SIZES: Final = (100, 1_024)
GOALS: Final = {
    ("producer_plain", 100): 3.0,
    ("producer_plain", 1_024): 3.0,
    ("producer_many", 100): 4.0,
    ("producer_many", 1_024): 4.0,
    ("producer_many_aggregated", 100): 20.0,
}
"""How many times cheaper than boto3."""
PUT_GOAL_MICROSECONDS: Final = 2.0
_INSTALL_SECONDS: Final = 300
_RUN_SECONDS: Final = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Of a record, in microseconds of CPU; or why it is not known."""

    all: float | None = None
    put: float = 0.0
    note: str = ""


def figures(*, quick: bool) -> Iterator[Figure | Step]:
    with PutEndpoint() as endpoint, tempfile.TemporaryDirectory() as folder:
        for size_bytes in SIZES:
            reference: float | None = None
            for client, called in NAMES.items():
                what = f"{called}, {size_bytes} B"
                yield Step(what)
                count = (
                    (40_000 if quick else 200_000)
                    if size_bytes == SIZES[0]
                    else (20_000 if quick else 50_000)
                )
                if "producer_spool" in client:  # some wait for the disk at each record
                    count //= 40
                cost = _cost(client, endpoint, size_bytes, count, Path(folder))
                reference = cost.all if client == REFERENCE else reference
                yield _figure(client, what, cost, reference, size_bytes)
                if client == "producer_plain" and cost.all is not None:
                    yield Figure(
                        what=f"{what}: put alone",
                        value=cost.put,
                        unit="µs CPU/record",
                        at_most=PUT_GOAL_MICROSECONDS,
                    )


def _figure(client: str, what: str, cost: Cost, reference: float | None, size_bytes: int) -> Figure:
    ratio = None
    if reference is not None and cost.all is not None and client != REFERENCE:
        ratio = reference / cost.all
    return Figure(
        what=what,
        value=cost.all,
        unit="µs CPU/record",
        reference="" if ratio is None else "boto3",
        ratio=ratio,
        cheaper_at_least=GOALS.get((client, size_bytes)),
        note=cost.note,
    )


def _cost(client: str, endpoint: PutEndpoint, size_bytes: int, count: int, folder: Path) -> Cost:
    packages = folder / client
    if client in PACKAGES and not packages.exists():
        failure = _installed(PACKAGES[client], packages)
        if failure:
            return Cost(note=failure)
    path = [str(packages)] if client in PACKAGES else [str(Path(__file__).parents[1])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([*path, os.environ.get("PYTHONPATH", "")])}
    script = Path(__file__).with_name("put_clients.py")
    done = subprocess.run(
        [sys.executable, script, client, endpoint.url, STREAM, str(size_bytes), str(count)],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        timeout=_RUN_SECONDS,
    )
    if done.returncode:
        return Cost(note=(done.stderr.strip().splitlines() or ["it failed, and says nothing"])[-1][:200])
    seconds, in_caller = json.loads(done.stdout)
    return Cost(all=seconds / count * 1e6, put=in_caller / count * 1e6)


def _installed(package: str, folder: Path) -> str:
    """Install a package into a folder of its own; give what went wrong, if something did."""
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--target", folder, package],
        capture_output=True,
        text=True,
        check=False,
        timeout=_INSTALL_SECONDS,
    )
    lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
    return (lines or ["pip could not install it"])[-1] if done.returncode else ""
