import json
from typing import Any

import pytest
from botocore.awsrequest import AWSResponse

from kinesis_spout.consumer.open_ports import client_settings
from kinesis_spout.kinesis import KinesisShardLister, PollingShardGetter
from kinesis_spout.kinesis.wire.sigv4 import text
from kinesis_spout.model.errors import Unavailable
from kinesis_spout.settings import SpoutConfig
from shard_state import Position

ARN = "arn:aws:kinesis:eu-west-1:222222222222:stream/orders"
ANSWERS = {
    "ListShards": {"Shards": []},
    "GetShardIterator": {"ShardIterator": "there"},
}


class Body:
    """What urllib3 gives botocore to read from."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def stream(self) -> Any:
        yield self._content


@pytest.mark.parametrize(
    "given",
    [
        {
            "endpoint_url": "https://kinesis.example",
            "aws_access_key_id": "AKIA-1",
            "aws_secret_access_key": "hush-1",
            "aws_session_token": "hush-2",
            "role_arn": "arn:aws:iam::123456789012:role/reader",
            "role_session_name": "session-1",
            "role_external_id": "hush-3",
            "sts_endpoint": "https://sts.example",
        },
        {
            "aws_profile": "me",
            "ca_bundle": "/etc/ca.pem",
            "proxy_url": "http://me:hush@proxy:3128",
            "use_fips_endpoint": True,
            "use_dualstack_endpoint": True,
        },
    ],
)
def test_every_setting_about_kinesis_reaches_the_client(given: dict[str, Any]) -> None:
    settings = client_settings(SpoutConfig.of(stream=ARN, app="billing", **given))
    assert settings.region == "eu-west-1"
    assert {name: getattr(settings, name) for name in given} == given
    assert "hush" not in repr(settings)


def test_what_is_not_set_is_left_to_boto3_and_the_defaults() -> None:
    settings = client_settings(SpoutConfig.of(stream="orders", app="billing"))
    assert settings.region is None
    assert settings.role_session_name == "kinesis-spout"


def test_calls_about_a_stream_of_another_account_name_it_and_go_to_its_region(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    config = SpoutConfig.of(
        stream=ARN,
        app="billing",
        aws_access_key_id="a",
        aws_secret_access_key="b",
        proxy_url="http://127.0.0.1:9",
    )
    client = client_settings(config).create()
    asked: list[Any] = []

    def answer(*, request: Any, **_event: Any) -> Any:
        operation = request.headers["X-Amz-Target"].decode().rpartition(".")[2]
        if operation == "GetRecords":
            return None  # which goes to the proxy
        body: Any = Body(json.dumps(ANSWERS[operation]).encode())
        headers: Any = {"content-type": "application/x-amz-json-1.1"}
        return AWSResponse(request.url, 200, headers, body)

    client.meta.events.register("before-send.kinesis", answer)
    client.meta.events.register(
        "request-created.kinesis", lambda request, **_event: asked.append(request.prepare())
    )
    lister = KinesisShardLister(client, ARN)
    getter = PollingShardGetter(
        client, stream=ARN, shard_id="s", position=Position.trim_horizon(), lister=lister
    )

    assert lister.list_shards() == []
    with pytest.raises(Unavailable, match=r"GetRecords of shard 's' .* Failed to connect to proxy"):
        getter.read(10)
    assert len(asked) == 3
    for request in asked:
        assert json.loads(request.body)["StreamARN"] == ARN
        assert ".eu-west-1." in request.url
        assert "/eu-west-1/kinesis/aws4_request" in text(request.headers["Authorization"])
    client.close()
