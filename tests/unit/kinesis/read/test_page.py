import base64
import json
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from kinesis_spout.kinesis.read.arrow import ArrowForm
from kinesis_spout.kinesis.read.page import decode_reply, page_of
from kinesis_spout.model.columns import SCHEMA
from kinesis_spout.model.errors import Unavailable
from shard_state import Shard

pytestmark = pytest.mark.usefixtures("each_decoder")

NUMBER = "49680427482694328467366729337512435546436086034247712770"


def _decoded(body: bytes) -> pa.RecordBatch:
    return ArrowForm(stream="s", shard_id="x").decode(body).batch


def _wire(data: bytes = b"payload", **others: Any) -> dict[str, Any]:
    return {
        "SequenceNumber": NUMBER,
        "ApproximateArrivalTimestamp": 1.795260005277e9,
        "Data": base64.b64encode(data).decode(),
        "PartitionKey": "key",
        "EncryptionType": "NONE",
        **others,
    }


def _body(*records: dict[str, Any], **others: Any) -> bytes:
    reply = {"Records": list(records), "NextShardIterator": "next", "MillisBehindLatest": 16, **others}
    return json.dumps(reply).encode()


def test_a_record_has_all_that_was_sent_and_where_it_is_from() -> None:
    page = page_of(decode_reply(_body(_wire(b"\x00\xff")), stream="s", shard_id="shard-1"))

    record = page.records[0]
    assert (record.data, record.sequence_number, record.partition_key) == (b"\x00\xff", NUMBER, "key")
    assert (record.arrival_timestamp, record.encryption_type) == (1795260005.277, "NONE")
    assert (record.stream, record.shard_id, record.attempt) == ("s", "shard-1", 1)
    assert (page.size_bytes, page.millis_behind_latest, page.at_end) == (5, 16, False)


def test_a_record_may_have_no_partition_key() -> None:
    wire = _wire()
    del wire["PartitionKey"]

    assert decode_reply(_body(wire)).records[0].partition_key is None
    assert _decoded(_body(wire)).column("partitionKey").to_pylist() == [None]


def test_unknown_members_are_passed_over() -> None:
    assert len(decode_reply(_body(_wire(New="x"), Newer={"y": 1})).records) == 1


def test_an_empty_page_with_a_large_lag_is_not_the_end() -> None:
    page = page_of(decode_reply(_body(MillisBehindLatest=86_400_000)))

    assert (list(page.records), page.millis_behind_latest, page.at_end) == ([], 86_400_000, False)


def test_the_last_page_of_a_closed_shard_keeps_its_records_and_names_the_children() -> None:
    child = {
        "ShardId": "shard-2",
        "ParentShards": ["shard-0", "shard-1"],
        "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": "9"},
    }

    reply = decode_reply(_body(_wire(), NextShardIterator=None, ChildShards=[child]))
    page = page_of(reply)

    assert (len(page.records), page.at_end) == (1, True)
    assert page.child_shards == (
        Shard(shard_id="shard-2", parents=("shard-0", "shard-1"), hash_range=(0, 9)),
    )


def test_children_may_be_null() -> None:
    assert decode_reply(_body(ChildShards=None)).child_shards == ()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"<html>busy</html>",
        _body(_wire())[:-30],
        b'{"Records":null}',
        _body(_wire()).replace(b"key", b"ke\xff"),
        _body(_wire(), _wire()),
        _body(_wire(SequenceNumber="10"), _wire(SequenceNumber="9")),
        *(_body(_wire(SequenceNumber=number)) for number in ("abc", "", "-1", "\u0663", "9" * 129)),
        *(_body(_wire(ApproximateArrivalTimestamp=at)) for at in (-1, 1e300, 253_402_300_800)),
        _body(
            ChildShards=[
                {
                    "ShardId": "s",
                    "ParentShards": [],
                    "HashKeyRange": {"StartingHashKey": "x", "EndingHashKey": "1"},
                }
            ]
        ),
        _body(MillisBehindLatest=10**13),
        _body(New=0).replace(b"0", b"[" * 100_000 + b"]" * 100_000),
        _body(NextShardIterator="\ud800"),
    ],
)
def test_a_body_that_is_no_reply_is_never_the_end_of_a_shard(body: bytes) -> None:
    for decode in (decode_reply, ArrowForm(stream="s", shard_id="x").decode):
        with pytest.raises(Unavailable, match="GetRecords"):
            decode(body)


def test_columns_have_the_schemas_names_and_types() -> None:
    batch = _decoded(_body(_wire(b"one", SequenceNumber="1"), _wire(b"two")))

    assert batch.schema.equals(SCHEMA)
    assert batch.to_pylist()[1] == {
        "partitionKey": "key",
        "data": b"two",
        "stream": "s",
        "shardId": "x",
        "sequenceNumber": NUMBER,
        "approximateArrivalTimestamp": datetime.fromtimestamp(1795260005, UTC).replace(microsecond=277_000),
    }


def test_columns_of_an_empty_page_are_empty() -> None:
    page = ArrowForm(stream="s", shard_id="x").decode(_body())

    assert page.batch.equals(pa.RecordBatch.from_pylist([], schema=SCHEMA))
    assert (page.size_bytes, page.at_end) == (0, False)


def test_a_record_without_an_arrival_has_none() -> None:
    batch = _decoded(_body(_wire(ApproximateArrivalTimestamp=None)))

    assert batch.column("approximateArrivalTimestamp").to_pylist() == [None]
