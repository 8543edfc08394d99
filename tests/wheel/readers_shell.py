"""The shell of somebody who follows the documents: the endpoint that they start, and what that printed."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import boto3
import pytest

from examples.demo.processes.endpoint import free_ports
from tests.spark_classes import quick_java
from tests.support.kinesis.endpoints import _kinesis_local_package
from tests.wheel import documents
from tests.wheel.documents import REPOSITORY
from tests.wheel.installed_wheel import InstalledWheel
from tests.wheel.terminal import Program

if TYPE_CHECKING:
    from mypy_boto3_kinesis import KinesisClient

ORDERS = ('{"amount": 12.5}', '{"amount": -3}', '{"currency": "EUR"}')
"""On the stream before an example is run: one that is good, one that some refuse, one that most stumble on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadersShell:
    """In a folder of its own."""

    folder: Path
    wheel: InstalledWheel
    environment: Mapping[str, str]

    def runs_example(self, code: str) -> Program:
        """Run it as a script, with the Python that the wheel is installed in."""
        script = self.folder / "example.py"
        script.write_text(code)
        return self._start([self.wheel.program("python"), script])

    def runs(self, *command: str) -> Program:
        """Run a command, one of the wheel's if it has it."""
        return self._start([self.wheel.program(command[0]), *command[1:]])

    def types(self, *lines: str) -> Program:
        """Run lines as a shell does, with the wheel's commands on the PATH."""
        path = f"{self.wheel.environment / 'bin'}{os.pathsep}{self.environment['PATH']}"
        return self._start(["bash", "-ec", "\n".join(lines)], PATH=path)

    def kinesis(self) -> "KinesisClient":
        return _client(self.environment)

    def puts(self, *orders: str) -> None:
        _put(self.kinesis(), *orders)

    def data_of(self, stream: str) -> list[str]:
        """All that is on a stream."""
        kinesis, found = self.kinesis(), []
        for shard in kinesis.list_shards(StreamName=stream)["Shards"]:
            iterator = kinesis.get_shard_iterator(
                StreamName=stream, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
            )["ShardIterator"]
            found += [
                record["Data"].decode() for record in kinesis.get_records(ShardIterator=iterator)["Records"]
            ]
        return sorted(found)

    def _start(self, command: Sequence[str | Path], **variables: str) -> Program:
        return Program(command, folder=self.folder, environment={**self.environment, **variables})


@pytest.fixture(scope="module")
def readers_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A bare environment, with what the documents' lines about the endpoint set in it, and nothing more.

    The endpoint's stream has ``ORDERS``.
    """
    bare = _bare_environment(tmp_path_factory.mktemp("home"))
    run_folder = tmp_path_factory.mktemp("localstack")
    scripts = bare | {
        "LOCALSTACK_RUN": str(run_folder),
        "PORT": str(free_ports(2)[0]),  # kinesis-local takes the next one, too
        "ENGINE": _engine(run_folder),  # LocalStack itself is half a gigabyte, and another process around it
        "LOCALSTACK_PYTHON": sys.executable,
    }
    typed = [*documents.commands(), *(line for step in documents.tutorial() for line in step.commands)]
    lines = [line for line in typed if "localstack/up" in line]
    assert len(lines) == 3
    try:
        _shell("\n".join([*lines, f"env -0 > {run_folder}/after"]), scripts)
        entries = (run_folder / "after").read_text().split("\0")
        after = dict(entry.partition("=")[::2] for entry in entries if entry)
        assert {name for name in after if name not in scripts} > {"AWS_ENDPOINT_URL", "AWS_REGION"}
        environment = bare | {name: value for name, value in after.items() if name.startswith("AWS_")}
        _put(_client(environment), *ORDERS)
        yield environment
    finally:
        _shell("localstack/down", scripts)


@pytest.fixture
def readers_shell(
    tmp_path: Path, installed_wheel: InstalledWheel, readers_environment: dict[str, str]
) -> ReadersShell:
    quick = {"SPARK_SUBMIT_OPTS": quick_java(installed_wheel.environment)}
    return ReadersShell(folder=tmp_path, wheel=installed_wheel, environment=readers_environment | quick)


@pytest.fixture
def plain_shell(
    tmp_path: Path,
    plain_wheel: InstalledWheel,
    installed_wheel: InstalledWheel,
    readers_environment: dict[str, str],
) -> ReadersShell:
    """Of somebody without PySpark, who has a Spark on the disk for the embedded ZooKeeper."""
    spark = {"SPARK_HOME": str(installed_wheel.site_packages / "pyspark")}
    return ReadersShell(folder=tmp_path, wheel=plain_wheel, environment=readers_environment | spark)


def _client(environment: Mapping[str, str]) -> "KinesisClient":
    return boto3.client(
        "kinesis",
        endpoint_url=environment["AWS_ENDPOINT_URL"],
        region_name=environment["AWS_REGION"],
        aws_access_key_id=environment["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
    )


def _put(kinesis: "KinesisClient", *orders: str) -> None:
    for order in orders:
        kinesis.put_record(StreamName="orders", PartitionKey=order, Data=order.encode())


def _bare_environment(home: Path) -> dict[str, str]:
    folders = os.environ["PATH"].split(os.pathsep)
    environment = {
        # Without the environment of the tests, whose `python3` has all that the wheel's has.
        "PATH": os.pathsep.join(folder for folder in folders if not Path(folder, "kinesis-spout").exists()),
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "TERM": "xterm",
    }
    return environment | {name: os.environ[name] for name in ("JAVA_HOME",) if name in os.environ}


def _engine(run_folder: Path) -> str:
    """Name the engine that needs no installation now, after putting it where localstack/up looks."""
    package = _kinesis_local_package()
    if package is None or shutil.which("node") is None:
        return "moto"
    (run_folder / "node_modules").symlink_to(package.parent)
    return "kinesis-local"


def _shell(script: str, environment: Mapping[str, str]) -> None:
    done = subprocess.run(
        ["bash", "-c", f"set -e\n{script}"],
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr
