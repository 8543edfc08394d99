"""The doctor finds what is missing, says what to do about it, puts nothing and tells no secret."""

import importlib.util
import json
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from kinesis_spout.model.errors import StoreUnavailable
from kinesis_spout.operations import doctor
from kinesis_spout.operations.doctor import Condition, Finding, examine, is_healthy
from kinesis_spout.operations.world import World
from kinesis_spout.settings import SpoutConfig

SECRETS = ("AKIAVERYSECRETID", "wJalrVERYSECRETkey", "FwoGVERYSECRETtoken", "zk-VERYSECRET-password")
DRY_RUN = 400, {"__type": "DryRunOperationException", "message": "would succeed"}
DENIED = 400, {"__type": "AccessDeniedException", "message": "not authorized"}
SHARD = {
    "ShardId": "shardId-000000000000",
    "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": "1"},
    "SequenceNumberRange": {"StartingSequenceNumber": "1"},
}
SUMMARY = {
    "StreamName": "orders",
    "StreamARN": "arn:aws:kinesis:eu-west-1:123456789012:stream/orders",
    "StreamStatus": "ACTIVE",
    "StreamModeDetails": {"StreamMode": "ON_DEMAND"},
    "RetentionPeriodHours": 24,
    "StreamCreationTimestamp": 1,
    "EncryptionType": "KMS",
    "OpenShardCount": 4,
    "EnhancedMonitoring": [],
}
Answer = tuple[int, dict[str, Any]]


@dataclass
class Endpoint:
    """Answers calls of Kinesis as it is told, and remembers them."""

    url: str = ""
    answers: dict[str, Answer] = field(default_factory=dict)
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def answer(self, operation: str, request: dict[str, Any]) -> Answer:
        self.calls.append((operation, request))
        return self.answers[operation]


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    """A small Kinesis that knows DryRun."""
    endpoint = Endpoint()
    endpoint.answers = {
        "ListStreams": (200, {"StreamNames": [], "HasMoreStreams": False}),
        "DescribeStreamSummary": (200, {"StreamDescriptionSummary": SUMMARY}),
        "ListShards": (200, {"Shards": [SHARD]}),
        "GetShardIterator": (200, {"ShardIterator": "an iterator"}),
        "GetRecords": DRY_RUN,
        "PutRecords": DRY_RUN,
    }

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            operation = self.headers["X-Amz-Target"].partition(".")[2]
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status, reply = endpoint.answer(operation, request)
            body = json.dumps(reply).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/x-amz-json-1.1")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Not on the terminal."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    endpoint.url = f"http://127.0.0.1:{server.server_address[1]}"
    yield endpoint
    server.shutdown()
    server.server_close()
    thread.join()


class Asked(World):
    """The real one, but for ZooKeeper."""

    def __init__(self, zookeeper: str | StoreUnavailable | None = None) -> None:
        super().__init__()
        self._zookeeper = zookeeper

    def zookeeper_answer(self, config: SpoutConfig) -> str | None:
        del config
        if isinstance(self._zookeeper, StoreUnavailable):
            raise self._zookeeper
        return self._zookeeper


def config(endpoint_url: str | None = "http://127.0.0.1:1", **settings: Any) -> SpoutConfig:
    of_all = {"stream": "orders", "app": "billing", "region": "eu-west-1", "endpoint_url": endpoint_url}
    keys = {"aws_access_key_id": "any", "aws_secret_access_key": "keys"}
    return SpoutConfig.of(**{**of_all, **keys, **settings})


def asked(endpoint: Endpoint, *, stream: bool = True, **settings: Any) -> dict[str, Finding]:
    found = doctor.kinesis(World(), config(endpoint.url, **settings), stream=stream)
    return {finding.about: finding for finding in found}


def conditions(findings: dict[str, Finding]) -> dict[str, str]:
    return {about: finding.condition.value for about, finding in findings.items()}


