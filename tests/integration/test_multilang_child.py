"""Components as processes, driven over real pipes by a host that knows nothing of this project."""

import base64
import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kinesis_spout.dead_letters.sink_url import open_sink
from kinesis_spout.zookeeper import EmbeddedZooKeeper
from tests.support.kinesis.endpoints import KinesisEndpoint
from tests.support.storm.multilang_host import BareHost, hosted
from tests.support.waiting import wait_until

NOISY_BOLT = """
import os, subprocess, sys
from kinesis_spout.storm.multilang import BasicBolt

print("while it is imported")

class Noisy(BasicBolt):
    def initialize(self, conf, context):
        print("initialize")

    def process(self, tup):
        print("a line of print", tup.values)
        os.write(1, b"bytes below Python\\n")
        subprocess.run(["echo", "a child process"], check=True)
        assert sys.stdin.read() == ""
        if tup.values == ["crash"]:
            self.emit(["crash"])
            self.log("here it crashes")
            os._exit(3)
        if tup.values == ["raise"]:
            raise ValueError("as asked")
        tasks = self.emit(tup.values, need_task_ids=True)
        self.log(f"went to {tasks}")

    def tick(self):
        self.metrics("ticks", 1)

    def close(self):
        print("closed")

Noisy().run()
"""


BUFFERED = {"PYTHONUNBUFFERED": ""}
"""As Python is by default: what is printed waits."""


@pytest.fixture
def noisy(tmp_path: Path) -> Iterator[BareHost]:
    program = tmp_path / "noisy.py"
    program.write_text(NOISY_BOLT)
    with hosted(str(program), directory=tmp_path, environment=BUFFERED) as host:
        yield host


def tup(tuple_id: str, *values: Any) -> dict[str, Any]:
    return {"id": tuple_id, "comp": "words", "stream": "default", "task": 1, "tuple": list(values)}


def test_what_a_component_prints_never_damages_its_messages(noisy: BareHost) -> None:
    assert noisy.shake_hands() == noisy.process.pid
    noisy.say(tup("1", "x"))
    assert noisy.hear() == {"command": "emit", "tuple": ["x"], "anchors": ["1"]}
    noisy.say(tup("2", "y"))  # before the task ids, which is allowed
    noisy.say({"id": "9", "comp": None, "stream": "__heartbeat", "task": -1, "tuple": []})
    assert noisy.hear() == {"command": "sync"}
    noisy.say([4, 5])
    assert noisy.hear() == {"command": "log", "msg": "went to (4, 5)"}
    assert noisy.hear() == {"command": "ack", "id": "1"}
    assert noisy.hear() == {"command": "emit", "tuple": ["y"], "anchors": ["2"]}
    noisy.say([6])
    assert [noisy.hear()["command"] for _ in range(2)] == ["log", "ack"]
    assert noisy.end() == 0
    lines = noisy.errors().splitlines()
    assert {
        "while it is imported",
        "initialize",
        "a line of print ['x']",
        "bytes below Python",
        "a child process",
        "closed",
    } <= {*lines}


def test_a_component_whose_user_code_raises_lives_on(noisy: BareHost) -> None:
    noisy.shake_hands()
    noisy.say(tup("1", "raise"))
    assert "ValueError: as asked" in noisy.hear()["msg"]
    assert noisy.hear() == {"command": "fail", "id": "1"}
    noisy.say({"id": "2", "comp": "__system", "stream": "__tick", "task": -1, "tuple": [10]})
    assert noisy.hear() == {"command": "metrics", "name": "ticks", "params": 1}
    assert noisy.hear() == {"command": "ack", "id": "2"}
    assert noisy.end() == 0


def test_what_a_component_logged_before_it_crashed_is_heard(noisy: BareHost) -> None:
    noisy.shake_hands()
    noisy.say(tup("1", "crash"))
    assert [noisy.hear()["command"] for _ in range(2)] == ["emit", "log"]
    assert noisy.wait() == 3


