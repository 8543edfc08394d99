"""A stream takes every letter whole, however the service answers, or the write says that it did not.

The tests of `RecordPutter` have how refused records are put again, and for how long.
"""

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, cast

import pytest
from botocore.exceptions import ClientError, NoCredentialsError

from kinesis_spout.dead_letters.kinesis_stream import KinesisStreamSink
from kinesis_spout.kinesis.calls import RAW_BODY
from kinesis_spout.kinesis.retry_policy import CallRetryPolicy
from kinesis_spout.model.errors import DeadLetterError
from kinesis_spout.testing import ManualClock
from tests.support.consumer.letters import letter
from tests.support.consumer.s3_server import kinesis_with_streams

if TYPE_CHECKING:
    from mypy_boto3_kinesis import KinesisClient


class Flaky:
    """A client that answers some calls in its own way, and passes on the others."""

    def __init__(self, client: "KinesisClient", operation: str, *answers: Callable[..., Any]) -> None:
        self._client = client
        self._operation = operation
        self.answers = list(answers)
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._client, name)
        if name != self._operation:
            return real

        def answered(**arguments: Any) -> Any:
            self.calls += 1
            return self.answers.pop(0)(real, **arguments) if self.answers else real(**arguments)

        return answered


def raising(error: Exception) -> Callable[..., Any]:
    def answer(_real: Callable[..., Any], **_arguments: Any) -> Any:
        raise error

    return answer


def api_error(code: str, status: int = 400) -> ClientError:
    return ClientError(
        {
            "Error": {"Code": code, "Message": "no"},
            "ResponseMetadata": cast("Any", {"HTTPStatusCode": status}),
        },
        "AnOperation",
    )


def refusing_every_second(real: Callable[..., Any], **arguments: Any) -> Any:
    records = arguments.pop("Records")
    taken = real(Records=records[::2], **arguments)["Records"]
    refused = {"ErrorCode": "ProvisionedThroughputExceededException", "ErrorMessage": "Rate exceeded"}
    return {"Records": [taken[index // 2] if index % 2 == 0 else refused for index in range(len(records))]}


@pytest.fixture
def client() -> "Iterator[KinesisClient]":
    with kinesis_with_streams("dead") as client:
        yield client


def sink(client: Any, **options: Any) -> KinesisStreamSink:
    return KinesisStreamSink(client, "dead", retry_policy=CallRetryPolicy(clock=ManualClock(), **options))


def numbers(found: KinesisStreamSink) -> list[int]:
    return sorted(int(each.sequence_number) for each in found.read())


@pytest.mark.parametrize("error", [api_error("AccessDeniedException"), NoCredentialsError()])
def test_a_write_stops_at_once_at_what_time_does_not_change(
    client: "KinesisClient", error: Exception
) -> None:
    flaky = Flaky(client, "put_records", raising(error))
    with pytest.raises(DeadLetterError, match="PutRecords on dead failed: ") as caught:
        sink(flaky).write([letter(1)])
    assert flaky.calls == 1
    assert caught.value.__cause__ is error


def test_a_split_letter_is_whole_again_although_its_parts_came_late_and_twice(
    client: "KinesisClient",
) -> None:
    large = letter(2, data=bytes(range(256)) * 12_000)

    def twice_in_reverse(real: Callable[..., Any], **arguments: Any) -> Any:
        records = arguments.pop("Records")
        real(Records=records[::-1], **arguments)
        return refusing_every_second(real, Records=records, **arguments)

    sink(Flaky(client, "put_records", twice_in_reverse)).write([letter(1), large])
    assert set(sink(client).read()) == {letter(1), large}


def test_the_parts_of_a_write_that_failed_are_left_out(client: "KinesisClient") -> None:
    large = letter(2, data=bytes(range(256)) * 12_000)
    flaky = Flaky(client, "put_records", refusing_every_second, raising(api_error("AccessDeniedException")))
    with pytest.raises(DeadLetterError):
        sink(flaky).write([large])
    assert list(sink(client).read()) == []
    sink(client).write([large])
    assert list(sink(client).read()) == [large]


def test_reading_goes_on_in_place_when_an_iterator_expires(client: "KinesisClient") -> None:
    sink(client).write([letter(number) for number in range(5)])

    def two(real: Callable[..., Any], **arguments: Any) -> Any:
        return real(**arguments | {"Limit": 2})

    expired = raising(api_error("ExpiredIteratorException"))
    flaky = Flaky(
        client, "get_records", expired, two, expired, two, raising(api_error("InternalFailure", 500))
    )
    assert [int(found.sequence_number) for found in sink(flaky).read()] == list(range(5))
    assert not flaky.answers


def test_an_empty_page_that_is_behind_is_not_the_end(client: "KinesisClient") -> None:
    sink(client).write([letter(1)])

    def empty_but_behind(_real: Callable[..., Any], **arguments: Any) -> Any:
        page = {"Records": [], "NextShardIterator": arguments["ShardIterator"], "MillisBehindLatest": 60_000}
        return {RAW_BODY: json.dumps(page).encode()}

    assert numbers(sink(Flaky(client, "get_records", *[empty_but_behind] * 3))) == [1]


def test_a_resharded_stream_is_read_parents_first(client: "KinesisClient") -> None:
    sink(client).write([letter(1)])
    client.split_shard(
        StreamName="dead", ShardToSplit="shardId-000000000000", NewStartingHashKey=str(1 << 127)
    )
    sink(client).write([letter(number) for number in range(2, 12)])
    found = [int(each.sequence_number) for each in sink(client).read()]
    assert found[0] == 1
    assert sorted(found) == list(range(1, 12))


def test_a_stream_may_be_named_by_its_arn(client: "KinesisClient") -> None:
    arn = client.describe_stream_summary(StreamName="dead")["StreamDescriptionSummary"]["StreamARN"]
    named = KinesisStreamSink(client, arn, retry_policy=CallRetryPolicy(clock=ManualClock()))
    named.write([letter(1)])
    assert list(named.read()) == [letter(1)]


@pytest.mark.parametrize("data", [b"hello", b"hello\nworld", b'{"a": 1}'])
def test_a_record_that_is_no_letter_is_an_error_that_names_its_place(
    client: "KinesisClient", data: bytes
) -> None:
    put = client.put_record(StreamName="dead", Data=data, PartitionKey="k")
    with pytest.raises(DeadLetterError, match="expected a dead letter") as caught:
        list(sink(client).read())
    assert str(caught.value).startswith(f"dead/{put['ShardId']}:{put['SequenceNumber']}: ")


def test_a_stream_that_is_not_there_is_noticed_before_the_first_letter(client: "KinesisClient") -> None:
    sink = KinesisStreamSink(client, "no-such-stream", retry_policy=CallRetryPolicy(clock=ManualClock()))
    with pytest.raises(DeadLetterError, match="no-such-stream"):
        sink.check_writable()


def test_who_may_put_records_but_not_describe_the_stream_is_only_warned(
    client: "KinesisClient", caplog: pytest.LogCaptureFixture
) -> None:
    refusing = Flaky(client, "describe_stream_summary", raising(api_error("AccessDeniedException")))
    sink = KinesisStreamSink(
        cast("KinesisClient", refusing), "dead", retry_policy=CallRetryPolicy(clock=ManualClock())
    )
    sink.check_writable()
    assert refusing.calls == 1
    assert "could not find out whether the dead-letter stream exists" in caplog.text
