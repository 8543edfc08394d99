import os
import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from botocore.awsrequest import AWSResponse
from botocore.exceptions import ClientError

from kinesis_spout.kinesis.calls import stream_arguments, translated
from kinesis_spout.kinesis.client_settings import KinesisClientSettings
from kinesis_spout.model.errors import InvalidConfig, Unavailable

if TYPE_CHECKING:
    from mypy_boto3_kinesis import KinesisClient

SETTINGS = KinesisClientSettings(
    region="eu-west-1",
    endpoint_url="http://127.0.0.1:9",
    aws_access_key_id="AKIAPUBLIC",
    aws_secret_access_key="hush-key",
    aws_session_token="hush-token",
    role_external_id="hush-id",
)


class _Body:
    """What urllib3 gives botocore to read from."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def stream(self, **_arguments: Any) -> Any:
        yield self._content


def _answering(
    status: int, content_type: str, content: bytes, headers: dict[str, str] | None = None
) -> "KinesisClient":
    client = KinesisClientSettings(
        region="eu-west-1", aws_access_key_id="a", aws_secret_access_key="b"
    ).create()

    all_headers = {"content-type": content_type, **(headers or {})}

    def answer(**_event: Any) -> Any:
        return AWSResponse("http://x", status, all_headers, _Body(content))  # type: ignore[arg-type]

    client.meta.events.register("before-send.kinesis", answer)
    return client


def test_settings_travel_to_another_process() -> None:
    assert pickle.loads(pickle.dumps(SETTINGS)) == SETTINGS


def test_secrets_stay_out_of_the_text() -> None:
    assert "hush" not in repr(SETTINGS)
    assert "AKIA" not in repr(SETTINGS)


def test_a_process_has_one_client_of_the_same_settings() -> None:
    again: KinesisClientSettings = pickle.loads(pickle.dumps(SETTINGS))

    assert SETTINGS.connect() is again.connect()
    assert SETTINGS.create() is not SETTINGS.connect()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_does_not_use_its_parents_client() -> None:
    parent = SETTINGS.connect()
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(write_end, b"own" if SETTINGS.connect() is not parent else b"parent's")
        finally:
            os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as reader:
        answer = reader.read()
    os.waitpid(child, 0)

    assert answer == b"own"


def test_nothing_is_retried_below_the_lister() -> None:
    attempts = []
    client = _answering(500, "application/x-amz-json-1.1", b'{"__type":"InternalFailure"}')
    client.meta.events.register("before-send.kinesis", lambda **_event: attempts.append(1))

    with pytest.raises(ClientError):
        client.list_shards(StreamName="s")

    assert len(attempts) == 1


@pytest.mark.parametrize("count", [0, 20])
def test_an_error_that_is_cut_off_may_be_asked_for_again(count: int) -> None:
    body = b'{"__type":"ProvisionedThroughputExceededException"}'
    client = _answering(400, "application/x-amz-json-1.1", body[:count], {"content-length": str(len(body))})

    with (
        pytest.raises(Unavailable, match=f"{count} read, but total bytes expected is {len(body)}"),
        translated("ListShards"),
    ):
        client.list_shards(StreamName="s")


def test_other_operations_are_parsed_as_ever() -> None:
    client = _answering(200, "application/x-amz-json-1.1", b'{"Shards":[]}')

    assert client.list_shards(StreamName="s")["Shards"] == []


def test_a_missing_region_is_a_setting_to_mend(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)

    with pytest.raises(InvalidConfig, match="region"):
        KinesisClientSettings(aws_access_key_id="a", aws_secret_access_key="b").create()


@pytest.mark.parametrize("region", ["", " ", "us east 1"])
def test_a_region_that_cannot_be_one_is_refused_with_its_place(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, region: str
) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", region)
    said = (
        f"region: expected a region such as eu-central-1, got {region!r} from the variable AWS_DEFAULT_REGION"
    )
    for settings in (KinesisClientSettings(), KinesisClientSettings(endpoint_url="http://localhost:4567")):
        with pytest.raises(InvalidConfig, match=said):
            settings.create()
        with pytest.raises(InvalidConfig, match=said):
            settings.session()
    assert KinesisClientSettings(region="eu-west-1").create().meta.region_name == "eu-west-1"
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    (tmp_path / "config").write_text("[profile ops]\nregion = us east 1\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    with pytest.raises(InvalidConfig, match="got 'us east 1' from the profile 'ops'"):
        KinesisClientSettings(aws_profile="ops").create()


def test_a_stream_is_named_by_name_or_by_arn() -> None:
    arn = "arn:aws:kinesis:eu-west-1:123456789012:stream/s"

    assert stream_arguments("s") == {"StreamName": "s"}
    assert stream_arguments(arn) == {"StreamARN": arn}