def test_a_component_whose_host_no_longer_reads_ends_in_order(noisy: BareHost) -> None:
    noisy.shake_hands()
    assert noisy.process.stdout is not None
    noisy.process.stdout.close()
    noisy.say(tup("1", "x"))
    assert noisy.process.wait(60) == 0
    assert "closed" in noisy.errors()


def test_a_host_that_sends_junk_is_told_what_was_expected(noisy: BareHost) -> None:
    noisy.shake_hands()
    noisy.say({"command": "dance"})
    assert noisy.wait() == 1
    assert "NotOfTheProtocol: expected a command (next, activate" in noisy.errors()


def test_the_serializer_may_be_chosen_by_the_environment(tmp_path: Path) -> None:
    program = tmp_path / "noisy.py"
    program.write_text(NOISY_BOLT)
    environment = {"MULTILANG_SERIALIZER": "msgpack", **BUFFERED}
    with hosted(str(program), directory=tmp_path, environment=environment) as host:
        handshake = {"conf": {}, "context": {"taskid": 1}, "pidDir": str(tmp_path)}
        assert host.process.stdin is not None
        assert host.process.stdout is not None
        host.process.stdin.write(msgspec.msgpack.encode(handshake))
        assert msgspec.msgpack.decode(host.process.stdout.read(100)) == {"pid": host.process.pid}
        assert host.end() == 0


# Our spout as a component


class KinesisTopology:
    """One stream, and the settings of one application that reads it by our spout's component."""

    def __init__(self, endpoint: KinesisEndpoint, conf: dict[str, Any], directory: Path) -> None:
        self.stream = endpoint.create_stream(shards=1)
        self._client = endpoint.client()
        self.directory = directory
        self.conf = {
            "kinesis.spout.region": endpoint.settings.region,
            "kinesis.spout.endpoint_url": endpoint.settings.endpoint_url,
            "kinesis.spout.aws_access_key_id": endpoint.settings.aws_access_key_id,
            "kinesis.spout.aws_secret_access_key": endpoint.settings.aws_secret_access_key,
            "topology.name": "ours",
            **conf,
        }

    def put(self, *payloads: bytes) -> list[str]:
        """Put records; give their sequence numbers."""
        return [
            self._client.put_record(StreamName=self.stream, Data=data, PartitionKey="key")["SequenceNumber"]
            for data in payloads
        ]

    @contextmanager
    def spout(self, *options: str, stream: str = "") -> Iterator[BareHost]:
        command = (
            "-m",
            "kinesis_spout.storm.multilang",
            "spout",
            "--stream",
            stream or self.stream,
            "--app",
            "billing",
        )
        with hosted(*command, *options, directory=self.directory) as host:
            host.shake_hands(self.conf)
            yield host

    def letters(self) -> list[Any]:
        return list(open_sink(self.conf["kinesis.spout.dead_letters"]).read())


@pytest.fixture
def topology(
    moto_server: KinesisEndpoint, zookeeper_server: EmbeddedZooKeeper, fresh_root: str, tmp_path: Path
) -> KinesisTopology:
    settings = {
        "zookeeper": zookeeper_server.connect_string,
        "zookeeper_root": fresh_root,
        "session_timeout_seconds": 10,
        "initial_position": "trim_horizon",
        "retry_limit": "2",  # text, as many configurations have it
        "retry_backoff_seconds": 0.05,
        "max_spared_seconds": 0,
        "commit_interval_seconds": 0.1,
        "dead_letters": str(tmp_path / "dead-letters"),
    }
    conf = {f"kinesis.spout.{name}": value for name, value in settings.items()}
    return KinesisTopology(moto_server, conf, tmp_path)


