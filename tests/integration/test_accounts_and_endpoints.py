"""Who asks Kinesis, and by which way: roles, profiles, SSO, certificates, proxies; against moto behind a front."""

import json
import os
from collections.abc import Iterator
from hashlib import sha1
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from botocore.utils import JSONFileCache

from kinesis_spout.dead_letters.s3 import S3Sink
from kinesis_spout.kinesis import KinesisClientSettings, KinesisShardLister, PollingShardGetter
from kinesis_spout.model.errors import AccessDenied, InvalidConfig, Unavailable
from shard_state import Position
from tests.support.consumer.letters import letter
from tests.support.kinesis.aws_front import Front, front_of
from tests.support.kinesis.endpoints import KinesisEndpoint
from tests.support.kinesis.own_certificate import own_certificate

pytestmark = pytest.mark.endpoint

ROLE = "arn:aws:iam::123456789012:role/reader"
PASSWORD = "hush-proxy"


@pytest.fixture(autouse=True)
def _nothing_from_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith("AWS_") or name.lower() in {"http_proxy", "https_proxy", "no_proxy", "all_proxy"}:
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture
def moto(moto_server: KinesisEndpoint) -> str:
    return str(moto_server.settings.endpoint_url)


@pytest.fixture
def front(moto: str) -> Iterator[Front]:
    with front_of(moto) as front:
        yield front


@pytest.fixture
def stream(moto_server: KinesisEndpoint) -> str:
    stream = moto_server.create_stream()
    moto_server.client().put_record(StreamName=stream, Data=b"one", PartitionKey="k")
    return stream


def settings(endpoint: str, **others: Any) -> KinesisClientSettings:
    return KinesisClientSettings(**{"region": "us-east-1", "endpoint_url": endpoint, **others})


def with_keys(endpoint: str, **others: Any) -> KinesisClientSettings:
    return settings(endpoint, aws_access_key_id="AKIASOURCE", aws_secret_access_key="hush", **others)


def read_twice(settings: KinesisClientSettings, stream: str) -> list[bytes]:
    """Read a shard with two calls, of which the second one takes the shorter way, if there is one."""
    client = settings.create()
    try:
        lister = KinesisShardLister(client, stream, deadline_seconds=0.1)
        (shard,) = lister.list_shards()
        found = []
        for _ in range(2):
            getter = PollingShardGetter(
                client,
                stream=stream,
                shard_id=shard.shard_id,
                position=Position.trim_horizon(),
                lister=lister,
            )
            found += [record.data for record in getter.read(10).records]
        return found
    finally:
        client.close()


def signed_by(front: Front) -> set[str]:
    """Name the keys that signed what was asked of Kinesis, as far as they tell one kind of credentials."""
    signatures = [seen.headers["authorization"] for seen in front.seen if "x-amz-target" in seen.headers]
    assert len(signatures) >= 4
    return {signature.partition("Credential=")[2][:10] for signature in signatures}


def asked_of_sts(front: Front) -> dict[str, str]:
    (request,) = [seen for seen in front.seen if b"Action=" in seen.body]
    return {name: values[0] for name, values in parse_qs(request.body.decode()).items()}


def test_a_role_is_assumed_once_with_its_session_name_and_external_id(front: Front, stream: str) -> None:
    asked = with_keys(
        front.url,
        role_arn=ROLE,
        role_session_name="night-shift",
        role_external_id="agreed",
        sts_endpoint=front.url,
    )

    assert read_twice(asked, stream) == [b"one"] * 2
    sts = asked_of_sts(front)
    assert (sts["Action"], sts["RoleArn"]) == ("AssumeRole", ROLE)
    assert (sts["RoleSessionName"], sts["ExternalId"]) == ("night-shift", "agreed")
    assert all(key.startswith("ASIA") for key in signed_by(front))


