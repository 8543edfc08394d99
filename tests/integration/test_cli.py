"""The command line on a real ZooKeeper, a Kinesis endpoint over HTTP, and Spark.

Consumers that get a signal are processes of their own, with a Spark of their own. The other commands are called
in this process, where one Spark serves them all; one of each kind of end proves that a shell sees the same.
"""

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from kinesis_spout.cli.app import app
from kinesis_spout.operations.world import World
from kinesis_spout.settings import SpoutConfig
from kinesis_spout.zookeeper import EmbeddedZooKeeper, ZooKeeperBackend
from tests.support.kinesis.endpoints import KinesisEndpoint
from tests.support.waiting import STARTING_SECONDS, wait_until

pytestmark = [
    pytest.mark.spark,
    pytest.mark.zookeeper,
    pytest.mark.endpoint,
    pytest.mark.timeout(1_200),
    # PySpark asks for pandas, which nothing here uses, and warns of its newest version.
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]

COMMAND = [sys.executable, "-c", "from kinesis_spout.cli.app import main; main()"]
RECORDS = 40
FOR_SPARK = {"SPARK_LOCAL_IP": "127.0.0.1"}

HANDLERS = """
import pathlib, time
from kinesis_spout import Reject

SECONDS = 120

def handle(text):
    if text == "poison":
        raise Reject("poison")

def wait_to_go_on(text):
    with open("calls", "a") as calls:
        calls.write(text + "\\n")
    deadline = time.monotonic() + SECONDS
    while not pathlib.Path("go-on").exists():
        if time.monotonic() > deadline:
            raise TimeoutError("nobody made the file go-on")
        time.sleep(0.01)  # between two looks: this handler is as slow as the test wants it

def charge(text):
    print("charging", text)
    if text != "first":
        wait_to_go_on(text)

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
        process = subprocess.Popen(
            [*COMMAND, *arguments],
            cwd=self.directory,
            env={**others_variables(), **self.variables, **FOR_SPARK},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.started.append(process)
        return process

    def start_run(self, handler: str, *more: str) -> subprocess.Popen[str]:
        return self.start("run", handler, "--master", "local[2]", "--json", *more)

    def call(self, *arguments: str, exit_code: int = 0) -> tuple[str, str]:
        """Call a command in this process; give its output and its error output."""
        hidden = dict.fromkeys(os.environ.keys() - others_variables().keys())
        result = CliRunner().invoke(app, [*arguments], env=hidden | self.variables)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == exit_code, f"{arguments} ended with {result.exit_code}: {result.output}"
        return result.stdout, result.stderr

    def json(self, *arguments: str, exit_code: int = 0) -> Any:
        return json.loads(self.call(*arguments, "--json", exit_code=exit_code)[0])

    def run_to_the_end(self, handler: str, *more: str) -> dict[str, Any]:
        """Run a handler on the tests' Spark until it has handled what is there; give the last progress."""
        out, _ = self.call("run", handler, "--until", "latest", "--json", *more)
        last: dict[str, Any] = json.loads(out.splitlines()[-1])
        return last

    @property
    def variables(self) -> dict[str, str]:
        return {f"KINESIS_SPOUT_{name.upper()}": value for name, value in self.settings.items()}

    def begin(self) -> None:
        """Let the application begin on the stream, as its first consumer would."""
        world, config = World(), SpoutConfig.load(environ=self.variables)
        lister = world.stream(config).lister
        with world.progress(config) as progress:
            progress.store.open(lister.summary().created, config.start, lister.list_shards())

    def put(self, *texts: str) -> None:
        self.endpoint.client().put_records(
            StreamName=self.stream,
            Records=[{"Data": text.encode(), "PartitionKey": text} for text in texts],
        )

    def calls(self) -> list[str]:
        path = self.directory / "calls"
        return path.read_text().splitlines() if path.exists() else []


def others_variables() -> dict[str, str]:
    """The environment without settings of a spout."""
    return {name: value for name, value in os.environ.items() if not name.startswith("KINESIS_SPOUT_")}


