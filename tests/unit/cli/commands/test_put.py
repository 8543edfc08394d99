"""``put`` makes records of its arguments, or of the lines that it is given."""

import json
import logging
import os
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib import import_module
from pathlib import Path

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from typer.testing import CliRunner

from kinesis_spout.cli.app import app
from kinesis_spout.kinesis import KinesisClientSettings
from kinesis_spout.operations.errors import fail_at_once
from kinesis_spout.operations.world import World
from tests.unit.cli.fake_world import FakeWorld

STREAM = ("--stream", "orders")


def test_each_argument_is_a_record() -> None:
    world = FakeWorld()
    _, err = world.call("put", "one", "zwei ü", *STREAM)
    assert world.puts.put == [("orders", b"one"), ("orders", "zwei ü".encode())]
    assert err == "records put: 2 (0 2)\n"
    assert world.opened == ["client"], "no application, no ZooKeeper"


def test_without_arguments_each_line_is_a_record_whatever_its_bytes() -> None:
    world = FakeWorld()
    world.call("put", *STREAM, given=b"one\ntwo\r\n\n\xff\xfe")
    assert [data for _, data in world.puts.put] == [b"one", b"two", b"", b"\xff\xfe"]


def test_nothing_given_is_nothing_put() -> None:
    world = FakeWorld()
    assert world.call("put", *STREAM, given=b"")[1] == "records put: 0\n"
    assert world.puts.put == []


def test_a_key_is_for_all_and_without_one_each_record_has_its_own() -> None:
    world = FakeWorld()
    world.call("put", "a", "b", "--key", "customer-7", *STREAM)
    assert world.puts.keys == ["customer-7", "customer-7"]
    world = FakeWorld()
    world.call("put", "a", "b", *STREAM)
    assert len(set(world.puts.keys)) == 2


def test_a_record_is_put_as_often_as_asked() -> None:
    world = FakeWorld()
    out, _ = world.call("put", "a", "b", "--count", "600", "--json", *STREAM)
    assert json.loads(out) == {"put": 1200, "shards": {"0": 1200}}
    assert len(world.puts.put) == 1200
    world.call("put", "a", "--count", "0", *STREAM, exit_code=2)


def test_the_stream_must_be_given() -> None:
    _, err = FakeWorld().call("put", "a", exit_code=2)
    assert "give it as --stream" in err


def test_an_interruption_says_how_many_records_are_on_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> Iterator[bytes]:
        yield b"1"
        yield b"2"
        raise KeyboardInterrupt

    monkeypatch.setattr(import_module("kinesis_spout.cli.commands.streams"), "_records", interrupted)
    world = FakeWorld()
    _, err = world.call("put", *STREAM, exit_code=130)
    assert "records put before the interruption: 2" in err
    assert [data for _, data in world.puts.put] == [b"1", b"2"]


@pytest.fixture
def refusing() -> Iterator[str]:
    """The URL of a port at which nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody else gets it, and without listen() it refuses
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


def at(url: str) -> tuple[str, ...]:
    return (
        *STREAM,
        "--endpoint-url", url,
        "--region", "us-east-1",
        "--set", "aws_access_key_id=x",
        "--set", "aws_secret_access_key=y",
    )  # fmt: skip


@pytest.mark.parametrize(
    "command",
    [("put", "a", "b"), ("tail",), ("fan-out", "list", "--app", "billing")],
    ids=lambda each: each[0],
)
def test_an_endpoint_where_nobody_listens_fails_at_once_and_in_one_line(
    refusing: str, command: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    result = CliRunner().invoke(app, [*command, *at(refusing)], obj=World())

    assert result.exit_code == 3
    error, step = result.stderr.splitlines()
    assert error == f"error: expected Kinesis at {refusing}, got no connection: Connection refused"
    assert "--endpoint-url, or AWS_DEFAULT_REGION and AWS_ENDPOINT_URL" in step
    assert caplog.messages == [], "nothing was tried again"


def test_missing_credentials_are_told_once(
    refusing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(tmp_path))
    arguments = ["put", "a", *STREAM, "--endpoint-url", refusing, "--region", "us-east-1"]
    result = CliRunner().invoke(app, arguments, obj=World())

    assert result.exit_code == 3
    assert result.stderr == (
        "error: PutRecords on orders failed: Unable to locate credentials; set AWS_ACCESS_KEY_ID and "
        "AWS_SECRET_ACCESS_KEY, or `--set aws_profile=VALUE`; an emulator takes any keys\n"
    )


class AnswersOnce(BaseHTTPRequestHandler):
    """Says once that something went wrong, and lets nobody in after it."""

    def do_POST(self) -> None:
        self.server.server_close()
        self.send_response(503)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def test_an_endpoint_that_answered_before_is_waited_for() -> None:
    server = HTTPServer(("127.0.0.1", 0), AnswersOnce)
    thread = threading.Thread(target=server.handle_request)
    thread.start()
    settings = KinesisClientSettings(
        region="us-east-1",
        endpoint_url=f"http://127.0.0.1:{server.server_port}",
        aws_access_key_id="x",
        aws_secret_access_key="y",
    )
    client = fail_at_once(settings.create())
    with pytest.raises(ClientError):
        client.list_streams()
    thread.join()
    with pytest.raises(EndpointConnectionError):  # botocore's own, which is tried again
        client.list_streams()
    client.close()
