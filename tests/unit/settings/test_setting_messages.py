"""A message speaks of settings as the door it is met through does."""

import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from kinesis_spout import KinesisSpout
from kinesis_spout.cli.output import as_argument
from kinesis_spout.dead_letters.sink_url import open_sink
from kinesis_spout.kinesis import PollingShardGetter
from kinesis_spout.kinesis.calls import translate
from kinesis_spout.model.errors import DataLoss, InvalidConfig
from kinesis_spout.settings.setting_messages import respell, respelled
from kinesis_spout.settings.source_options import WriteOptions
from kinesis_spout.settings.table.spelling import as_option
from kinesis_spout.structured.stream.stream_reader import KinesisStreamReader
from kinesis_spout.structured.write.row_putter import write_partition
from kinesis_spout.testing import InMemoryShardLister, InMemoryStream, ManualClock
from shard_state import Position
from tests.support.kinesis.in_memory_client import InMemoryKinesisClient
from tests.unit.cli.fake_world import SETTINGS, FakeWorld
from tests.unit.structured.spark_in_memory import SparkInMemory, options

FIRST = "shardId-000000000000"


def loss_at_spout() -> DataLoss:
    """What a spout meets at a place that retention took."""
    stream = InMemoryStream()
    gone = stream.put(b"gone", "key")
    kept = stream.put(b"kept", "key")
    stream.trim(FIRST, kept.sequence)
    getter = PollingShardGetter(
        InMemoryKinesisClient(stream),  # type: ignore[arg-type]
        stream=stream.name,
        shard_id=FIRST,
        position=Position.at(gone.sequence),
        lister=InMemoryShardLister(stream),
    )
    with pytest.raises(DataLoss) as caught:
        getter.read(1)
    return caught.value


@pytest.fixture
def query_behind_retention() -> Iterator[SparkInMemory]:
    stream = InMemoryStream(clock=ManualClock())  # years behind: no time proves that nothing is missing
    stream.put(b"done", "key")
    spark = SparkInMemory(options(stream))
    spark.until_rows(1)
    spark.stop()
    stream.put(b"lost", "key")
    kept = stream.put(b"kept", "key")
    stream.put(b"kept too", "key")
    stream.trim(FIRST, kept.sequence)
    spark.start()
    yield spark
    spark.stop()


UNFIT = f"{'hu'}sh\n"
"""So that a line of this file in a traceback does not show it."""


@pytest.mark.parametrize(
    "make",
    [
        lambda: KinesisSpout(stream="a b", app="a"),
        lambda: KinesisSpout(stream="orders", app="a", until="never"),
        lambda: KinesisSpout(stream="s", app="a", aws_access_key_id="k", aws_secret_access_key=UNFIT),
        lambda: WriteOptions.of({"streamName": "s", "awsSecretKey": UNFIT}),
    ],
)
def test_a_refused_setting_prints_one_error_and_no_secret(make: Callable[[], object]) -> None:
    with pytest.raises(InvalidConfig) as caught:
        make()
    text = "".join(traceback.format_exception(caught.value))
    assert text.count("Traceback") == 1
    assert text.count("expected") == 1
    assert "hush" not in text


def test_a_spout_speaks_of_its_keyword_arguments() -> None:
    assert "`fail_on_data_loss=False`" in str(loss_at_spout())


def test_a_streaming_read_speaks_of_its_options(query_behind_retention: SparkInMemory) -> None:
    with pytest.raises(DataLoss, match=r"`failOnDataLoss=false`") as caught:
        query_behind_retention.until_rows(2)
    assert "fail_on_data_loss" not in str(caught.value)


def test_a_task_of_a_streaming_read_speaks_of_its_options() -> None:
    stream = InMemoryStream()
    for number in range(10):
        stream.put(str(number).encode(), "key")
    spark = SparkInMemory(options(stream))
    batch = spark.next_batch(fail=True)
    stream.trim(FIRST, stream.records(FIRST)[4].sequence)
    with pytest.raises(DataLoss) as caught:
        list(KinesisStreamReader(spark.options).read(batch.partitions[0]))
    spark.stop()
    assert "failOnDataLoss" in str(caught.value)
    assert "fail_on_data_loss" not in str(caught.value)


