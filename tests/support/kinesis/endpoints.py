"""Kinesis endpoints for tests: moto in process, moto's server, and kinesis-mock (npm package kinesis-local).

``kinesis_endpoint`` runs a test against each of them. ``moto_server`` and ``kinesis_local`` give one, started
once for the whole run. Where an endpoint differs from AWS, ``KinesisEndpoint.needs`` skips, with the reason.
"""

import os
import shutil
import socket
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from moto import mock_aws
from moto.server import ThreadedMotoServer

from examples.demo.processes.endpoint import free_ports
from kinesis_spout.kinesis import KinesisClientSettings
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from mypy_boto3_kinesis import KinesisClient

REPOSITORY = Path(__file__).parents[3]

SHARD_END = "the end of a closed shard"
KEEPS_CLOSED = "closed shards that keep their records"
FILLS_CHILDREN = "children that get the records put after a split"
REFUSES_FOREIGN_NUMBERS = "InvalidArgument for a sequence number of another shard"

MOTO_DIFFERS = {
    SHARD_END: "moto never gives a null NextShardIterator and no ChildShards",
    KEEPS_CLOSED: "moto moves a closed shard's records to its children",
    FILLS_CHILDREN: "moto goes on putting records into the closed parent",
    REFUSES_FOREIGN_NUMBERS: "moto takes any sequence number",
}
KINESIS_LOCAL_DIFFERS = {
    REFUSES_FOREIGN_NUMBERS: "kinesis-mock answers ResourceNotFound, AWS InvalidArgument",
}


@dataclass(frozen=True, kw_only=True)
class KinesisEndpoint:
    name: str
    settings: KinesisClientSettings
    differs: Mapping[str, str] = field(default_factory=dict)

    def client(self) -> "KinesisClient":
        return self.settings.connect()

    def needs(self, *abilities: str) -> None:
        for ability in abilities:
            if ability in self.differs:
                pytest.skip(f"{self.name} lacks {ability}: {self.differs[ability]}")

    def create_stream(self, *, shards: int = 1, name: str | None = None) -> str:
        """Make a stream, under a new name unless one is given, and wait until it is there."""
        name = name or f"stream-{uuid.uuid4().hex[:12]}"
        self.client().create_stream(StreamName=name, ShardCount=shards)
        self.wait_active(name)
        return name

    def wait_active(self, stream: str) -> None:
        def is_active() -> bool:
            summary = self.client().describe_stream_summary(StreamName=stream)
            return summary["StreamDescriptionSummary"]["StreamStatus"] == "ACTIVE"

        wait_until(is_active, f"stream {stream} to be active")


@pytest.fixture
def moto_in_process() -> Iterator[KinesisEndpoint]:
    mock = mock_aws()
    # No reset: moto's server, which other tests may be using, keeps its streams in the same memory.
    mock.start(reset=False)
    try:
        yield KinesisEndpoint(
            name="moto in process", settings=_settings(None, session="moto"), differs=MOTO_DIFFERS
        )
    finally:
        mock.stop(remove_data=False)


@pytest.fixture(scope="session")
def moto_server() -> Iterator[KinesisEndpoint]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield KinesisEndpoint(
            name="moto's server", settings=_settings(f"http://{host}:{port}"), differs=MOTO_DIFFERS
        )
    finally:
        server.stop()


@pytest.fixture(scope="session")
def kinesis_local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KinesisEndpoint]:
    node, package = shutil.which("node"), _kinesis_local_package()
    if node is None:
        pytest.skip("kinesis-local needs node, which is not on the PATH")
    if package is None:
        pytest.skip(
            "npm package kinesis-local is not installed (localstack/ has the script), "
            "and KINESIS_LOCAL_HOME names no node_modules that has it"
        )
    plain, tls = free_ports(2)
    log = tmp_path_factory.mktemp("kinesis-local") / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [node, str(package / "main.js")],
            env={**os.environ, **_kinesis_local_environment(package, plain, tls)},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            wait_until(lambda: process.poll() is not None or _accepts(plain), f"kinesis-local; see {log}")
            if process.poll() is not None:
                pytest.fail(f"kinesis-local ended with {process.returncode}: {log.read_text()[-2000:]}")
            yield KinesisEndpoint(
                name="kinesis-local",
                settings=_settings(f"http://127.0.0.1:{plain}"),
                differs=KINESIS_LOCAL_DIFFERS,
            )
        finally:
            # Killed: it has nothing to keep, and told to end it would wait for our idle connections.
            process.kill()
            process.wait(timeout=60)


@pytest.fixture(params=["moto_in_process", "moto_server", "kinesis_local"])
def kinesis_endpoint(request: pytest.FixtureRequest) -> KinesisEndpoint:
    endpoint: KinesisEndpoint = request.getfixturevalue(request.param)
    return endpoint


def _settings(endpoint_url: str | None, *, session: str = "kinesis-spout") -> KinesisClientSettings:
    return KinesisClientSettings(
        region="us-east-1",
        endpoint_url=endpoint_url,
        aws_access_key_id="test",
        aws_secret_access_key="test",
        role_session_name=session,
    )


def _kinesis_local_package() -> Path | None:
    homes = (os.environ.get("KINESIS_LOCAL_HOME"), REPOSITORY / "localstack" / ".run" / "node_modules")
    packages = (Path(home) / "kinesis-local" for home in homes if home)
    return next((package for package in packages if (package / "main.js").is_file()), None)


def _kinesis_local_environment(package: Path, plain: int, tls: int) -> dict[str, str]:
    quick = (
        "CREATE_STREAM",
        "DELETE_STREAM",
        "SPLIT_SHARD",
        "MERGE_SHARDS",
        "UPDATE_SHARD_COUNT",
        "REGISTER_STREAM_CONSUMER",
        "DEREGISTER_STREAM_CONSUMER",
    )
    return {
        "KINESIS_MOCK_PLAIN_PORT": str(plain),
        "KINESIS_MOCK_TLS_PORT": str(tls),
        "KINESIS_MOCK_CERT_PATH": str(package / "server.json"),
        "LOAD_DATA_IF_EXISTS": "false",
        "SHOULD_PERSIST_DATA": "false",
        "SHARD_LIMIT": "1000",
        "LOG_LEVEL": "ERROR",
        **{f"{name}_DURATION": "20ms" for name in quick},
    }


def _accepts(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _servers() -> list[Any]:
    if _kinesis_local_package() is None or shutil.which("node") is None:
        return ["moto_server"]
    return ["kinesis_local", pytest.param("moto_server", marks=pytest.mark.second_environment)]


SERVERS = _servers()
"""For tests on Spark, which cost seconds: the better endpoint, and in `make test-all` the other one too."""
