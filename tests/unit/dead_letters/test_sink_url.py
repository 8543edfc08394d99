"""A URL says which sink is meant."""

from pathlib import Path

import boto3
import pytest

from kinesis_spout.dead_letters.json_lines import JsonLinesSink
from kinesis_spout.dead_letters.kinesis_stream import KinesisStreamSink
from kinesis_spout.dead_letters.sink_url import open_sink
from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.ports import DeadLetterSink
from tests.support.consumer.letters import letter


def written_below(sink: DeadLetterSink, directory: Path) -> int:
    sink.write([letter()])
    sink.close()
    return len(list(directory.glob("dead-letters-*.jsonl")))


def test_a_file_url_is_a_local_directory(tmp_path: Path) -> None:
    directory = tmp_path / "with a blank"
    assert written_below(open_sink(directory.as_uri()), directory) == 1


def test_a_path_is_a_local_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert written_below(open_sink(str(tmp_path / "100%20")), tmp_path / "100%20") == 1
    monkeypatch.chdir(tmp_path)
    assert written_below(open_sink(".kinesis-spout/x"), tmp_path / ".kinesis-spout" / "x") == 1


def test_a_file_url_with_a_host_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="expected file:///directory, got 'file://var/dead'"):
        open_sink("file://var/dead")


def test_a_kinesis_url_is_a_stream_reached_with_the_client_given() -> None:
    client = boto3.client(
        "kinesis", region_name="eu-west-1", aws_access_key_id="k", aws_secret_access_key="s"
    )
    assert isinstance(open_sink("kinesis://dead", client=client), KinesisStreamSink)
    client.close()
    with pytest.raises(InvalidConfig, match="expected a Kinesis client to open 'kinesis://dead'"):
        open_sink("kinesis://dead")


def test_a_local_sink_is_opened_without_touching_the_disk(tmp_path: Path) -> None:
    assert isinstance(open_sink(str(tmp_path / "dead")), JsonLinesSink)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("url", ["abfs://c@a.dfs/dead", "https://host/dead", "hdfs://", "nosuch://x/y"])
def test_a_url_of_nothing_that_takes_letters_is_refused(url: str) -> None:
    with pytest.raises(InvalidConfig, match="dead_letters: expected a directory, file:///directory, s3://"):
        open_sink(url)
