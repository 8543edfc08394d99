"""Hadoop dead letters are complete files or none, through the JVM that PySpark starts."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from kinesis_spout.dead_letters.hadoop import CHUNK_BYTES, HadoopSink
from kinesis_spout.dead_letters.sink_url import open_sink
from kinesis_spout.model.errors import DeadLetterError
from tests.support.consumer.letters import letter

pytestmark = pytest.mark.spark


@pytest.fixture
def sink(tmp_path: Path) -> Iterator[HadoopSink]:
    sink = HadoopSink((tmp_path / "dead").as_uri())
    yield sink
    sink.close()


def visible(directory: Path) -> list[Path]:
    return sorted(path for path in directory.iterdir() if not path.name.startswith("."))


def test_every_write_is_one_file_and_no_temporary_name_is_left(sink: HadoopSink, tmp_path: Path) -> None:
    sink.write([letter(1), letter(2)])
    sink.write([letter(3)])
    names = [path.name for path in visible(tmp_path / "dead")]
    assert len(names) == 2
    assert all(name.startswith("dead-letters-") and name.endswith(".jsonl") for name in names)


def test_a_write_that_a_crash_cut_short_is_not_read(sink: HadoopSink, tmp_path: Path) -> None:
    sink.write([letter(1)])
    (file,) = visible(tmp_path / "dead")
    file.with_name(f"_writing-{file.name}").write_bytes(file.read_bytes()[:20])
    assert list(sink.read()) == [letter(1)]


def test_lines_are_found_across_the_chunks_they_are_read_in(sink: HadoopSink) -> None:
    letters = [letter(number, data=os.urandom(CHUNK_BYTES // 3)) for number in range(8)]
    sink.write(letters)
    assert list(sink.read()) == letters


def test_a_bad_line_is_an_error_that_names_file_and_line(sink: HadoopSink, tmp_path: Path) -> None:
    (tmp_path / "dead").mkdir()
    (tmp_path / "dead" / "dead-letters-1.jsonl").write_bytes(msgspec.json.encode(letter(1)) + b"\njunk\n")
    found = iter(sink.read())
    assert next(found) == letter(1)
    with pytest.raises(
        DeadLetterError, match=r"/dead/dead-letters-1\.jsonl:2: expected a dead letter as JSON"
    ):
        next(found)


def test_an_incomplete_line_is_an_error_for_a_rename_never_leaves_one(
    sink: HadoopSink, tmp_path: Path
) -> None:
    (tmp_path / "dead").mkdir()
    (tmp_path / "dead" / "dead-letters-1.jsonl").write_bytes(msgspec.json.encode(letter(1)))
    with pytest.raises(DeadLetterError, match=r"dead-letters-1\.jsonl:1: expected a complete line"):
        list(sink.read())


def test_a_java_error_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    blocked = HadoopSink((tmp_path / "file" / "dead").as_uri())
    with pytest.raises(
        DeadLetterError, match=r"expected to write to 'file:.*through Hadoop, got \S+Exception"
    ) as caught:
        blocked.write([letter(1)])
    assert "\n" not in str(caught.value)
    blocked.close()


def test_a_url_that_no_file_system_answers_to_is_an_error() -> None:
    with pytest.raises(
        DeadLetterError, match=r"expected to open 'nosuch://x/y' through Hadoop, got .*nosuch"
    ):
        open_sink("nosuch://x/y")


def test_closing_one_sink_leaves_another_of_the_same_place_open(sink: HadoopSink, tmp_path: Path) -> None:
    other = HadoopSink((tmp_path / "dead").as_uri())
    other.write([letter(1)])
    other.close()
    assert list(sink.read()) == [letter(1)]


WRITE_AND_WAIT_TO_BE_KILLED = """
import sys
import msgspec
from kinesis_spout.dead_letters.hadoop import HadoopSink
from kinesis_spout.model.dead_letter import DeadLetter

sink = HadoopSink(sys.argv[1])
sink.write([msgspec.json.decode(sys.stdin.readline(), type=DeadLetter)])
print("written", flush=True)
sys.stdin.read()
"""


def test_letters_survive_a_kill_right_after_the_write_returned(sink: HadoopSink, tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WRITE_AND_WAIT_TO_BE_KILLED, (tmp_path / "dead").as_uri()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(msgspec.json.encode(letter(1)) + b"\n")
        child.stdin.flush()
        assert child.stdout.readline() == b"written\n"
        child.kill()
    assert child.returncode == -signal.SIGKILL
    assert list(sink.read()) == [letter(1)]


WRITE_THROUGH_A_MOUNT = """
import sys
import msgspec
from pyspark import SparkConf, SparkContext
from kinesis_spout.dead_letters.hadoop import HadoopSink
from kinesis_spout.model.dead_letter import DeadLetter

conf = SparkConf().setMaster("local[1]").setAppName("sink").set("spark.ui.enabled", "false")
conf.set("spark.hadoop.fs.viewfs.mounttable.table.link./letters", sys.argv[1])
context = SparkContext(conf=conf)
sink = HadoopSink("viewfs://table/letters")
sink.write([msgspec.json.decode(sys.stdin.readline(), type=DeadLetter)])
sink.close()
context.stop()
"""


def test_the_hadoop_settings_of_the_running_spark_are_used(sink: HadoopSink, tmp_path: Path) -> None:
    (tmp_path / "dead").mkdir()
    child = subprocess.run(
        [sys.executable, "-c", WRITE_THROUGH_A_MOUNT, (tmp_path / "dead").as_uri()],
        input=msgspec.json.encode(letter(1)) + b"\n",
        capture_output=True,
        check=False,
    )
    assert child.returncode == 0, child.stderr.decode()
    assert list(sink.read()) == [letter(1)]
