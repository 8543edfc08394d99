"""Dead letters on S3, against moto's server: what the contract suite cannot see."""

import http.server
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any, ClassVar

import boto3
import pytest
from botocore.credentials import Credentials
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from moto.s3.models import s3_backends
from werkzeug.serving import make_server

from kinesis_spout.dead_letters import s3
from kinesis_spout.dead_letters.s3 import S3Sink
from kinesis_spout.dead_letters.sink_url import open_sink
from kinesis_spout.kinesis import KinesisClientSettings
from kinesis_spout.model.errors import DeadLetterError, InvalidConfig
from kinesis_spout.testing import ManualClock
from tests.support.consumer.letters import letter
from tests.support.consumer.s3_server import SECRET, a_session, keys_in, s3_with_bucket

NOBODY_LISTENS = "http://127.0.0.1:9"


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with s3_with_bucket("letters") as endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", endpoint)
        yield endpoint


def test_the_endpoint_is_found_as_boto3_finds_it_and_the_url_wins(endpoint: str) -> None:
    S3Sink("s3://letters/here", session=a_session).write([letter(1)])
    assert len(keys_in("letters")) == 1
    with pytest.raises(DeadLetterError):
        S3Sink(f"s3://letters/here?endpoint_override={NOBODY_LISTENS}", session=a_session).write([letter(1)])
    assert endpoint != NOBODY_LISTENS


@pytest.mark.usefixtures("endpoint")
def test_each_write_is_one_object_whose_name_sorts_by_time() -> None:
    clock = ManualClock(1_769_860_800)
    sink = S3Sink("s3://letters/a/b/", session=a_session, clock=clock)
    for number in range(3):
        sink.write([letter(number), letter(number)])
        clock.advance(0.001)
    keys = keys_in("letters")
    assert len(keys) == 3
    assert keys == sorted(keys)
    assert all(key.startswith("a/b/dead-letters-20260131T120000.00") for key in keys)
    assert [found.sequence_number for found in sink.read()] == ["0", "0", "1", "1", "2", "2"]


@pytest.mark.usefixtures("endpoint")
@pytest.mark.parametrize("prefix", ["", "/", "/a", "/a/b/c"])
def test_a_check_makes_no_object_at_any_depth(prefix: str) -> None:
    S3Sink(f"s3://letters{prefix}", session=a_session).check_writable()
    assert keys_in("letters") == []


@pytest.mark.usefixtures("endpoint")
def test_a_bucket_that_is_not_there_is_noticed_by_the_check_the_write_and_the_read() -> None:
    sink = S3Sink("s3://no-such-bucket/dead", session=a_session)
    for attempt in (sink.check_writable, lambda: sink.write([letter(1)]), lambda: list(sink.read())):
        with pytest.raises(DeadLetterError, match="s3://no-such-bucket/dead"):
            attempt()


def test_a_place_that_does_not_answer_is_an_error_within_seconds_and_shows_no_secret(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, logger="kinesis_spout")
    sink = S3Sink(f"s3://letters/dead?endpoint_override={NOBODY_LISTENS}", session=a_session)
    began = time.monotonic()
    for attempt in (sink.check_writable, lambda: sink.write([letter(1)]), lambda: list(sink.read())):
        with pytest.raises(DeadLetterError, match="s3://letters/dead") as caught:
            attempt()
        assert SECRET not in repr(caught.value) + repr(caught.value.__cause__) + repr(sink) + caplog.text
    assert time.monotonic() - began < 60


def test_missing_credentials_are_said_with_what_to_do() -> None:
    class Anonymous(boto3.Session):
        def get_credentials(self) -> None:
            return None

    with pytest.raises(DeadLetterError, match="expected AWS credentials for 's3://letters/dead', found none"):
        S3Sink("s3://letters/dead", session=Anonymous).write([letter(1)])


