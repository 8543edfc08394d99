"""Credentials that are bad for a moment, renewed by somebody else, or unfit for a header; no source is faked."""

import json
import logging
import os
import traceback
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from botocore.credentials import Credentials, RefreshableCredentials
from botocore.exceptions import CredentialRetrievalError, NoCredentialsError

from kinesis_spout.kinesis import KinesisClientSettings
from kinesis_spout.kinesis.calls import translated
from kinesis_spout.kinesis.read.fan_out.subscribe_call import subscribe
from kinesis_spout.kinesis.retry_policy import Action, Work, reaction_to
from kinesis_spout.kinesis.wire import credentials
from kinesis_spout.kinesis.wire.credentials import REST_SECONDS, RenewedCredentials
from kinesis_spout.model.errors import AccessDenied, InvalidConfig, Unavailable
from shard_state import Position
from tests.unit.kinesis.wire.servers import EMPTY, Server, answer_of, serving

SECRET = "hush-TOPSECRET"
READ: dict[str, Any] = {"ShardIterator": "it", "Limit": 10}
CALLS: dict[str, Callable[[Any], Any]] = {
    "GetRecords": lambda client: client.get_records(**READ),
    "PutRecords": lambda client: client.put_records(
        StreamName="s", Records=[{"Data": b"d", "PartitionKey": "k"}]
    ),
    "ListShards": lambda client: client.list_shards(StreamName="s"),
    "SubscribeToShard": lambda client: subscribe(
        client, consumer_arn="c", shard_id="s", position=Position.trim_horizon(), call="SubscribeToShard"
    ).close(),
}


@pytest.fixture(autouse=True)
def _nothing_from_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


class Service(Server):
    """Kinesis, STS and the agent of a container in one. Mutable."""

    def __init__(self) -> None:
        super().__init__()
        self.accepted = {"AKIAONE"}
        self.source: str | bytes = "AKIAONE"
        """The key that the agent, STS and the process give, or the whole answer."""
        self.looked_up = 0
        self.answer_to = self._answer

    def _answer(self, headers: dict[str, str]) -> bytes:
        signature = headers.get("authorization", "")
        if "/kinesis/" not in signature:
            self.looked_up += 1
            made = given(self.source) if "/sts/" not in signature else by_sts(self.source)
            return self.source if isinstance(self.source, bytes) else answer_of(made.encode())
        key = signature.partition("Credential=")[2].partition("/")[0]
        if key in self.accepted:
            return answer_of(EMPTY)
        return answer_of(b'{"__type":"ExpiredTokenException","message":"It is expired"}', "400 Bad Request")


