"""localstack/up and localstack/down, run as a person runs them, with the engine that is always there."""

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest

from examples.demo.processes.endpoint import free_ports

FOLDER = Path(__file__).parents[2] / "localstack"

pytestmark = pytest.mark.endpoint


class Scripts:
    """The two scripts, with a port and a state folder that no engine of the developer's uses."""

    def __init__(self, run_folder: Path) -> None:
        (self.port,) = free_ports(1)
        self._environment = os.environ | {
            "LOCALSTACK_RUN": str(run_folder),
            "LOCALSTACK_PYTHON": sys.executable,
            "PORT": str(self.port),
        }

    def up(self, *options: str) -> subprocess.CompletedProcess[str]:
        return self._run(FOLDER / "up", *options)

    def down(self) -> subprocess.CompletedProcess[str]:
        return self._run(FOLDER / "down")

    def _run(self, *command: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, env=self._environment, capture_output=True, text=True, timeout=500, check=False
        )


def _answers(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def _exports(output: str) -> dict[str, str]:
    return dict(re.findall(r"^export (\w+)=(.*)$", output, re.MULTILINE))


def _open_shards(exports: dict[str, str], stream: str) -> int:
    kinesis = boto3.client(
        "kinesis",
        endpoint_url=exports["AWS_ENDPOINT_URL"],
        region_name=exports["AWS_REGION"],
        aws_access_key_id=exports["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=exports["AWS_SECRET_ACCESS_KEY"],
    )
    summary = kinesis.describe_stream_summary(StreamName=stream)["StreamDescriptionSummary"]
    return summary["OpenShardCount"]


@pytest.fixture
def scripts(tmp_path: Path) -> Iterator[Scripts]:
    scripts = Scripts(tmp_path)
    yield scripts
    scripts.down()


def test_up_prints_what_a_client_needs_to_reach_the_stream_and_down_ends_the_engine(scripts: Scripts) -> None:
    up = scripts.up("--engine", "moto", "--stream", "orders", "--shards", "3")
    assert up.returncode == 0, up.stderr
    assert _open_shards(_exports(up.stdout), "orders") == 3

    down = scripts.down()
    assert down.returncode == 0, down.stderr
    assert not _answers(scripts.port)


def test_up_run_again_keeps_the_engine_and_its_streams(scripts: Scripts) -> None:
    first = scripts.up("--engine", "moto", "--stream", "orders", "--shards", "3")
    again = scripts.up("--stream", "orders", "--shards", "5")
    assert again.returncode == 0, again.stderr
    assert "already runs" in again.stderr
    assert again.stdout == first.stdout
    assert _open_shards(_exports(again.stdout), "orders") == 3


def test_up_refuses_a_port_that_another_program_holds(scripts: Scripts) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", scripts.port))
        other.listen()
        up = scripts.up("--engine", "moto")
    assert up.returncode == 1
    assert f"Port {scripts.port} is in use" in up.stderr


def test_down_leaves_a_process_alone_that_up_did_not_start(scripts: Scripts, tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stranger:
        # As after a restart of the machine: the pid is in use again, by a program that started at another time.
        (tmp_path / "engine.state").write_text(
            f"{stranger.pid}|moto|{scripts.port}|Thu Jan 1 00:00:00 1970\n"
        )
        down = scripts.down()
        assert "No engine runs" in down.stderr
        assert stranger.poll() is None
        stranger.communicate(b"\n")
