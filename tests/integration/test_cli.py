"""The command line as people call it: processes of their own, a real ZooKeeper, a Kinesis endpoint over HTTP."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from kinesis_spout.zookeeper import EmbeddedZooKeeper
from tests.kinesis_endpoints import KinesisEndpoint, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.zookeeper, pytest.mark.endpoint, pytest.mark.timeout(300)]

COMMAND = [sys.executable, "-c", "from kinesis_spout.cli.app import main; main()"]
RECORDS = 40
DEADLINE_SECONDS = 120.0

HANDLERS = """
import pathlib, time
from kinesis_spout import Reject

def handle(text):
    if text == "poison":
        raise Reject("poison")

def touch_and_wait(text):
    with open("calls", "a") as calls:
        calls.write(text + "\\n")
    time.sleep(3)

def count(df, collector):
    print("rows:", df.count())
"""


@dataclass
class Shell:
    """Calls ``kinesis-spout`` in a directory, with the settings in its environment."""

    directory: Path
    endpoint: KinesisEndpoint
    stream: str
    settings: dict[str, str]
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("KINESIS_SPOUT_")
        }
        variables = {f"KINESIS_SPOUT_{name.upper()}": value for name, value in self.settings.items()}
        process = subprocess.Popen(
            [*COMMAND, *arguments],
            cwd=self.directory,
            env=environment | variables | {"SPARK_LOCAL_IP": "127.0.0.1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.started.append(process)
        return process

    def call(self, *arguments: str, exit_code: int = 0) -> tuple[str, str]:
        """Run a command to its end; give its output and its error output."""
        process = self.start(*arguments)
        out, err = process.communicate(timeout=DEADLINE_SECONDS)
        assert process.returncode == exit_code, f"{arguments} ended with {process.returncode}: {out}\n{err}"
        return out, err

    def json(self, *arguments: str, exit_code: int = 0) -> Any:
        return json.loads(self.call(*arguments, "--json", exit_code=exit_code)[0])

    def run(self, handler: str, *more: str, exit_code: int = 0) -> list[dict[str, Any]]:
        """Run a handler until it has caught up; give the progress."""
        out, _ = self.call(
            "run", handler, "--master", "local[2]", "--until-caught-up", "--json", *more, exit_code=exit_code
        )
        return [json.loads(line) for line in out.splitlines()]

    def put(self, *texts: str) -> None:
        self.endpoint.client().put_records(
            StreamName=self.stream,
            Records=[{"Data": text.encode(), "PartitionKey": text} for text in texts],
        )

    def calls(self) -> list[str]:
        path = self.directory / "calls"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def shell(
    tmp_path: Path, moto_server: KinesisEndpoint, zookeeper_server: EmbeddedZooKeeper, fresh_root: str
) -> Iterator[Shell]:
    (tmp_path / "handlers.py").write_text(HANDLERS)
    stream = moto_server.create_stream(shards=2)
    settings = moto_server.settings
    assert settings.endpoint_url and settings.region and settings.access_key and settings.secret_key  # noqa: PT018
    shell = Shell(
        tmp_path,
        moto_server,
        stream,
        {
            "stream": stream,
            "app": "billing",
            "zookeeper": zookeeper_server.connect_string,
            "zookeeper_root": fresh_root,
            "region": settings.region,
            "endpoint_url": settings.endpoint_url,
            "aws_access_key_id": settings.access_key,
            "aws_secret_access_key": settings.secret_key,
            "initial_position": "trim_horizon",
            "session_timeout_seconds": "2",
        },
    )
    yield shell
    for process in shell.started:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=30)


def test_a_run_then_everything_an_operator_does_next(shell: Shell) -> None:
    shell.put(*(f"record-{number}" for number in range(RECORDS)), "poison")
    progress = shell.run("handlers:handle", "--scheme", "text", "--per-shard")
    assert progress[-1]["state"] == "stopped"
    assert (progress[-1]["acked"], progress[-1]["dead_lettered"]) == (RECORDS, 1)
    assert len(progress[-1]["shards"]) == 2

    shards = shell.json("shards")
    assert [shard["state"] for shard in shards] == ["ready", "ready"]
    assert all(shard["checkpoint"].isdigit() and shard["lag_millis"] == 0 for shard in shards)
    assert all(shard["oldest_unread_millis"] is None for shard in shards)
    plain, _ = shell.call("shards")
    assert shards[0]["shard_id"] in plain

    shown = shell.json("checkpoints", "show")
    assert (shown["app"], shown["members"]) == ("billing", [])
    assert shown["begun"]["start"] == "TRIM_HORIZON"
    assert {shard["checkpoint"] for shard in shown["shards"]} == {shard["checkpoint"] for shard in shards}

    (letter,) = shell.json("dead-letters", "list")
    assert (letter["reason"], letter["error"]) == ("rejected", "poison")
    assert shell.json("dead-letters", "list", "--reason", "exhausted") == []
    assert shell.json("dead-letters", "show", letter["message_id"])["data_text"] == "poison"
    shell.call("dead-letters", "show", "no-such:1", exit_code=1)
    assert shell.json("dead-letters", "redrive", letter["message_id"]) == {"redriven": 1, "missing": []}
    assert shell.json("dead-letters", "list") == []
    shell.call("dead-letters", "redrive", letter["message_id"], exit_code=1)
    waiting = [shard["oldest_unread_millis"] for shard in shell.json("shards")]
    assert [age is not None for age in waiting].count(True) == 1, "the redriven record is not read yet"

    _, err = shell.call("checkpoints", "reset", "--to", "trim_horizon", exit_code=2)
    assert "--yes" in err
    moves = shell.json("checkpoints", "reset", "--to", "trim_horizon", "--yes")
    assert [move["after"] for move in moves] == ["TRIM_HORIZON", "TRIM_HORIZON"]
    again = shell.run("handlers:count", "--dataframe")
    assert again[-1]["acked"] == RECORDS + 2, "from the start again, the redriven poison included"

    shell.json("checkpoints", "forget", "--yes")
    assert shell.json("checkpoints", "show")["begun"] is None
    shell.call("checkpoints", "forget", "--yes", exit_code=4)


def test_a_reset_is_refused_while_a_consumer_lives_and_sigterm_ends_it_cleanly(shell: Shell) -> None:
    shell.put("one")
    consumer = shell.start("run", "handlers:handle", "--scheme", "text", "--master", "local[2]", "--json")
    await_line(consumer, lambda line: line["acked"] == 1)

    _, err = shell.call("checkpoints", "reset", "--to", "latest", "--yes", exit_code=5)
    (member,) = shell.json("checkpoints", "show")["members"]
    assert member in err
    assert "next: stop them" in err
    assert {shard["owner"] for shard in shell.json("shards")} == {member}
    shell.call("checkpoints", "forget", "--yes", exit_code=5)

    consumer.send_signal(signal.SIGTERM)
    out, err = consumer.communicate(timeout=DEADLINE_SECONDS)
    assert (consumer.returncode, json.loads(out.splitlines()[-1])["state"]) == (0, "stopped"), err
    shell.call("checkpoints", "reset", "--to", "latest", "--yes")
    assert shell.run("handlers:handle", "--scheme", "text")[-1]["delivered"] == 0


def test_ctrl_c_finishes_what_is_in_flight(shell: Shell) -> None:
    """The signal goes to the whole group, as from a terminal; the handler is in the middle of a record."""
    shell.put("slow")
    consumer = shell.start(
        "run", "handlers:touch_and_wait", "--scheme", "text", "--master", "local[2]", "--json"
    )
    wait_until(lambda: shell.calls() == ["slow"], "the handler is called", seconds=DEADLINE_SECONDS)
    os.killpg(consumer.pid, signal.SIGINT)
    out, err = consumer.communicate(timeout=DEADLINE_SECONDS)
    last = json.loads(out.splitlines()[-1])
    assert (consumer.returncode, last["state"], last["acked"], last["retried"]) == (130, "stopped", 1, 0), err
    assert shell.run("handlers:touch_and_wait", "--scheme", "text")[-1]["delivered"] == 0
    assert shell.calls() == ["slow"]


def test_a_stream_made_again_is_refused_until_its_old_progress_is_forgotten(shell: Shell) -> None:
    shell.put("old")
    shell.run("handlers:handle", "--scheme", "text")
    client = shell.endpoint.client()
    client.delete_stream(StreamName=shell.stream)
    before = shell.json("checkpoints", "show")["begun"]["stream_created"]

    def is_another() -> bool:
        summary = client.describe_stream_summary(StreamName=shell.stream)["StreamDescriptionSummary"]
        if summary["StreamCreationTimestamp"].timestamp() - before > 1.5:
            return True
        client.delete_stream(StreamName=shell.stream)
        client.create_stream(StreamName=shell.stream, ShardCount=1)
        return False

    client.create_stream(StreamName=shell.stream, ShardCount=1)
    wait_until(is_another, "a stream made clearly later")
    shell.put("new")
    _, err = shell.call("run", "handlers:handle", "--until-caught-up", "--master", "local[2]", exit_code=4)
    assert "checkpoints forget" in err
    shell.call("checkpoints", "reset", "--to", "latest", "--yes", exit_code=4)
    shell.call("checkpoints", "forget", "--yes")
    assert shell.run("handlers:handle", "--scheme", "text")[-1]["acked"] == 1


def test_what_goes_wrong_is_one_line_and_an_exit_code(shell: Shell) -> None:
    _, err = shell.call("shards", "--stream", "no-such-stream", exit_code=3)
    assert err.startswith("error: ")
    assert "Traceback" not in err
    _, err = shell.call("--debug", "shards", "--stream", "no-such-stream", exit_code=3)
    assert "Traceback" in err
    _, err = shell.call("run", "handlers:nothing", exit_code=2)
    assert "'nothing'" in err
    shell.call("shards", "--zookeeper", "127.0.0.1:1", exit_code=4)
    _, err = shell.call("checkpoints", "show", "--zookeeper", "embedded", exit_code=4)
    assert "no consumer has run here" in err
    assert not (shell.directory / ".kinesis-spout").exists()


def await_line(process: subprocess.Popen[str], holds: Callable[[dict[str, Any]], bool]) -> None:
    """Read the progress until a line says what is waited for. The process's end ends this, too."""
    assert process.stdout is not None
    for line in process.stdout:
        if holds(json.loads(line)):
            return
    pytest.fail(f"ended with {process.wait()} before that")