def in_minutes(minutes: float) -> str:
    return (datetime.now(UTC) + timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")


def given(key: str | bytes, minutes: float = 5) -> str:
    """Return what an agent and a process say, with keys that are due for renewal from the start."""
    names = {"AccessKeyId": key, "SecretAccessKey": SECRET, "Expiration": in_minutes(minutes), "Version": 1}
    return json.dumps({**names, "Token": SECRET, "SessionToken": SECRET}, default=str)


def by_sts(key: str | bytes, minutes: float = 60) -> str:
    return (
        f"<AssumeRoleResponse><AssumeRoleResult><Credentials><AccessKeyId>{key!s}</AccessKeyId>"
        f"<SecretAccessKey>{SECRET}</SecretAccessKey><SessionToken>{SECRET}</SessionToken>"
        f"<Expiration>{in_minutes(minutes)}</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>"
    )


@pytest.fixture
def service() -> Iterator[Service]:
    with serving(Service()) as service:
        yield service


def keys_in_file(path: Path, key: str, secret: str = SECRET) -> None:
    file = path / "credentials"
    file.write_text(
        f"[work]\naws_access_key_id={key}\naws_secret_access_key={secret}\naws_session_token={SECRET}\n"
    )


def client_of(service: Service, **settings: Any) -> Any:
    return KinesisClientSettings(region="us-east-1", endpoint_url=service.url, **settings).create()


def from_agent(service: Service, monkeypatch: pytest.MonkeyPatch, _path: Path) -> Any:
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", service.url)
    return client_of(service)


def from_process(service: Service, monkeypatch: pytest.MonkeyPatch, path: Path) -> Any:
    monkeypatch.setenv("AWS_CONFIG_FILE", str(path / "config"))
    (path / "config").write_text(f"[default]\ncredential_process = curl -sf {service.url}\n")
    return client_of(service)


def from_sts(service: Service, _monkeypatch: pytest.MonkeyPatch, path: Path) -> Any:
    keys_in_file(path, "AKIASOURCE")
    role = "arn:aws:iam::123456789012:role/reader"
    return client_of(service, aws_profile="work", role_arn=role, sts_endpoint=service.url)


BAD = [
    (from_agent, given("AKIAONE").replace('AccessKeyId"', 'Nothing"')),
    (from_agent, given("AKIAONE").replace('"AKIAONE"', "null")),
    (from_agent, given("AKIAONE").replace('Expiration": "2', 'Expiration": "soon')),
    (from_agent, given("AKIAONE", minutes=-1)),
    (from_process, ""),
    (from_process, "[]"),
    (from_process, given("AKIAONE")[:-9]),
    (from_process, given("AKIAONE", minutes=-1)),
    (from_sts, "<html>"),
    (from_sts, by_sts("AKIAONE")[:-9]),
    (from_sts, by_sts("AKIAONE").replace("Credentials", "Nothing")),
]


@pytest.mark.parametrize(("made", "bad"), BAD)
def test_a_source_that_is_bad_for_a_moment_fails_no_call_once_there_are_keys(
    service: Service,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    *,
    made: Any,
    bad: str,
) -> None:
    monkeypatch.setattr(credentials, "REST_SECONDS", 0.0)  # each call looks keys up that are due
    service.source = answer_of(bad.encode())
    client = made(service, monkeypatch, tmp_path)
    with pytest.raises(Unavailable) as caught, translated("GetRecords"):
        client.get_records(**READ)
    assert reaction_to(caught.value, Work.CALL).action is Action.RETRY
    assert SECRET not in "".join(traceback.format_exception(caught.value))

    service.source = "AKIAONE"
    client.get_records(**READ)
    looked_up = service.looked_up
    service.source = answer_of(bad.encode())
    for call in CALLS.values():
        call(client)
    assert service.looked_up > looked_up or made is from_sts  # those keys are not due
    service.accepted = set()
    with pytest.raises(AccessDenied, match="looking them up fails") as refused, translated("GetRecords"):
        client.get_records(**READ)
    client.close()
    assert refused.value.retriable
    assert SECRET not in "".join(traceback.format_exception(refused.value)) + caplog.text


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("has_role", [False, True])
def test_keys_that_another_program_renewed_in_the_file_are_read_when_the_old_ones_are_refused(
    service: Service, tmp_path: Path, name: str, *, has_role: bool
) -> None:
    keys_in_file(tmp_path, "AKIAONE")
    service.accepted.add("AKIAOFROLE" if has_role else "AKIAONE")
    role = {"role_arn": "arn:aws:iam::123456789012:role/r", "sts_endpoint": service.url} if has_role else {}
    service.source = "AKIAONE"
    client = client_of(service, aws_profile="work", **role)
    for _ in range(2):
        CALLS[name](client)

    keys_in_file(tmp_path, "AKIATWO")
    service.source, service.accepted = "AKIATWO", {"AKIATWO"}
    for _ in range(2):
        CALLS[name](client)
    client.close()


@pytest.mark.parametrize("name", CALLS)
def test_keys_that_were_accepted_and_are_refused_make_an_error_that_is_tried_again(
    service: Service, tmp_path: Path, name: str
) -> None:
    keys_in_file(tmp_path, "AKIAONE")
    client = client_of(service, aws_profile="work")
    for accepted, may_pass in ((set[str](), False), ({"AKIAONE"}, None), (set[str](), True)):
        service.accepted = accepted
        if may_pass is None:
            CALLS[name](client)
            continue
        with pytest.raises(AccessDenied, match=f"{name}.*It is expired") as caught, translated(name):
            CALLS[name](client)
        assert caught.value.retriable is may_pass
        assert (reaction_to(caught.value, Work.CALL).action is Action.RETRY) is may_pass
    assert "(shared-credentials-file)" in str(caught.value)
    client.close()


def test_keys_with_an_empty_token_that_are_refused_make_two_calls_at_most(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("ACCESS_KEY_ID", "AKIATWO"), ("SECRET_ACCESS_KEY", SECRET), ("SESSION_TOKEN", "")):
        monkeypatch.setenv(f"AWS_{name}", value)
    client = client_of(service)
    with pytest.raises(AccessDenied), translated("GetRecords"):
        client.get_records(**READ)
    client.close()
    assert len(service.requests) <= 2


@pytest.mark.parametrize("unfit", ["\n", "é"])
@pytest.mark.parametrize("part", ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"])
@pytest.mark.parametrize("is_set", [False, True])
def test_a_key_that_no_header_can_carry_is_named_at_once_and_shown_nowhere(
    service: Service,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    part: str,
    unfit: str,
    *,
    is_set: bool,
) -> None:
    caplog.set_level(logging.INFO)
    names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
    keys = {name: SECRET + unfit * (name == part) for name in names}
    if not is_set:
        for name, value in keys.items():
            monkeypatch.setenv(name, value)
    client = client_of(service, **({name.lower(): value for name, value in keys.items()} if is_set else {}))
    for call in CALLS.values():
        with pytest.raises(InvalidConfig) as caught, translated("A call"):
            call(client)
        expected = part.removeprefix("AWS_").lower().replace("_id", "").replace("secret_access", "secret")
        expected = expected.removeprefix("session_").replace("_", " ")
        assert str(caught.value).startswith(
            f"the {expected} (explicit)" if is_set else f"the variable {part}"
        )
        assert SECRET not in "".join(traceback.format_exception(caught.value)) + repr(vars(caught.value))
    client.close()
    assert SECRET not in caplog.text
    assert service.requests == []


class Source:
    """Gives credentials that expire; bad while it is told so. Mutable."""

    def __init__(self) -> None:
        self.key: str | None = "AKIAONE"
        self.asked = 0
        self.now = 100.0

    def __call__(self) -> Credentials | None:
        return (
            None
            if self.key is None
            else RefreshableCredentials.create_from_metadata(self._fetch(), self._fetch, "x")
        )

    def _fetch(self) -> dict[str, Any]:
        self.asked += 1
        if self.key == "bad":
            raise RuntimeError("bad")
        return {"access_key": self.key, "secret_key": SECRET, "token": "t", "expiry_time": in_minutes(1)}


@pytest.mark.parametrize("bad", ["bad", None, "AKIA\n"])
def test_a_source_rests_between_look_ups_and_is_told_once(
    caplog: pytest.LogCaptureFixture, bad: str | None
) -> None:
    source = Source()
    renewed = RenewedCredentials(source, lambda: source.now)
    assert renewed.get_frozen_credentials().access_key == "AKIAONE"
    source.key = bad
    for _ in range(1_000):
        assert renewed.get_frozen_credentials().access_key == "AKIAONE"
        assert not renewed.renewed_after(("AKIAONE", "t"))
        source.now += 10 * REST_SECONDS / 1_000
    assert source.asked <= 2 * 11 + 2
    source.key = "AKIATWO"
    source.now += REST_SECONDS
    assert renewed.renewed_after(("AKIAONE", "t"))
    assert renewed.get_frozen_credentials().access_key == "AKIATWO"

    told = [
        each.getMessage() for each in caplog.records if each.name == "kinesis_spout.kinesis.wire.credentials"
    ]
    assert len(told) == 2
    assert told[0].startswith("Credentials could not be renewed: ")
    assert SECRET not in caplog.text + repr(renewed)


def test_without_any_keys_each_call_looks_for_them() -> None:
    source = Source()
    source.key = None
    renewed = RenewedCredentials(source, lambda: source.now)
    for _ in range(2):
        with pytest.raises(NoCredentialsError):
            renewed.get_frozen_credentials()
    source.key = "bad"
    with pytest.raises(CredentialRetrievalError, match="RuntimeError: bad"):
        renewed.get_frozen_credentials()
    source.key = "AKIAONE"

    assert renewed.get_frozen_credentials().access_key == "AKIAONE"
