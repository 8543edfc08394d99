"""Which hosts are called: by botocore, by our own calls and by subscriptions, with FIPS and dual-stack endpoints.

No name is looked up. Each leads to a server of this machine, whose certificate has the expected hosts alone: a
call to any other host would not trust it.
"""

import pickle
import socket
import ssl
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kinesis_spout.consumer.open_ports import client_settings
from kinesis_spout.kinesis.read.fan_out.subscribe_call import subscribe
from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.settings import SpoutConfig
from kinesis_spout.settings.producer_config import ProducerConfig
from kinesis_spout.settings.source_options import BatchReadOptions, StreamReadOptions, WriteOptions
from shard_state import Position
from tests.support.kinesis.own_certificate import own_certificate
from tests.unit.kinesis.wire.servers import Server, serving

ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"
CONSUMER = f"{ARN}/consumer/app:1"
FIPS, DUAL = "use_fips_endpoint", "use_dualstack_endpoint"

_LOOK_UP = socket.getaddrinfo


class TlsServer(Server):
    def __init__(self, chain: Path) -> None:
        super().__init__()
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(chain)

    def get_request(self) -> tuple[socket.socket, Any]:
        accepted, address = super().get_request()
        return self._context.wrap_socket(accepted, server_side=True), address

    def hosts_by_operation(self) -> set[tuple[str, str]]:
        return {
            (headers["x-amz-target"].rpartition(".")[2], headers["host"]) for _, headers, _ in self.requests
        }


class Aws:
    """All of AWS, on this machine."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self._monkeypatch = monkeypatch
        self.dialled: list[str] = []

    def calls(self, hosts: set[str], stream: str, **settings: Any) -> set[tuple[str, str]]:
        """Make each kind of call as an executor would; return the operations and the hosts that they went to."""
        chain = own_certificate(self.folder, *hosts)
        with serving(TlsServer(chain)) as server:
            address = server.server_address[:2]

            def look_up(host: str, port: int, *more: Any, **others: Any) -> list[Any]:
                if port != 443:  # of whatever else runs in this process
                    return _LOOK_UP(host, port, *more, **others)
                self.dialled.append(host)
                return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", address)]

            self._monkeypatch.setattr(socket, "getaddrinfo", look_up)
            config = SpoutConfig.of(stream=stream, app="a", ca_bundle=str(chain), **settings)
            made = pickle.loads(pickle.dumps(client_settings(config)))
            with closing(made.create()) as client:
                call_all(
                    client, {"StreamARN": stream} if stream.startswith("arn:") else {"StreamName": stream}
                )
            assert {host for _, host in server.hosts_by_operation()} == set(self.dialled)
            return server.hosts_by_operation()


def call_all(client: Any, stream: dict[str, str]) -> None:
    client.list_shards(**stream)
    read = {"ShardIterator": "it", "Limit": 1} | ({} if "StreamName" in stream else stream)
    put = {**stream, "Records": [{"Data": b"x", "PartitionKey": "k"}]}
    client.get_records(**read)
    client.put_records(**put)
    subscribe(client, consumer_arn=CONSUMER, shard_id="s", position=Position.trim_horizon(), call="c").close()


@pytest.fixture
def aws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Aws:
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_KINESIS"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {
        "DEFAULT_REGION": "us-east-1",
        "ACCESS_KEY_ID": "a",
        "SECRET_ACCESS_KEY": "b",
    }.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    return Aws(tmp_path, monkeypatch)


KINDS = [
    ({}, "kinesis.us-east-1.amazonaws.com"),
    ({FIPS}, "kinesis-fips.us-east-1.amazonaws.com"),
    ({DUAL}, "kinesis.us-east-1.api.aws"),
    ({FIPS, DUAL}, "kinesis-fips.us-east-1.api.aws"),
]


def say(kinds: set[str], said_by: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Ask for kinds of endpoints somewhere; return the settings."""
    if said_by == "settings":
        return dict.fromkeys(kinds, True)
    for kind in kinds if said_by == "environment" else ():
        monkeypatch.setenv(f"AWS_{kind.upper()}", "true")
    if said_by == "shared configuration":
        (folder / "config").write_text("[default]\n" + "".join(f"{kind} = true\n" for kind in kinds))
    return {}


@pytest.mark.parametrize(
    ("said_by", "kinds", "host"),
    [
        *(("settings", *kind) for kind in KINDS),
        ("environment", *KINDS[-1]),
        ("shared configuration", *KINDS[-1]),
    ],
)
def test_every_call_goes_to_the_kind_of_endpoint_that_is_asked_for(
    aws: Aws, monkeypatch: pytest.MonkeyPatch, kinds: set[str], host: str, said_by: str
) -> None:
    settings = say(kinds, said_by, aws.folder, monkeypatch)
    of_account = "123456789012.data-"

    called = aws.calls({host, of_account + host}, "orders", **settings)

    # A consumer has an ARN, which has an account: that decides on the host of a subscription.
    assert called == {
        ("ListShards", host),
        ("GetRecords", host),
        ("PutRecords", host),
        ("SubscribeToShard", of_account + host),
    }


@pytest.mark.parametrize(("kinds", "host"), [KINDS[0], KINDS[-1]])
def test_calls_about_a_streams_arn_go_to_its_accounts_hosts(aws: Aws, kinds: set[str], host: str) -> None:
    data, control = f"123456789012.data-{host}", f"123456789012.control-{host}"

    called = aws.calls({data, control}, ARN, **dict.fromkeys(kinds, True))

    assert called == {
        ("ListShards", control),
        ("GetRecords", data),
        ("PutRecords", data),
        ("SubscribeToShard", data),
    }


def test_a_setting_overrides_the_environment(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_USE_FIPS_ENDPOINT", "true")
    host = "kinesis.us-east-1.amazonaws.com"

    called = aws.calls({host, f"123456789012.data-{host}"}, "orders", use_fips_endpoint=False)

    assert ("GetRecords", host) in called


def test_every_door_takes_the_kind_of_endpoint() -> None:
    spelled = {"streamName": "orders", "useFipsEndpoint": "true", "useDualstackEndpoint": "false"}
    for options in (StreamReadOptions.of(spelled), BatchReadOptions.of(spelled), WriteOptions.of(spelled)):
        client = options.client
        assert (client.use_fips_endpoint, client.use_dualstack_endpoint) == (True, False)


@pytest.mark.parametrize("kind", [FIPS, DUAL])
def test_a_kind_of_endpoint_beside_an_address_is_refused(kind: str) -> None:
    given: dict[str, Any] = {"stream": "orders", "endpoint_url": "http://127.0.0.1:4566"}
    refusal = f"{kind}: expected none with endpoint_url, which is called as it is"
    assert SpoutConfig.of(**given | {kind: False, "app": "billing"}).endpoint_url

    with pytest.raises(InvalidConfig, match=refusal):
        SpoutConfig.of(**given | {kind: True, "app": "billing"})
    with pytest.raises(InvalidConfig, match=refusal):
        ProducerConfig.of(**given | {kind: True})