def test_a_write_speaks_of_its_options() -> None:
    given = {"streamName": "orders", "region": "eu-west-1", "deadLetters": "s3:///no-bucket"}
    with pytest.raises(InvalidConfig, match=r"^deadLetters: expected s3://bucket/prefix"):
        write_partition(WriteOptions.of(given), [], 0)


def test_the_command_line_speaks_of_its_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    world = FakeWorld()
    world.problem = loss_at_spout()
    _, err = world.call("run", "json:loads", *SETTINGS, exit_code=3)
    assert "`--set fail_on_data_loss=false`" in err
    _, err = world.call("shards", "--stream", "no stream!", "--app", "billing", exit_code=2)
    assert err.startswith("error: --stream: expected a stream name")
    _, err = world.call("shards", *SETTINGS, "--set", "max_pending=0", exit_code=2)
    assert err.startswith("error: --set max_pending: expected int >= 1, got")
    _, err = world.call("shards", *SETTINGS, "--set", "concurrency=2", "--set", "order=shard", exit_code=2)
    assert err.startswith("error: --set concurrency: expected 1 with order shard")
    monkeypatch.setenv("KINESIS_SPOUT_ROLE_SESSION_NAME", "billing")
    _, err = world.call("shards", *SETTINGS, exit_code=2)
    assert err.startswith("error: role_session_name (from KINESIS_SPOUT_ROLE_SESSION_NAME): expected none")


def test_the_sink_of_a_spout_speaks_of_its_setting() -> None:
    with pytest.raises(InvalidConfig, match=r"^dead_letters: expected s3://bucket/prefix"):
        open_sink("s3:///no-bucket")


def test_only_marked_settings_are_respelled() -> None:
    spell = {"retry_limit": "retryLimit"}
    kept = "wrote /data/retry_limit/a of 'retry_limit=3', and `another_thing=1` and `kinesis-spout options`"
    assert respelled(kept, lambda name, _value: spell.get(name)) == kept
    marked = "`retry_limit=3` and `retry_limit`"
    assert respelled(marked, lambda name, value: name if value is None else f"{name}:{value}") == (
        "`retry_limit:3` and `retry_limit`"
    )


def test_a_refusal_about_one_shard_is_respelled_too() -> None:
    refused = "until: shardId-1: expected a word or an object, got 7"
    assert respelled(refused, as_argument) == f"--{refused}"


def test_an_error_that_is_respelled_stays_what_it_was() -> None:
    cause = ValueError("why")
    error = DataLoss("set `retry_limit=3`")
    error.__cause__ = cause
    respell(error, lambda _name, value: f"retryLimit={value}")
    assert (str(error), error.__cause__) == ("set `retryLimit=3`", cause)


@pytest.mark.parametrize("tries", [0, 4])
def test_a_message_says_nothing_of_tries_that_botocore_was_not_to_make(tries: int) -> None:
    error = ClientError(
        {
            "Error": {"Code": "LimitExceededException", "Message": "Rate exceeded"},
            "ResponseMetadata": {"MaxAttemptsReached": True, "RetryAttempts": tries},  # type: ignore[typeddict-item]
        },
        "ListShards",
    )
    assert "reached max retries" in str(error)
    assert str(translate(error, "ListShards of stream 'orders'")) == (
        "ListShards of stream 'orders' failed: An error occurred (LimitExceededException) when calling the "
        "ListShards operation: Rate exceeded"
    )


@pytest.mark.parametrize(
    ("setting", "option"),
    [
        ("stream", "streamName"),
        ("app", None),
        ("initial_position", "initialPosition"),
        ("aws_secret_access_key", "awsSecretKey"),
        ("aws_session_token", "sessionToken"),
        ("fail_on_data_loss", "failOnDataLoss"),
        ("retry_limit", None),
        ("no_setting", None),
    ],
)
def test_an_option_is_spelled_as_the_table_says(setting: str, option: str | None) -> None:
    assert as_option(setting, None) == option