def test_a_profile_brings_the_region_and_the_role_that_its_source_profile_assumes(
    front: Front, stream: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAOFTHEENVIRONMENT")  # does not count beside a named profile
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", front.url)
    (tmp_path / "credentials").write_text(
        "[base]\naws_access_key_id = AKIAOFBASE\naws_secret_access_key = hush\n"
    )
    (tmp_path / "config").write_text(
        "[profile billing]\nregion = us-east-1\nsource_profile = base\n"
        f"role_arn = {ROLE}\nexternal_id = agreed\nrole_session_name = of-the-profile\n"
    )

    assert read_twice(settings(front.url, region=None, aws_profile="billing"), stream) == [b"one"] * 2
    sts = asked_of_sts(front)
    assert (sts["RoleArn"], sts["ExternalId"]) == (ROLE, "agreed")
    assert sts["RoleSessionName"] == "of-the-profile"
    assert all(key.startswith("ASIA") for key in signed_by(front))


def test_a_role_can_be_assumed_with_the_keys_of_a_profile(front: Front, stream: str, tmp_path: Path) -> None:
    (tmp_path / "credentials").write_text(
        "[base]\naws_access_key_id = AKIAOFBASE\naws_secret_access_key = hush\n"
    )
    asked = settings(front.url, aws_profile="base", role_arn=ROLE, sts_endpoint=front.url)

    assert read_twice(asked, stream) == [b"one"] * 2
    (sts,) = [seen for seen in front.seen if b"Action=AssumeRole" in seen.body]
    assert "Credential=AKIAOFBASE/" in sts.headers["authorization"]


def test_a_profile_of_sso_uses_the_token_that_a_login_left(
    front: Front, stream: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_sso_profile(tmp_path, monkeypatch, front, expires="2099-01-01T00:00:00Z")

    assert read_twice(settings(front.url, aws_profile="sso"), stream) == [b"one"] * 2
    (portal,) = [seen for seen in front.seen if seen.target.startswith("/federation/credentials")]
    assert portal.headers["x-amz-sso_bearer_token"] == "hush-token-of-the-login"
    assert "role_name=reader" in portal.target
    assert signed_by(front) == {"ASIAOFSSO/"}


def test_an_expired_login_of_sso_is_an_error_that_says_what_to_do(
    front: Front, stream: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_sso_profile(tmp_path, monkeypatch, front, expires="2020-01-01T00:00:00Z")

    with pytest.raises(AccessDenied, match="aws sso login"):
        read_twice(settings(front.url, aws_profile="sso"), stream)
    assert front.seen == []


def keep_sso_profile(directory: Path, monkeypatch: pytest.MonkeyPatch, front: Front, *, expires: str) -> None:
    """Write what ``aws configure sso`` and ``aws sso login`` would leave."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_SSO", front.url)
    cache = JSONFileCache(str(directory / "cache"))
    monkeypatch.setattr("botocore.credentials.JSONFileCache", lambda *_arguments, **_others: cache)
    start = "https://company.awsapps.com/start"
    token = {"accessToken": "hush-token-of-the-login", "expiresAt": expires, "startUrl": start}
    (directory / "cache").mkdir()
    (directory / "cache" / f"{sha1(start.encode()).hexdigest()}.json").write_text(json.dumps(token))
    (directory / "config").write_text(
        f"[profile sso]\nsso_start_url = {start}\nsso_region = us-east-1\n"
        "sso_account_id = 123456789012\nsso_role_name = reader\n"
    )


def test_a_pods_web_identity_becomes_a_role(
    front: Front, stream: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("hush-web-token")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setenv("AWS_ROLE_ARN", ROLE)
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", front.url)

    assert read_twice(settings(front.url), stream) == [b"one"] * 2
    sts = asked_of_sts(front)
    assert (sts["Action"], sts["WebIdentityToken"]) == ("AssumeRoleWithWebIdentity", "hush-web-token")
    assert all(key.startswith("ASIA") for key in signed_by(front))


def test_a_profile_that_does_not_exist_is_a_setting_to_mend(moto: str) -> None:
    with pytest.raises(InvalidConfig, match="no-such"):
        settings(moto, aws_profile="no-such").create()


def test_kinesis_and_sts_are_verified_with_the_authorities_of_a_file(
    moto: str, stream: str, tmp_path: Path
) -> None:
    bundle = own_certificate(tmp_path)
    with front_of(moto, bundle) as front:
        asked = with_keys(front.url, role_arn=ROLE, sts_endpoint=front.url, ca_bundle=str(bundle))

        assert read_twice(asked, stream) == [b"one"] * 2
        assert asked_of_sts(front)["Action"] == "AssumeRole"


def test_an_authority_that_is_not_known_is_an_error_that_names_the_setting(
    moto: str, stream: str, tmp_path: Path
) -> None:
    with (
        front_of(moto, own_certificate(tmp_path)) as front,
        pytest.raises(Unavailable, match="ca_bundle"),
    ):
        read_twice(with_keys(front.url), stream)


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_a_bundle_that_is_no_pem_file_is_a_setting_to_mend(
    moto: str, tmp_path: Path, content: str | None
) -> None:
    if content is not None:
        (tmp_path / "ca.pem").write_text(content)
    with pytest.raises(InvalidConfig, match=r"ca_bundle: expected a PEM file .* every executor .*ca\.pem"):
        with_keys(moto, ca_bundle=str(tmp_path / "ca.pem")).create()


def test_everything_goes_through_the_proxy_and_shows_it_the_password(
    front: Front, moto: str, stream: str
) -> None:
    proxy = front.url.replace("//", f"//user:{PASSWORD}@")

    asked = with_keys(moto, proxy_url=proxy, role_arn=ROLE, sts_endpoint=moto)
    assert read_twice(asked, stream) == [b"one"] * 2

    assert front.actions() == ["POST", "ListShards", *["GetShardIterator", "GetRecords"] * 2]
    assert all(seen.target.startswith(moto) for seen in front.seen)
    assert all(seen.headers["proxy-authorization"].startswith("Basic ") for seen in front.seen)
    assert PASSWORD not in repr(asked)


def test_tls_goes_through_a_tunnel_of_the_proxy_and_is_verified_inside(
    front: Front, moto: str, stream: str, tmp_path: Path
) -> None:
    bundle = own_certificate(tmp_path)
    with front_of(moto, bundle) as endpoint:
        asked = with_keys(endpoint.url, proxy_url=front.url, ca_bundle=str(bundle))

        assert read_twice(asked, stream) == [b"one"] * 2
        assert endpoint.actions().count("GetRecords") == 2
        with pytest.raises(Unavailable, match="ca_bundle"):
            read_twice(with_keys(endpoint.url, proxy_url=front.url), stream)
    assert set(front.actions()) == {"CONNECT"}


def test_the_environments_proxy_is_taken_unless_it_is_not_for_that_host(
    front: Front, moto: str, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", front.url)
    read_twice(with_keys(moto), stream)
    assert front.actions().count("GetRecords") == 2

    monkeypatch.setenv("no_proxy", "127.0.0.1")
    read_twice(with_keys(moto), stream)
    assert front.actions().count("GetRecords") == 2


def test_a_proxy_that_is_not_there_is_named_without_its_password(moto: str, stream: str) -> None:
    with pytest.raises(Unavailable, match="proxy_url") as raised:
        read_twice(with_keys(moto, proxy_url=f"http://user:{PASSWORD}@127.0.0.1:9"), stream)

    texts = [str(raised.value), repr(raised.value.__cause__), str(raised.value.__cause__)]
    assert not [text for text in texts if PASSWORD in text]


def test_dead_letters_on_s3_take_the_same_proxy_and_authorities(
    front: Front, moto: str, tmp_path: Path
) -> None:
    bundle = own_certificate(tmp_path)
    asked = with_keys("https://127.0.0.1:9", proxy_url=front.url, ca_bundle=str(bundle))
    with front_of(moto, bundle) as endpoint:
        s3 = asked.session().client("s3", endpoint_url=endpoint.url)
        s3.create_bucket(Bucket="behind-a-proxy")
        s3.close()
        sink = S3Sink(f"s3://behind-a-proxy/dead?endpoint_override={endpoint.url}", session=asked.session)
        sink.check_writable()
        tunnels = len(front.seen)

        sink.write([letter(1)])
        assert [found.sequence_number for found in sink.read()] == ["1"]

        assert len(front.seen) > tunnels, "PyArrow's own calls, too"
        assert any(seen.method == "PUT" for seen in endpoint.seen)
    assert set(front.actions()) == {"CONNECT"}
