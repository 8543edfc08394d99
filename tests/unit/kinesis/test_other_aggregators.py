"""Aggregated records against other implementations: AWS' own module, and bytes that are kept in a file."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesis_spout.kinesis.aggregated_record import UserRecord, aggregate, take_apart
from tests.support.kinesis.aws_aggregation import aws

VECTORS = json.loads((Path(__file__).parents[2] / "golden" / "aggregated_records.json").read_text())

keys = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
hash_keys = st.none() | st.integers(0, 2**128 - 1).map(str)
user_records = st.lists(
    st.builds(UserRecord, keys, st.binary(max_size=50), hash_keys), min_size=1, max_size=20
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


@given(user_records)
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