def test_an_endpoint_that_knows_dry_run_is_asked_for_permissions_and_given_nothing(
    endpoint: Endpoint,
) -> None:
    findings = asked(endpoint)
    assert set(conditions(findings).values()) == {"ok"}
    assert findings["stream"].text == "orders: active, 4 open shards, kept for 24 h"
    assert findings["may read records"].text == "yes, by DryRun"
    assert findings["may put records"].text == "yes, by DryRun"
    dry = {operation: request.get("DryRun") for operation, request in endpoint.calls}
    assert (dry["GetRecords"], dry["PutRecords"]) == (True, True)


def test_a_stream_that_ignores_keys_is_said_to(endpoint: Endpoint) -> None:
    summary = {**SUMMARY, "RecordDistributionStrategy": "AUTO"}
    endpoint.answers["DescribeStreamSummary"] = 200, {"StreamDescriptionSummary": summary}
    assert asked(endpoint)["stream"].text.endswith(", ignores partition keys")


def test_an_endpoint_that_does_not_know_dry_run_is_never_given_a_record(endpoint: Endpoint) -> None:
    endpoint.answers["GetRecords"] = 200, {"Records": [], "NextShardIterator": "n", "MillisBehindLatest": 0}
    findings = asked(endpoint)
    assert findings["may read records"].text == "yes, by a read"
    assert findings["may put records"].condition is Condition.UNKNOWN
    assert "PutRecords" not in [operation for operation, _ in endpoint.calls]


@pytest.mark.parametrize(
    ("denied", "expected"),
    [
        ("DescribeStreamSummary", {"stream": "missing", "may read records": "ok"}),
        ("ListShards", {"stream": "ok", "may read records": "missing"}),
        ("GetShardIterator", {"may read records": "missing", "may put records": "not known"}),
        ("GetRecords", {"may read records": "missing", "may put records": "not known"}),
        ("PutRecords", {"may read records": "ok", "may put records": "warning"}),
    ],
)
def test_what_is_denied_is_said_with_what_to_allow(
    endpoint: Endpoint, denied: str, expected: dict[str, str]
) -> None:
    endpoint.answers[denied] = DENIED
    findings = asked(endpoint)
    assert conditions(findings).items() >= expected.items()
    assert "does not know" not in findings["may put records"].text
    (refused,) = (
        each for each in findings.values() if each.condition in {Condition.MISSING, Condition.WARNING}
    )
    assert denied in f"{refused.text} {refused.next}"
    assert refused.next is not None
    assert "allow" in refused.next


def test_a_stream_that_does_not_exist_is_missing_and_the_endpoint_is_not(endpoint: Endpoint) -> None:
    endpoint.answers["DescribeStreamSummary"] = (
        400,
        {"__type": "ResourceNotFoundException", "message": "none"},
    )
    endpoint.answers["ListShards"] = endpoint.answers["DescribeStreamSummary"]
    findings = asked(endpoint)
    assert conditions(findings) == {"endpoint": "ok", "stream": "missing"}
    assert findings["stream"].text == f"orders: no such stream in eu-west-1 at {endpoint.url}"


def test_without_a_stream_only_the_endpoint_is_asked(endpoint: Endpoint) -> None:
    findings = asked(endpoint, stream=False)
    assert conditions(findings) == {"endpoint": "ok", "stream": "not known"}
    assert [operation for operation, _ in endpoint.calls] == ["ListStreams"]
    endpoint.answers["ListStreams"] = DENIED
    assert (
        conditions(asked(endpoint, stream=False)).items() >= {"endpoint": "ok", "stream": "not known"}.items()
    )


def test_an_endpoint_that_is_away_is_missing() -> None:
    findings = list(doctor.kinesis(World(), config("http://127.0.0.1:1"), stream=True))
    assert findings[0].about == "endpoint"
    assert findings[0].condition is Condition.MISSING
    assert not is_healthy(findings)


