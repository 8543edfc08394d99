"""What a test has of the endpoint: it starts the process, makes streams, switches behaviours on and counts them.

    unkind.switch_on(Behaviour.NO_NEXT_ITERATOR, operations=["GetRecords"], rate=0.1, seed="7")
    ...
    assert unkind.happened[Behaviour.NO_NEXT_ITERATOR] > 0

Each worker of pytest has one process; the fixture ``unkind`` gives it kind, and makes it kind again. Streams have
names of their own.
"""

import base64
import http.client
import json
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

import pytest

from kinesis_spout.kinesis import KinesisClientSettings
from tests.support.kinesis.unkind.behaviours import Behaviour

if TYPE_CHECKING:
    from mypy_boto3_kinesis import KinesisClient

REGION: Final = "us-east-1"
_CONTROL: Final = "/unkind"
_REPOSITORY: Final = Path(__file__).parents[4]
_COMMAND_SECONDS: Final = 30.0


class UnkindEndpoint:
    """A context manager, with TLS if it gets a certificate with its key. Thread-safe."""

    def __init__(self, certificate: Path | None = None) -> None:
        self._certificate = certificate

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "tests.support.kinesis.unkind.server"]
        if self._certificate is not None:
            command.append(str(self._certificate))
        self._process = subprocess.Popen(
            command, cwd=_REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self.port, self._kind_port = map(int, self._process.stdout.readline().split())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()  # closes its standard input, which ends it

    @property
    def url(self) -> str:
        return self._url(self.port)

    def _url(self, port: int) -> str:
        return f"http{'s' if self._certificate else ''}://127.0.0.1:{port}"

    def kind_settings(self) -> KinesisClientSettings:
        """Say how who prepares and looks reaches the same streams, whatever is switched on."""
        return self.settings(endpoint_url=self._url(self._kind_port))

    def settings(self, **others: Any) -> KinesisClientSettings:
        """Say how a client reaches it."""
        given: dict[str, Any] = {
            "region": REGION,
            "endpoint_url": self.url,
            "aws_access_key_id": "test",
            "aws_secret_access_key": "test",
            "ca_bundle": None if self._certificate is None else str(self._certificate),
        }
        return KinesisClientSettings(**{**given, **others})

    def client(self) -> "KinesisClient":
        """Return a client of one who prepares and looks."""
        return self.kind_settings().connect()

    # Behaviours

    def switch_on(
        self,
        behaviour: Behaviour,
        *,
        rate: float = 1.0,
        operations: Iterable[str] = (),
        stream: str = "",
        shard_id: str = "",
        after: int = 0,
        times: int | None = None,
        seed: str = "",
        **how: Any,
    ) -> None:
        """Have calls meet a behaviour from now on; see ``behaviours.Switch`` and the table's own arguments.

        ``body`` in ``how`` may be bytes.
        """
        if isinstance(how.get("body"), bytes):
            how["body"] = base64.b64encode(how["body"]).decode()
        self._do(
            "switch_on",
            behaviour=behaviour,
            rate=rate,
            operations=list(operations),
            stream=stream,
            shard_id=shard_id,
            after=after,
            times=times,
            seed=seed,
            how=how,
        )

    def switch_off(self, behaviour: Behaviour | None = None) -> None:
        """Switch one behaviour off, or all."""
        self._do("switch_off", behaviour=behaviour)

    def reset(self) -> None:
        """Make it kind, and its counts 0; streams stay."""
        self._do("reset")

    @property
    def happened(self) -> Counter[str]:
        """How often each behaviour really happened."""
        return Counter(self._do("counts")["happened"])

    @property
    def expected(self) -> float:
        """How many behaviours were to happen on average, of those at a rate."""
        return float(self._do("counts")["expected"])

    @property
    def calls(self) -> Counter[str]:
        """By operation, whatever was answered."""
        return Counter(self._do("counts")["calls"])

    @property
    def records_lost(self) -> int:
        """How many records were put by calls whose answers were lost."""
        return int(self._do("counts")["records_lost"])

    def seen(self, operation: str | None = None) -> list[dict[str, Any]]:
        """Return the calls that came: ``operation``, ``request``, ``headers``, ``connection`` and ``time``."""
        found: list[dict[str, Any]] = self._do("seen", operation=operation)
        return found

    # Streams

    def create_stream(
        self, *, shards: int = 1, name: str | None = None, region: str = REGION, **options: Any
    ) -> str:
        """Make a stream; ``options``: ``busy_seconds`` for each change, ``max_record_kib``, ``mode``."""
        name = name or f"stream-{uuid.uuid4().hex[:12]}"
        self._do("create_stream", region=region, name=name, shards=shards, **options)
        return name

    def put(
        self,
        stream: str,
        *payloads: bytes,
        shard_id: str | None = None,
        key: str = "key",
        arrived: float | None = None,
        region: str = REGION,
    ) -> list[str]:
        """Put records past all limits and behaviours, also into a closed shard; returns their numbers."""
        data = [base64.b64encode(payload).decode() for payload in payloads]
        numbers: list[str] = self._do(
            "put", region=region, stream=stream, shard_id=shard_id, key=key, data=data, arrived=arrived
        )
        return numbers

    def records(self, stream: str, *, region: str = REGION) -> dict[str, list[dict[str, str]]]:
        """Return what is in the stream, by shard, as the API shows it."""
        found: dict[str, list[dict[str, str]]] = self._do("records", region=region, stream=stream)
        return found

    def trim(self, stream: str, shard_id: str, before: str | None = None, *, region: str = REGION) -> int:
        """Have retention remove a shard's records below a number, or all; returns how many."""
        return int(self._do("trim", region=region, stream=stream, shard_id=shard_id, before=before))

    def forget_shard(self, stream: str, shard_id: str, *, region: str = REGION) -> None:
        """Have retention remove a shard."""
        self._do("forget_shard", region=region, stream=stream, shard_id=shard_id)

    def set_list_page(self, shards: int) -> None:
        """Set how many shards ListShards gives at once, at most."""
        self._do("set_list_page", shards=shards)

    # Subscriptions

    def set_subscriptions(self, **settings: float) -> None:
        """Set ``again_after_seconds``, ``lasts_seconds``, ``poll_seconds``, ``heartbeat_seconds``."""
        self._do("set_subscriptions", **settings)

    def take_over(self, shard_id: str | None = None) -> int:
        """End subscriptions as if another member had subscribed; returns how many."""
        return int(self._do("take_over", shard_id=shard_id))

    def is_caught_up(self, stream: str, shard_id: str) -> bool:
        """Tell whether subscribers to a shard have been sent everything."""
        return bool(self._do("is_caught_up", stream=stream, shard_id=shard_id))

    # Clock and credentials

    def set_clock(self, ahead_seconds: float) -> None:
        """Set how far the service's clock is ahead of this machine's."""
        self._do("set_clock", ahead_seconds=ahead_seconds)

    def accept(self, keys: dict[str, str] | None) -> None:
        """Accept only these access keys, each with its session token (or ""); None: any."""
        self._do("accept", keys=keys)

    def give(self, **given: str) -> None:
        """Set what the sources below give: ``access_key``, ``secret_key``, ``token``, for how many ``seconds``."""
        self._do("give", **given)

    def be_bad(self, *, seconds: float, status: int = 200, body: str = "") -> None:
        """Have the sources below answer so for some time."""
        self._do("be_bad", seconds=seconds, status=status, body=body)

    @property
    def credentials_asked(self) -> int:
        """How often a source below was asked."""
        return int(self._do("counts")["credentials_asked"])

    def container_environment(self) -> dict[str, str]:
        """Return the environment of a process that gets its credentials from a container's agent."""
        return {"AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{self.url}/credentials"}

    def metadata_environment(self) -> dict[str, str]:
        """Return the environment of a process that gets them from a machine's metadata service."""
        return {"AWS_EC2_METADATA_SERVICE_ENDPOINT": f"{self.url}/"}

    def credential_process(self, folder: Path) -> Path:
        """Make a configuration file (AWS_CONFIG_FILE) with a ``credential_process`` that asks here."""
        script = folder / "credentials.py"
        script.write_text(
            "import json, urllib.request\n"
            f"body = urllib.request.urlopen('{self.url}/credentials', timeout=10).read().decode()\n"
            "try:\n"
            "    given = json.loads(body)\n"
            "    names = {'AccessKeyId', 'SecretAccessKey', 'Expiration'}\n"
            "    token = {'SessionToken': given['Token']} if given['Token'] else {}\n"
            "    print(json.dumps({'Version': 1, **{each: given[each] for each in names}, **token}))\n"
            "except (ValueError, KeyError):\n"
            "    print(body)\n"
        )
        config = folder / "config"
        config.write_text(f"[default]\ncredential_process = {sys.executable} {script}\n")
        return config

    def _do(self, command: str, **arguments: Any) -> Any:
        kind = http.client.HTTPConnection if self._certificate is None else _unverified
        connection = kind("127.0.0.1", self.port, timeout=_COMMAND_SECONDS)
        try:
            connection.request("POST", _CONTROL, json.dumps({"do": command, **arguments}))
            reply = connection.getresponse()
            document = json.loads(reply.read())
        finally:
            connection.close()
        if reply.status != http.client.OK:
            raise ValueError(f"expected the endpoint to {command}, got {document}")
        return document


def _unverified(host: str, port: int, timeout: float) -> http.client.HTTPSConnection:
    import ssl  # noqa: PLC0415 - only for TLS

    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return http.client.HTTPSConnection(host, port, timeout=timeout, context=context)


@pytest.fixture(scope="session")
def unkind_endpoint() -> Iterator[UnkindEndpoint]:
    """Give one process for all tests of a worker; its behaviours are a test's own by ``unkind``."""
    with UnkindEndpoint() as endpoint:
        yield endpoint


@pytest.fixture
def unkind(unkind_endpoint: UnkindEndpoint) -> Iterator[UnkindEndpoint]:
    """Give the endpoint, kind and with its counts at 0."""
    unkind_endpoint.reset()
    yield unkind_endpoint
    unkind_endpoint.reset()