@pytest.fixture
def directory(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Make it the place where a user works, for this process too, and ``run`` in this process use our Spark."""
    (tmp_path / "handlers.py").write_text(HANDLERS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr("kinesis_spout.cli.runs.spark_session.start_spark", lambda *_: spark)
    monkeypatch.setattr(spark, "stop", lambda: None)  # other tests go on with it
    yield tmp_path
    sys.modules.pop("handlers", None)


@pytest.fixture
def shell(
    directory: Path, moto_server: KinesisEndpoint, zookeeper_server: EmbeddedZooKeeper, fresh_root: str
) -> Iterator[Shell]:
    stream = moto_server.create_stream(shards=2)
    settings = moto_server.settings
    assert settings.endpoint_url
    assert settings.region
    assert settings.aws_access_key_id
    assert settings.aws_secret_access_key
    shell = Shell(
        directory,
        moto_server,
        stream,
        {
            "stream": stream,
            "app": "billing",
            "zookeeper": zookeeper_server.connect_string,
            "zookeeper_root": fresh_root,
            "region": settings.region,
            "endpoint_url": settings.endpoint_url,
            "aws_access_key_id": settings.aws_access_key_id,
            "aws_secret_access_key": settings.aws_secret_access_key,
            "initial_position": "trim_horizon",
            "session_timeout_seconds": "20",
        },
    )
    yield shell
    for process in shell.started:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=30)


def test_a_living_consumer_refuses_operators_and_sigterm_leaves_them_everything(shell: Shell) -> None:
    shell.begin()
    shell.put("before the reset")
    shell.call("checkpoints", "reset", "--to", "latest", "--yes")
    shell.put(*(f"record-{number}" for number in range(RECORDS)), "poison")
    consumer = shell.start_run("handlers:handle", "--scheme", "text")
    await_line(consumer, lambda line: (line["acked"], line["dead_lettered"]) == (RECORDS, 1))

    _, err = shell.call("checkpoints", "reset", "--to", "latest", "--yes", exit_code=5)
    (member,) = shell.json("checkpoints", "show")["members"]
    assert member in err
    assert "next: stop them" in err
    assert {shard["owner"] for shard in shell.json("shards")["shards"]} == {member}
    shell.call("checkpoints", "forget", "--yes", exit_code=5)

    consumer.send_signal(signal.SIGTERM)
    last = ended(consumer)[-1]
    assert (last["state"], last["acked"], last["dead_lettered"]) == ("stopped", RECORDS, 1)

    shards = shell.json("shards")["shards"]
    assert [shard["state"] for shard in shards] == ["ready", "ready"]
    assert all(shard["checkpoint"].isdigit() and shard["lag_millis"] == 0 for shard in shards)
    assert all(shard["oldest_unread_millis"] is None for shard in shards)
    plain, _ = shell.start("shards").communicate(timeout=STARTING_SECONDS)
    assert shards[0]["shard_id"] in plain

    shown = shell.json("checkpoints", "show")
    assert (shown["app"], shown["members"]) == ("billing", [])
    assert shown["begun"]["start"] == "TRIM_HORIZON"
    assert {shard["checkpoint"] for shard in shown["shards"]} == {shard["checkpoint"] for shard in shards}

    redrives_the_letter(shell)
    waiting = [shard["oldest_unread_millis"] for shard in shell.json("shards")["shards"]]
    assert [age is not None for age in waiting].count(True) == 1, "the redriven record is not read yet"

    _, err = shell.call("checkpoints", "reset", "--to", "trim_horizon", exit_code=2)
    assert "--yes" in err
    moves = shell.json("checkpoints", "reset", "--to", "trim_horizon", "--yes")
    assert [move["after"] for move in moves] == ["TRIM_HORIZON", "TRIM_HORIZON"]
    again = shell.run_to_the_end("handlers:count", "--dataframe")
    assert again["acked"] == RECORDS + 3, "from the start, the first record and the redriven poison included"

    shell.json("checkpoints", "forget", "--yes")
    assert shell.json("checkpoints", "show")["begun"] is None
    shell.call("checkpoints", "forget", "--yes", exit_code=4)


def redrives_the_letter(shell: Shell) -> None:
    (letter,) = shell.json("dead-letters", "list")
    assert (letter["reason"], letter["error"]) == ("rejected", "poison")
    assert shell.json("dead-letters", "list", "--reason", "exhausted") == []
    assert shell.json("dead-letters", "show", letter["message_id"])["data_text"] == "poison"
    shell.call("dead-letters", "show", "no-such:1", exit_code=1)
    assert shell.json("dead-letters", "redrive", letter["message_id"]) == {"redriven": 1, "missing": []}
    assert shell.json("dead-letters", "list") == []
    shell.call("dead-letters", "redrive", letter["message_id"], exit_code=1)


def test_a_stream_made_again_starts_afresh_once_forgotten_and_ctrl_c_finishes_what_is_in_flight(
    shell: Shell,
) -> None:
    shell.begin()
    make_again(shell)
    shell.put("slow")
    _, err = shell.call("run", "handlers:handle", "--until", "latest", exit_code=4)
    assert "checkpoints forget" in err
    shell.call("checkpoints", "reset", "--to", "latest", "--yes", exit_code=4)
    shell.call("checkpoints", "forget", "--yes")

    consumer = shell.start_run("handlers:wait_to_go_on", "--scheme", "text")
    wait_until(lambda: shell.calls() == ["slow"], "the handler is called", seconds=STARTING_SECONDS)
    os.killpg(consumer.pid, signal.SIGINT)  # to the whole group, as from a terminal
    await_line(consumer, lambda line: line["state"] == "stopping")
    (shell.directory / "go-on").touch()
    last = ended(consumer, exit_code=130)[-1]
    assert (last["state"], last["acked"], last["retried"]) == ("stopped", 1, 0)

    shell.put("next")
    again = shell.run_to_the_end("handlers:count", "--dataframe")
    assert (again["delivered"], again["acked"]) == (1, 1), "nothing is handled twice"


def make_again(shell: Shell) -> None:
    """Delete the stream and make one of its name, at a time that is clearly later."""
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


def test_what_goes_wrong_is_one_line_and_an_exit_code(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    _, err = shell.call("shards", "--stream", "no-such-stream", exit_code=3)
    assert err.startswith("error: ")
    assert "Traceback" not in err
    _, err = shell.call("--debug", "shards", "--stream", "no-such-stream", exit_code=3)
    assert "Traceback" in err
    process = shell.start("run", "handlers:nothing")
    _, err = process.communicate(timeout=STARTING_SECONDS)
    assert (process.returncode, "'nothing'" in err, "Traceback" in err) == (2, True, False), err
    _, err = shell.call("checkpoints", "show", "--zookeeper", "embedded", exit_code=4)
    assert "no consumer has run here" in err
    assert not (shell.directory / ".kinesis-spout").exists()
    # As an operator sees it, but for the 15 seconds that they wait.
    defaults = ZooKeeperBackend.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "connect_timeout_seconds", 0.5)
    shell.call("shards", "--zookeeper", "127.0.0.1:1", exit_code=4)


def test_a_run_says_how_far_it_is_and_what_a_handler_prints(shell: Shell) -> None:
    shell.put("first", "second")
    (shell.directory / "go-on").touch()
    arguments = ("run", "handlers:charge", "--scheme", "text", "--master", "local[2]", "--until", "latest")
    run = shell.start(*arguments)
    out, err = run.communicate(timeout=STARTING_SECONDS)
    assert run.returncode == 0, err
    printed = [line for line in (out + err).splitlines() if line.startswith("charging")]
    assert sorted(printed) == ["charging first", "charging second"]
    assert re.search(r"^stopped: delivered 2 .*  \[#{20}\] 100 % until latest$", err, re.MULTILINE), err
    log = (shell.directory / ".kinesis-spout/spark.log").read_text()
    assert "log4j" in log
    assert "log4j" not in err
    assert "charging" not in log


def test_the_doctor_finds_all_that_is_there_and_tells_no_secret(shell: Shell) -> None:
    shell.settings["aws_secret_access_key"] = "VERYSECRET-of-the-test"
    document = shell.json("doctor")
    assert document["healthy"] is True, document
    found = {finding["about"]: finding for finding in document["findings"]}
    assert found["ZooKeeper"]["text"].startswith("reached at ")
    assert found["ZooKeeper"]["text"].endswith(", standalone")
    assert "2 open shards" in found["stream"]["text"]
    assert found["may read records"]["condition"] == "ok"
    assert found["may put records"]["condition"] == "not known"
    out, err = shell.call("doctor")
    assert "VERYSECRET" not in json.dumps(document) + out + err
    shell.call("doctor", "--stream", "no-such-stream", exit_code=1)


def await_line(process: subprocess.Popen[str], holds: Callable[[dict[str, Any]], bool]) -> None:
    """Read the progress until a line says what is waited for. The process's end ends this, too."""
    assert process.stdout is not None
    for line in process.stdout:
        if holds(json.loads(line)):
            return
    pytest.fail(f"ended with {process.wait()} before that")


def ended(process: subprocess.Popen[str], exit_code: int = 0) -> list[dict[str, Any]]:
    """Wait for the end of a run; give the progress that was not read yet."""
    out, err = process.communicate(timeout=STARTING_SECONDS)
    assert process.returncode == exit_code, f"ended with {process.returncode}: {out}\n{err}"
    return [json.loads(line) for line in out.splitlines()]


def test_a_topology_runs_until_its_end(shell: Shell) -> None:
    wired = "examples.topologies.word_count:word_count"
    explained, _ = shell.call("topology", "explain", wired)
    assert explained.startswith("topology word_count: 4 components\n")
    shell.put("to be or not to be", *(f"sentence {number}" for number in range(RECORDS)), " ")
    with_settings = {"until": "latest", "retry_limit": "1", "retry_backoff_seconds": "0.1"}
    shell.settings.update(with_settings)

    out, err = shell.call("topology", "run", wired, "--json")

    last = json.loads(out.splitlines()[-1])
    assert (last["state"], last["acked"], last["dead_lettered"]) == ("stopped", RECORDS + 1, 1)
    assert last["components"]["split"]["executed"] == RECORDS + 3
    assert last["components"]["tally"]["acked"] == 2 * RECORDS + 6
    assert "1 record was dead-lettered" in err
    (letter,) = shell.json("dead-letters", "list")
    assert letter["error"] == "split: no words"


def test_sigterm_ends_a_topology_of_the_working_directory_in_order(shell: Shell) -> None:
    sample = importlib.util.find_spec("examples.topologies.word_count")
    assert sample is not None and sample.origin is not None  # noqa: PT018
    shutil.copy(sample.origin, shell.directory / "word_count.py")
    shell.put(*(f"sentence {number}" for number in range(RECORDS)))
    process = shell.start("topology", "run", "word_count:word_count", "--master", "local[2]", "--json")
    await_line(process, lambda line: line["acked"] == RECORDS)

    process.send_signal(signal.SIGTERM)

    last = ended(process)[-1]
    assert (last["state"], last["components"]["tally"]["acked"]) == ("stopped", 2 * RECORDS)