@pytest.mark.parametrize(
    ("answer", "hosts", "text"),
    [
        (None, None, "embedded; no process runs it now, the next consumer starts it"),
        ("Zookeeper version: 3.9.3-c26634f34490bb0ea7a09cc51e05ede3b4e320ee, built on 2024\nMode: standalone\n",
         None, "embedded, and running: 3.9.3, standalone"),
        ("Zookeeper version: 3.8.4-9316c2a7a97e1666d8f4593f34dd6fc36ecc436c\nMode: follower\n",
         "a:2181", "reached at a:2181: 3.8.4, follower"),
        ("srvr is not executed because it is not in the whitelist.",
         "a:2181", "reached at a:2181; version and mode not known: it does not answer `srvr`"),
    ],
)  # fmt: skip
def test_zookeeper_says_its_version_and_mode(answer: str | None, hosts: str | None, text: str) -> None:
    settings = {} if hosts is None else {"zookeeper": hosts}
    assert doctor.zookeeper(Asked(answer), config(**settings)) == Finding(Condition.OK, "ZooKeeper", text)


def test_a_zookeeper_that_is_away_is_missing() -> None:
    found = doctor.zookeeper(Asked(StoreUnavailable("nobody answers at a:2181")), config(zookeeper="a:2181"))
    assert found.condition is Condition.MISSING
    assert found.next is not None


def test_the_versions_are_there() -> None:
    found = {finding.about: finding for finding in doctor.versions()}
    assert found.keys() >= {"system", "Python", "kinesis-spout", "pyspark", "pyarrow", "boto3", "kazoo"}
    assert {finding.condition for finding in found.values()} == {Condition.OK}


def test_a_package_that_is_not_there_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_PACKAGES", ("kinesis-spout-nothing",))
    missing = next(finding for finding in doctor.versions() if finding.about == "kinesis-spout-nothing")
    assert missing.condition is Condition.MISSING
    assert missing.next == "install it: pip install kinesis-spout-nothing"


def test_a_plain_installation_is_whole_and_says_what_spark_needs(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name: None if name in {"pyspark", "pyarrow", "pandas"} else there(name),
    )
    found = {
        finding.about: finding
        for finding in examine(Asked("Mode: standalone"), config(endpoint.url, zookeeper="a:2181"))
    }
    assert found["pyspark"].condition is Condition.OK
    assert 'pip install "kinesis-spout[spark]"' in found["pyspark"].text
    assert "Java" not in found
    assert is_healthy([found[name] for name in ("pyspark", "pyarrow", "pandas", "boto3", "ZooKeeper")])


def test_an_old_pyspark_is_missing_although_it_is_of_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kinesis_spout.model.extras._pyspark_version", lambda: "3.5.6")
    old = next(finding for finding in doctor.versions() if finding.about == "pyspark")
    assert old.condition is Condition.MISSING
    assert "expected PySpark 4.0 or newer, got 3.5.6" in f"{old.next}"


def test_an_embedded_zookeeper_without_jars_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.delenv("SPARK_HOME", raising=False)
    found = doctor.zookeeper(World(), config(zookeeper=f"embedded:{tmp_path}"))
    assert found.condition is Condition.MISSING
    assert found.next is not None
    assert 'pip install "kinesis-spout[spark]"' in found.next
    assert '`zookeeper="host:2181"`' in found.next


def program(folder: Path, name: str, script: str) -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.mark.parametrize(
    ("script", "condition"),
    [
        ("echo 'openjdk version \"17.0.15\" 2025-04-15' >&2", "ok"),
        ("echo 'openjdk version \"11.0.2\" 2019-01-15' >&2", "missing"),
        ("echo 'java version \"1.8.0_392\"' >&2", "missing"),
        ("exit 1", "missing"),
        ("echo hello", "not known"),
    ],
)
def test_java_must_be_one_that_spark_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, condition: str
) -> None:
    (tmp_path / "bin").mkdir()
    program(tmp_path / "bin", "java", script)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert doctor.java().condition.value == condition