def emits_of(answer: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [message for message in answer if message["command"] == "emit"]


def taken(host: BareHost, count: int) -> list[dict[str, Any]]:
    """Ask for tuples until there are so many."""
    found: list[dict[str, Any]] = []

    def step() -> bool:
        found.extend(emits_of(host.ask("next")))
        return len(found) >= count

    wait_until(step, f"{count} tuples")
    return found


@pytest.mark.zookeeper
@pytest.mark.endpoint
class TestOurSpout:
    def test_a_failed_record_comes_again_and_a_restart_goes_on_behind_what_was_acked(
        self, topology: KinesisTopology
    ) -> None:
        numbers = topology.put(b"one", b"two", b"three")
        with topology.spout() as host:
            assert emits_of(host.ask("activate")) == []
            first, second, third = taken(host, 3)
            assert [each["tuple"][:3] for each in (first, second)] == [
                ["key", "one", numbers[0]],
                ["key", "two", numbers[1]],
            ]
            assert first["tuple"][3] == "shardId-000000000000"
            assert first["tuple"][4] > 1_600_000_000
            assert first["need_task_ids"] is False
            host.ask("fail", id=second["id"])
            (again,) = taken(host, 1)
            assert (again["tuple"], again["id"] != second["id"]) == (second["tuple"], True)
            host.ask("ack", id=first["id"])
            host.ask("ack", id=again["id"])
            assert host.end() == 0, host.errors()
        with topology.spout() as host:
            (after,) = taken(host, 1)  # an old host says nothing but next
            assert after["tuple"][1] == "three"
            host.ask("ack", id=third["id"])  # of the process before: the record is finished all the same
            host.ask("ack", id=after["id"])
            assert host.terminate() == 0, host.errors()
        topology.put(b"four")
        with topology.spout() as host:
            assert [each["tuple"][1] for each in taken(host, 1)] == ["four"]

    def test_next_without_a_record_is_answered_and_unknown_ids_are_harmless(
        self, topology: KinesisTopology
    ) -> None:
        with topology.spout() as host:
            for strange in ("x", 7, None, {"a": 1}, "shardId-000000000009:12#1.1"):
                host.ask("ack", id=strange)
                host.ask("fail", id=strange)
            host.ask("activate")
            assert emits_of(host.ask("next")) == []
            for strange in ("x", 7, None, {"a": 1}, "shardId-000000000009:12#1.1"):
                said = host.ask("ack", id=strange) + host.ask("fail", id=strange)
                assert {message["command"] for message in said} <= {"log"}
            topology.put(b"one")
            assert taken(host, 1)[0]["tuple"][1] == "one"

    def test_a_deactivated_spout_emits_nothing_and_still_takes_acks(self, topology: KinesisTopology) -> None:
        topology.put(b"one", b"two")
        with topology.spout() as host:
            (first,) = taken(host, 1)
            host.ask("deactivate")
            assert emits_of(host.ask("next")) == []
            host.ask("ack", id=first["id"])
            host.ask("activate")
            assert taken(host, 1)[0]["tuple"][1] == "two"

    def test_a_record_that_is_not_the_chosen_form_is_dead_lettered_with_the_reason(
        self, topology: KinesisTopology
    ) -> None:
        topology.put(b"\xff\xfe", b"fine")
        with topology.spout() as host:
            (fine,) = taken(host, 1)
            host.ask("ack", id=fine["id"])

            def is_given_up() -> bool:
                host.ask("next")
                return len(topology.letters()) > 0

            wait_until(is_given_up, "the dead letter")
        (letter,) = topology.letters()
        assert (letter.data, letter.attempts) == (b"\xff\xfe", 3)
        assert "expected data that is UTF-8 (the spout's --data is text), got byte 0xff at 0" in letter.error

    def test_data_travels_as_base64_or_json_and_the_fields_are_chosen(
        self, topology: KinesisTopology
    ) -> None:
        data = json.dumps({"amount": 3}).encode()
        topology.put(data)
        with topology.spout("--data", "base64", "--fields", "attempt,data") as host:
            (emitted,) = taken(host, 1)
            assert emitted["tuple"] == [1, base64.b64encode(data).decode()]
            assert host.end() == 0
        with topology.spout("--data", "json", "--fields", "data,stream") as host:
            (emitted,) = taken(host, 1)
            assert emitted["tuple"] == [{"amount": 3}, topology.stream]

    def test_a_stream_that_does_not_exist_is_an_error_and_the_end(self, topology: KinesisTopology) -> None:
        with topology.spout(stream="no-such-stream") as host:
            said = host.ask("activate")
            assert said[-1]["command"] == "error"
            assert "no-such-stream" in said[-1]["msg"]
            assert host.wait() == 1
            assert "no-such-stream" in host.errors()
            assert "Traceback" not in host.errors()

    def test_while_kinesis_does_not_answer_the_host_is_answered_and_told_why_there_are_no_records(
        self, topology: KinesisTopology
    ) -> None:
        topology.put(b"one")
        with socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))
            silent.listen()
            topology.conf["kinesis.spout.endpoint_url"] = f"http://127.0.0.1:{silent.getsockname()[1]}"
            with topology.spout() as host:
                began = time.monotonic()
                said = host.ask("activate")
                assert any("has not answered yet" in message["msg"] for message in said)
                assert emits_of(host.ask("next")) == []
                host.ask("ack", id="shardId-000000000009:12#1.1")
                assert host.ask("deactivate") == host.ask("next") == []
                assert host.terminate() == 0, host.errors()
                assert time.monotonic() - began < 20

    def test_the_life_of_the_spout_is_told_to_the_hosts_log(self, topology: KinesisTopology) -> None:
        with topology.spout() as host:
            said = host.ask("activate")
            assert any(message["msg"].startswith("started: stream") for message in said)


