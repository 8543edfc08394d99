"""Aggregated records against other implementations: AWS' own module, and bytes that are kept in a file."""

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesis_spout.kinesis.aggregated_record import UserRecord, aggregate, contents, take_apart
from kinesis_spout.model.record import TraceContext
from tests.support.kinesis.aws_aggregation import aws

VECTORS = json.loads((Path(__file__).parents[2] / "golden" / "aggregated_records.json").read_text())

keys = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
hash_keys = st.none() | st.integers(0, 2**128 - 1).map(str)
traces = st.none() | st.builds(
    lambda trace, span, state: TraceContext(f"00-{trace:032x}-{span:016x}-01", state),
    st.integers(1, 2**128 - 1),
    st.integers(1, 2**64 - 1),
    st.sampled_from(["", "vendor=1", "a=1,b=2"]),
)
user_records = st.lists(
    st.builds(UserRecord, keys, st.binary(max_size=50), hash_keys, st.none()), min_size=1, max_size=20
)
traced_records = st.lists(
    st.builds(UserRecord, keys, st.binary(max_size=50), hash_keys, traces), min_size=1, max_size=20
)


@pytest.mark.parametrize("vector", [pytest.param(each, id=each["name"]) for each in VECTORS])
def test_bytes_of_other_implementations_are_read_as_they_were_meant(vector: dict[str, Any]) -> None:
    expected = vector["user_records"]
    if expected is not None:
        expected = tuple(UserRecord(key, bytes.fromhex(data), hash_key) for key, hash_key, data in expected)

    assert take_apart(bytes.fromhex(vector["bytes"])) == expected


@given(user_records)
def test_what_aws_aggregates_is_taken_apart(records: list[UserRecord]) -> None:
    aggregator = aws("aggregator").RecordAggregator()
    for record in records:
        assert aggregator.add_user_record(record.partition_key, record.data, record.explicit_hash_key) is None
    _, _, data = aggregator.clear_and_get().get_contents()

    assert take_apart(data) == tuple(records)


@given(traced_records)
def test_what_is_aggregated_here_aws_takes_apart(records: list[UserRecord]) -> None:
    carrier = {
        "kinesisSchemaVersion": "1.0",
        "sequenceNumber": "7",
        "approximateArrivalTimestamp": 1.0,
        "data": base64.b64encode(aggregate(records)),
    }

    found = [each["kinesis"] for each in aws("deaggregator").deaggregate_records([{"kinesis": carrier}])]

    assert [each["subSequenceNumber"] for each in found] == list(range(len(records)))
    for each, record in zip(found, records, strict=True):
        assert (each["partitionKey"], base64.b64decode(each["data"])) == (record.partition_key, record.data)
        # AWS' module gives a record that has no hash key the first one of the table.
        assert record.explicit_hash_key in (None, each["explicitHashKey"])


@given(traced_records)
def test_trace_context_is_in_tags_as_awss_message_has_them(records: list[UserRecord]) -> None:
    message = aws("messages_pb2").AggregatedRecord()
    message.ParseFromString(aggregate(records)[4:-16])

    assert [{tag.key: tag.value for tag in each.tags} for each in message.records] == [
        {}
        if record.trace is None
        else {name: value for name, value in record.trace._asdict().items() if value}
        for record in records
    ]


@given(traced_records)
def test_tags_that_awss_message_writes_are_read_as_trace_context(records: list[UserRecord]) -> None:
    message = aws("messages_pb2").AggregatedRecord()
    message.partition_key_table.append("key")
    for record in records:
        user = message.records.add(partition_key_index=0, data=record.data)
        user.tags.add(key="of another", value="tool")
        for name, value in ({} if record.trace is None else record.trace._asdict()).items():
            user.tags.add(key=name, value=value)
    body = message.SerializeToString()
    data = b"\xf3\x89\x9a\xc2" + body + hashlib.md5(body).digest()

    found = contents(data, with_traces=True)
    assert found is not None
    assert (found.traces or [None] * len(records)) == [record.trace for record in records]
    assert take_apart(data) == tuple(UserRecord("key", record.data) for record in records)