def test_without_java_it_is_said_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    found = doctor.java()
    assert found.condition is Condition.MISSING
    assert found.next is not None
    assert "apt install" in found.next


def test_a_whole_examination_has_every_part_once_and_no_secret(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    access, secret, token, password = SECRETS
    said = (
        f"The Canonical String should have been 'x-amz-security-token:{token}' {access} {secret} {password}"
    )
    endpoint.answers |= dict.fromkeys(
        ("DescribeStreamSummary", "ListShards"),
        (400, {"__type": "InvalidSignatureException", "message": said}),
    )
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", access)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
    monkeypatch.setenv("AWS_SESSION_TOKEN", token)
    monkeypatch.setenv("KINESIS_SPOUT_AWS_SESSION_TOKEN", token)
    settings = config(
        endpoint.url,
        aws_access_key_id=None,
        aws_secret_access_key=None,
        zookeeper="a:2181",
        zookeeper_user="billing",
        zookeeper_password=password,
    )
    away = StoreUnavailable(f"nobody answers http://{access}:{password}@a:2181 as {password}")
    findings = list(examine(Asked(away), settings))
    text = json.dumps([finding.document() for finding in findings]) + repr(findings)
    assert not [secret for secret in SECRETS if secret in text], text
    assert "The Canonical String" in text, "the rest is there"
    about = [finding.about for finding in findings]
    assert len(set(about)) == len(about)
    assert set(about) >= {"Java", "ZooKeeper", "credentials", "endpoint", "stream"}
    assert all(finding.next for finding in findings if finding.condition is Condition.MISSING)


def test_credentials_that_are_not_found_are_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    settings = config(aws_access_key_id=None, aws_secret_access_key=None)
    found = {finding.about: finding for finding in examine(Asked(), settings, stream=False)}
    assert found["credentials"].condition is Condition.MISSING
    assert (found["endpoint"].condition, found["endpoint"].text) == (
        Condition.UNKNOWN,
        "not asked: a request needs credentials, and there are none",
    )
    assert "AWS_ACCESS_KEY_ID" not in found["credentials"].text, "said once"
    assert (
        "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or `aws_profile`" in f"{found['credentials'].next}"
    )


@pytest.mark.parametrize(
    "code", ["UnrecognizedClientException", "InvalidSignatureException", "ExpiredTokenException"]
)
def test_credentials_that_aws_refuses_are_said_to_be_refused_once(endpoint: Endpoint, code: str) -> None:
    endpoint.answers |= dict.fromkeys(
        ("DescribeStreamSummary", "ListShards"), (400, {"__type": code, "message": "no"})
    )
    findings = asked(endpoint)
    assert conditions(findings) == {"endpoint": "ok", "stream": "missing"}
    assert "give credentials that this endpoint takes" in f"{findings['stream'].next}"
    assert "allow" not in f"{findings['stream'].next}"


def test_without_a_region_the_next_step_names_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_DEFAULT_REGION", "AWS_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    settings = config(region=None, endpoint_url=None)
    [found] = doctor.kinesis(World(), settings, stream=True)
    assert found.condition is Condition.MISSING
    assert "specify a region" in found.text
    assert "set `region`" in f"{found.next}"
    assert "set `region`" not in found.text


def test_a_region_that_cannot_be_one_is_not_taken_for_missing_credentials(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "")
    *_, found = examine(Asked(), config(region=None, endpoint_url=None), stream=False)
    assert (found.condition, found.about) == (Condition.MISSING, "endpoint")
    assert "got '' from the variable AWS_DEFAULT_REGION" in found.text
    assert "AWS_ACCESS_KEY_ID" not in f"{found.next}"


def test_without_java_an_embedded_zookeeper_is_not_said_to_start() -> None:
    found = doctor.zookeeper(Asked(None), config(), can_start=False)
    assert found.condition is Condition.UNKNOWN
    assert "needs Java" in found.text