@pytest.mark.parametrize(
    ("conf", "options", "error"),
    [
        ({}, (), "stream is required: expected a stream name"),
        (
            {},
            ("--stream", "orders"),
            "give it as --app, as kinesis.spout.app in the topology's configuration",
        ),
        (
            {"kinesis.spout.retries": 3},
            (),
            "unknown key of the topology's configuration 'kinesis.spout.retries'",
        ),
        (
            {"kinesis.spout.stream": "orders", "kinesis.spout.app": "a", "kinesis.spout.retry_limit": -1},
            (),
            "retry_limit (from kinesis.spout.retry_limit): expected",
        ),
        (
            {},
            ("--stream", "orders", "--app", "a", "--retry-limit", "few"),
            "--retry-limit: expected int >= 0, or none, got 'few'",
        ),
    ],
)
def test_settings_that_cannot_be_are_an_error_for_the_host_and_on_standard_error(
    tmp_path: Path, conf: dict[str, Any], options: tuple[str, ...], error: str
) -> None:
    with hosted("-m", "kinesis_spout.storm.multilang", "spout", *options, directory=tmp_path) as host:
        host.shake_hands(conf)
        said = host.hear()
        assert said["command"] == "error"
        assert error in said["msg"]
        assert host.wait() == 1
        assert host.errors() == f"error: {said['msg']}\n"


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (
            ("--aws-secret-acess-key", "hush"),
            "unknown option --aws-secret-acess-key: did you mean --aws-secret-access-key",
        ),
        (
            ("--aws-secret-acess-key=hush",),
            "unknown option --aws-secret-acess-key: did you mean --aws-secret-access-key",
        ),
        (("--aws-secret-access-key", "my", "hush"), "does a value with a space lack quotes?"),
        (("--data", "xml"), "invalid choice: 'xml' (choose from 'text', 'base64', 'json')"),
    ],
)
def test_an_option_that_does_not_exist_is_named_without_its_value(
    tmp_path: Path, options: tuple[str, ...], error: str
) -> None:
    with hosted("-m", "kinesis_spout.storm.multilang", "spout", *options, directory=tmp_path) as host:
        assert host.wait() == 2
        assert error in host.errors()
        assert "hush" not in host.errors()


def test_a_field_that_does_not_exist_is_refused_before_the_handshake(tmp_path: Path) -> None:
    options = ("--fields", "data,colour")
    with hosted("-m", "kinesis_spout.storm.multilang", "spout", *options, directory=tmp_path) as host:
        assert host.wait() == 1
        assert "--fields: expected some of data, partition_key" in host.errors()
        assert "got 'colour'" in host.errors()
