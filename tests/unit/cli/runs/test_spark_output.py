"""What Spark prints at its start goes to a file; what handlers print later is shown."""

import errno
import io
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kinesis_spout.cli.failures import SparkFailed
from kinesis_spout.cli.runs.spark_session import LOG, SparkOutput, start_spark
from tests.support.waiting import wait_until

CHATTER = """
import sys
for line in sys.stdin:
    name, _, text = line.partition(" ")
    stream = getattr(sys, name)
    stream.write(text.removesuffix("~\\n"))
    stream.flush()
    with open("said", "a") as said:
        said.write("x")
"""
"""Writes each line to the stream that it names; without its end where a tilde ends it."""


@pytest.fixture(autouse=True)
def _in_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


Say = Callable[[str], None]


@contextmanager
def a_jvm(output: SparkOutput) -> Iterator[Say]:
    """A process in the JVM's place, and a way to have it print a line."""
    with output.given_to() as streams:
        process = subprocess.Popen(
            [sys.executable, "-c", CHATTER], stdin=subprocess.PIPE, text=True, **streams
        )
    assert process.stdin is not None
    said = 0

    def say(line: str) -> None:
        nonlocal said
        assert process.stdin is not None
        process.stdin.write(line + "\n")
        process.stdin.flush()
        said += 1
        wait_until(lambda: Path("said").exists() and Path("said").stat().st_size == said, line)

    try:
        yield say
    finally:
        process.stdin.close()
        assert process.wait(120) == 0


def test_the_start_is_logged_and_the_rest_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    output = SparkOutput(shown=False)
    with a_jvm(output) as say:
        say("stderr WARN Utils: Your hostname")
        say("stdout Using Spark's default log4j profile")
        output.started()
        say("stderr charging 1")
        say("stdout a table")
    output.drain()
    assert capsys.readouterr() == ("a table\n", "charging 1\n")
    head, *lines = LOG.read_text().splitlines()
    assert head.endswith(f"process {os.getpid()}")
    assert sorted(lines) == ["Using Spark's default log4j profile", "WARN Utils: Your hostname"]


def test_a_jvm_is_read_also_when_nobody_can_be_shown_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed(io.StringIO):
        def write(self, _: str) -> int:
            raise OSError(errno.EIO, "the terminal is gone")

    monkeypatch.setattr(sys, "stderr", Closed())
    output = SparkOutput(shown=False)
    with a_jvm(output) as say:
        output.started()
        for _ in range(10):
            say("stderr " + "x" * 100_000)
    output.drain()


def test_all_is_shown_when_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    output = SparkOutput(shown=True)
    with a_jvm(output) as say:
        say("stderr WARN Utils: Your hostname")
        output.started()
        say("stderr charging 1")
    output.drain()
    assert capsys.readouterr().err == "WARN Utils: Your hostname\ncharging 1\n"
    assert not LOG.exists()


def test_the_beginning_of_a_line_is_shown_when_its_end_does_not_come(
    capsys: pytest.CaptureFixture[str],
) -> None:
    output = SparkOutput(shown=False)
    shown = ""

    def is_shown() -> bool:
        nonlocal shown
        shown += capsys.readouterr().err
        return shown == "how much?"

    with a_jvm(output) as say:
        output.started()
        say("stderr how much?~")
        wait_until(is_shown, "the beginning of a line")


def test_a_log_that_cannot_be_written_is_said_and_the_start_is_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    LOG.parent.write_text("a file in the place of the folder")
    output = SparkOutput(shown=False)
    with a_jvm(output) as say:
        say("stderr WARN Utils: Your hostname")
        output.started()
    output.drain()
    said, shown = capsys.readouterr().err.splitlines()
    assert str(LOG) in said
    assert shown == "WARN Utils: Your hostname"


def test_the_log_grows_with_every_start_up_to_a_limit() -> None:
    LOG.parent.mkdir()
    LOG.write_text("of a start before\n")
    for _ in range(2):
        output = SparkOutput(shown=False)
        with a_jvm(output):
            output.started()
        Path("said").unlink(missing_ok=True)
    assert [line[:3] for line in LOG.read_text().splitlines()] == ["of ", "---", "---"]
    LOG.write_text("x" * (1 << 20) + "x")
    output = SparkOutput(shown=False)
    with a_jvm(output):
        output.started()
    assert len(LOG.read_text().splitlines()) == 1


def test_a_start_that_fails_shows_what_spark_said_without_stacks_and_names_the_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from pyspark.errors import PySparkRuntimeError  # noqa: PLC0415 - slow to import

    def launch(_: object, streams: dict[str, Any]) -> None:
        script = r"printf 'UnsupportedClassVersionError: 61.0\n\tat java.lang.ClassLoader\n' >&2"
        subprocess.run(["sh", "-c", script], check=True, **streams)
        raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})

    monkeypatch.setattr("pyspark.java_gateway.launch_gateway", launch)
    with pytest.raises(SparkFailed, match=r"its own messages are above and in \.kinesis-spout/spark\.log"):
        start_spark("billing", "local[1]", (), SparkOutput(shown=False))
    assert capsys.readouterr().err == "UnsupportedClassVersionError: 61.0\n"
    assert "java.lang.ClassLoader" in LOG.read_text()