@pytest.fixture
def seen(endpoint: str) -> Iterator[tuple[str, list[str]]]:
    """Give another endpoint of S3, and what each request is signed with: access key, region and token."""
    assert endpoint, "it has the bucket"
    found: list[str] = []
    s3 = DomainDispatcherApplication(create_backend_app)

    def asked(environ: dict[str, Any], start_response: Any) -> Any:
        key, _, region, *_ = environ["HTTP_AUTHORIZATION"].partition("Credential=")[2].split("/")
        found.append(f"{key} {region} {environ.get('HTTP_X_AMZ_SECURITY_TOKEN')}")
        return s3(environ, start_response)

    server = make_server("127.0.0.1", 0, asked, threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", found
    server.shutdown()
    server.server_close()


def test_credentials_that_were_renewed_are_used_with_their_token(seen: tuple[str, list[str]]) -> None:
    class Renewed(boto3.Session):
        """A role's session: other keys from time to time."""

        number = 0

        def get_credentials(self) -> Credentials:
            return Credentials(f"AKID{self.number}", "x", f"token{self.number}")

    address, signed = seen
    session = Renewed(region_name="eu-west-1")
    sink = S3Sink(f"s3://letters/dead?endpoint_override={address}", session=lambda: session)
    sink.write([letter(1)])
    assert set(signed) == {"AKID0 eu-west-1 token0"}
    signed.clear()
    session.number = 1
    sink.write([letter(2)])
    assert len(list(sink.read())) == 2
    assert set(signed) == {"AKID1 eu-west-1 token1"}


def test_the_settings_of_the_spout_say_whose_credentials_are_used(seen: tuple[str, list[str]]) -> None:
    address, signed = seen
    aws = KinesisClientSettings(
        aws_access_key_id="AKIDOFTHESPOUT", aws_secret_access_key="x", region="eu-west-1"
    )
    sink = open_sink(f"s3a://letters/dead?endpoint_override={address}", aws=aws)
    sink.check_writable()
    sink.write([letter(1)])
    assert set(signed) == {"AKIDOFTHESPOUT eu-west-1 None"}
    assert len(keys_in("letters")) == 1


@pytest.mark.usefixtures("endpoint")
def test_letters_beyond_one_page_of_the_listing_are_read() -> None:
    stored = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]
    for number in range(1_003):
        stored.put_object("letters", f"many/another-{number:04d}.jsonl", b"")
    sink = S3Sink("s3://letters/many", session=a_session)
    sink.write([letter(1)])
    assert list(sink.read()) == [letter(1)]


@pytest.mark.parametrize(
    "url",
    [
        "s3://",
        "s3:///prefix",
        "s3://bucket/a?regoin=x",
        "s3://bucket/a#b",
        "s3://key:hush@bucket/a",
        "s3://bucket/a?secret_key=hush",
    ],
)
def test_what_is_no_place_is_refused_and_shows_no_secret(url: str) -> None:
    with pytest.raises(InvalidConfig, match=r"dead_letters: expected .*s3://bucket/prefix") as caught:
        open_sink(url)
    assert "hush" not in str(caught.value)


class NoTunnels(http.server.BaseHTTPRequestHandler):
    """A proxy that remembers which hosts were asked for, and reaches none of them."""

    asked: ClassVar[set[str]] = set()

    def do_CONNECT(self) -> None:
        self.asked.add(self.path)
        self.send_error(403)

    def log_message(self, *_arguments: object) -> None:
        """Say nothing."""


@pytest.mark.parametrize(
    ("dual", "host"),
    [
        (False, "s3-fips.us-east-1.amazonaws.com"),
        (True, "s3-fips.dualstack.us-west-2.amazonaws.com"),
    ],
)
def test_the_check_and_the_write_go_to_the_kind_of_endpoint_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, host: str, *, dual: bool
) -> None:
    monkeypatch.setattr(s3, "TRIES", 1)
    NoTunnels.asked.clear()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), NoTunnels) as proxy:
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        aws = KinesisClientSettings(
            region=host.split(".")[-3],
            aws_access_key_id="AKIDOFTHETESTS",
            aws_secret_access_key=SECRET,
            proxy_url=f"http://127.0.0.1:{proxy.server_port}",
            use_fips_endpoint=True,
            use_dualstack_endpoint=dual,
        )
        sink = open_sink("s3://letters/dead", aws=aws)
        for call in (sink.check_writable, lambda: sink.write([letter(1)])):
            with pytest.raises(DeadLetterError):
                call()
            assert NoTunnels.asked == {f"letters.{host}:443"}
        proxy.shutdown()


WRITE_AND_EXIT = """
import sys
from kinesis_spout.dead_letters.sink_url import open_sink
from kinesis_spout.kinesis import KinesisClientSettings
from tests.support.consumer.letters import letter

aws = KinesisClientSettings(aws_access_key_id="k", aws_secret_access_key="s", region="eu-west-1")
sink = open_sink("s3://letters/dead", aws=aws)
sink.check_writable()
sink.write([letter(1)])
"""


@pytest.mark.usefixtures("endpoint")
def test_a_process_ends_cleanly_though_nothing_was_closed() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WRITE_AND_EXIT], capture_output=True, check=False, timeout=90
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert len(keys_in("letters")) == 1
