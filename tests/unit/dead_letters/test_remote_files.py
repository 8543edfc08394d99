"""Dead letters on a file system that PyArrow opens: complete files or none. A local directory stands for HDFS."""

import os
from pathlib import Path

import msgspec
import pytest

from kinesis_spout.dead_letters.remote_files import CHUNK_BYTES, RemoteFilesSink
from kinesis_spout.dead_letters.sink_url import open_sink
from kinesis_spout.model.errors import DeadLetterError
from tests.support.consumer.letters import letter


@pytest.fixture
def sink(tmp_path: Path) -> RemoteFilesSink:
    return RemoteFilesSink((tmp_path / "dead").as_uri())


def test_every_write_is_one_file_and_no_temporary_name_is_left(sink: RemoteFilesSink, tmp_path: Path) -> None:
    sink.check_writable()
    sink.write([letter(1), letter(2)])
    sink.write([letter(3)])
    names = [path.name for path in (tmp_path / "dead").iterdir()]
    assert len(names) == 2
    assert all(name.startswith("dead-letters-") and name.endswith(".jsonl") for name in names)


def test_a_write_that_a_crash_cut_short_is_not_read(sink: RemoteFilesSink, tmp_path: Path) -> None:
    sink.write([letter(1)])
    (file,) = (tmp_path / "dead").iterdir()
    file.with_name(f"_writing-{file.name}").write_bytes(file.read_bytes()[:20])
    assert list(sink.read()) == [letter(1)]


def test_lines_are_found_across_the_chunks_they_are_read_in(sink: RemoteFilesSink) -> None:
    letters = [letter(number, data=os.urandom(CHUNK_BYTES // 3)) for number in range(8)]
    sink.write(letters)
    assert list(sink.read()) == letters


@pytest.mark.parametrize(
    ("end", "problem"),
    [(b"\njunk\n", ":2: expected a dead letter as JSON"), (b"", ":1: expected a complete line")],
)
def test_a_line_that_no_sink_wrote_is_an_error_that_names_file_and_line(
    sink: RemoteFilesSink, tmp_path: Path, end: bytes, problem: str
) -> None:
    (tmp_path / "dead").mkdir()
    (tmp_path / "dead" / "dead-letters-1.jsonl").write_bytes(msgspec.json.encode(letter(1)) + end)
    with pytest.raises(DeadLetterError, match=rf"/dead/dead-letters-1\.jsonl{problem}"):
        list(sink.read())


def test_an_error_of_the_file_system_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    blocked = RemoteFilesSink((tmp_path / "file" / "dead").as_uri())
    for attempt in (blocked.check_writable, lambda: blocked.write([letter(1)])):
        with pytest.raises(DeadLetterError, match=r"expected to write to 'file:.*Not a directory") as caught:
            attempt()
        assert "\n" not in str(caught.value)


def test_hdfs_without_hadoop_is_an_error_that_says_what_is_wanted() -> None:
    sink = open_sink("hdfs://nodes/dead")
    for _ in range(2):  # PyArrow says something else the second time
        with pytest.raises(
            DeadLetterError, match=r"'hdfs://nodes/dead', got .*HADOOP_HOME, CLASSPATH"
        ) as caught:
            sink.check_writable()
        assert "\n" not in str(caught.value)
