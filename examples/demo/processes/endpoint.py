"""The demo's Kinesis endpoint: kinesis-local if it is installed, else moto's server, else the user's own.

An engine that is started here reads a pipe whose other end only this process holds, and ends at end of file.
So it never outlives the demo, however that ends.
"""

import importlib.util
import os
import random
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Self

import boto3

from examples.demo.processes.log_tail import log_tail
from kinesis_spout import InvalidConfig, KinesisError
from kinesis_spout.kinesis import KinesisClientSettings
from kinesis_spout.kinesis.calls import translated

if TYPE_CHECKING:
    from mypy_boto3_kinesis import KinesisClient

HOST: Final = "127.0.0.1"
REGION: Final = "us-east-1"

_START_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.05
_FIRST_PORT: Final = 10_000
_PORTS: Final = 10_000
"""Below the ports of embedded ZooKeepers, and those of outgoing connections."""
_choice: Final = random.SystemRandom()

_KINESIS_LOCAL: Final = """
const { Server } = require("node:net");
const listen = Server.prototype.listen;
Server.prototype.listen = function (first, ...rest) {
  if (typeof first === "number" && typeof rest[0] !== "string") rest.unshift("127.0.0.1");
  if (typeof first === "object" && first !== null && !first.host) first = { ...first, host: "127.0.0.1" };
  return listen.call(this, first, ...rest);
};
process.stdin.resume().on("end", () => process.exit());
require(process.argv[1]);
"""
"""Runs kinesis-local, which would listen on every interface, on loopback; and until standard input ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where the demo's stream is."""

    engine: str
    """What it is, for people."""
    url: str
    ours: bool
    """Whether it goes when the demo goes."""
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    """What the consumer needs in its environment; credentials that mean nothing, if anything."""

    @property
    def region(self) -> str:
        """The region that requests are signed for."""
        return REGION if self.ours else boto3.Session().region_name or REGION

    @property
    def client_settings(self) -> KinesisClientSettings:
        """Say how to reach it."""
        return KinesisClientSettings(
            region=self.region,
            endpoint_url=self.url,
            aws_access_key_id=self.environment.get("AWS_ACCESS_KEY_ID"),
            aws_secret_access_key=self.environment.get("AWS_SECRET_ACCESS_KEY"),
        )


class Engine(NamedTuple):
    """A Kinesis emulator that can be started on this machine."""

    name: str
    command: list[str]
    environment: dict[str, str]
    port: int


class LocalEndpoint:
    """An engine of our own. Mutable: holds its process. A context manager; ``endpoint`` waits until it serves."""

    def __init__(self, engine: Engine, log: Path) -> None:
        self._engine = engine
        self._log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(  # noqa: S603 - our own command line
                engine.command,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=os.environ | engine.environment,
                start_new_session=True,  # Ctrl-C is for us: the consumer still stops in order
            )

    def endpoint(self) -> Endpoint:
        """Wait until the engine serves.

        Raises:
            KinesisError: it ended, or does not serve in time.
        """
        deadline = time.monotonic() + _START_SECONDS
        while not _accepts(self._engine.port):
            status = self._process.poll()
            if status is not None or time.monotonic() > deadline:
                what = (
                    f"did not within {_START_SECONDS:g} s"
                    if status is None
                    else f"ended with status {status}"
                )
                raise KinesisError(
                    f"expected {self._engine.name} to serve on port {self._engine.port}, it {what}.\n"
                    f"{log_tail(self._log)}"
                )
            time.sleep(_POLL_SECONDS)
        return Endpoint(
            engine=self._engine.name,
            url=f"http://{HOST}:{self._engine.port}",
            ours=True,
            environment=_DUMMY_CREDENTIALS,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # It has nothing to keep, and told to end it would wait for idle connections.
        self._process.kill()
        self._process.communicate()


_DUMMY_CREDENTIALS: Final = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}


def own_endpoint(url: str) -> Endpoint:
    """Describe an endpoint of the user's, with the user's credentials if there are any."""
    return Endpoint(
        engine=url,
        url=url,
        ours=False,
        environment={} if boto3.Session().get_credentials() else _DUMMY_CREDENTIALS,
    )


def ends_shards(client: "KinesisClient", stream: str) -> bool:
    """Tell whether a shard that was split or merged comes to its end here. At moto it never does."""
    with translated(f"DescribeStreamSummary of {stream}"):
        reply = client.describe_stream_summary(StreamName=stream)
    # moto's server is Werkzeug's; AWS and the other emulators have their own.
    return "werkzeug" not in reply["ResponseMetadata"]["HTTPHeaders"].get("server", "").lower()


def choose_engine() -> Engine:
    """Say which engine this machine can run.

    Raises:
        InvalidConfig: none.
    """
    node, package = shutil.which("node"), _kinesis_local()
    if node is not None and package is not None:
        return _kinesis_local_engine(node, package)
    if importlib.util.find_spec("moto") is not None:
        (port,) = free_ports(1)
        command = [sys.executable, "-m", "examples.demo.processes.moto_endpoint", str(port)]
        return Engine("moto's server", command, {}, port)
    raise InvalidConfig(
        "expected a Kinesis endpoint that can run here, found neither kinesis-local nor moto: "
        "`make set-up` installs one; or name an endpoint: --endpoint-url http://localhost:4566"
    )


def bypass_proxies() -> None:
    """Keep this process, and those it starts, from asking a proxy for what is on this machine."""
    for name in ("NO_PROXY", "no_proxy"):
        known = os.environ.get(name, "")
        if HOST not in known.split(","):
            os.environ[name] = f"{known},{HOST}".lstrip(",")


def _kinesis_local() -> Path | None:
    checkout = Path(__file__).parents[3]
    homes = (os.environ.get("KINESIS_LOCAL_HOME"), checkout / "localstack" / ".run" / "node_modules")
    packages = (Path(home).resolve() / "kinesis-local" for home in homes if home)
    return next((package for package in packages if (package / "main.js").is_file()), None)


def _kinesis_local_engine(node: str, package: Path) -> Engine:
    port, tls_port = free_ports(2)
    quick = ("CREATE_STREAM", "DELETE_STREAM", "SPLIT_SHARD", "MERGE_SHARDS")
    environment = {
        "KINESIS_MOCK_PLAIN_PORT": str(port),
        "KINESIS_MOCK_TLS_PORT": str(tls_port),
        "KINESIS_MOCK_CERT_PATH": str(package / "server.json"),
        "LOAD_DATA_IF_EXISTS": "false",
        "SHOULD_PERSIST_DATA": "false",
        "LOG_LEVEL": "ERROR",
        **{f"{name}_DURATION": "50ms" for name in quick},
    }
    command = [node, "-e", _KINESIS_LOCAL, str(package / "main.js")]
    return Engine("kinesis-local", command, environment, port)


def free_ports(count: int) -> list[int]:
    """Choose so many ports in a row that nobody listens at.

    Not those that the system would give: it gives them to outgoing connections too, maybe before a server that
    takes a second to start listens there.
    """
    while True:
        first = _choice.randrange(_FIRST_PORT, _FIRST_PORT + _PORTS - count)
        ports = list(range(first, first + count))
        if all(_is_free(port) for port in ports):
            return ports


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def _accepts(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((HOST, port)) == 0
