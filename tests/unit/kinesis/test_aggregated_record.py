"""The KPL's format, byte for byte, and what only looks like it."""

from hashlib import md5

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesis_spout.kinesis.aggregated_record import (
    FRAME_BYTES,
    KEY_BYTES,
    MAGIC,
    RECORD_BYTES,
    UserRecord,
    aggregate,
    contents,
    tags_of,
    take_apart,
)
from kinesis_spout.model.record import TraceContext

MADE_BY_AWS = bytes.fromhex(
    "f3899ac2"
    "0a016b 0a026b32 1203313233"  # the keys k and k2, the hash key 123
    "1a050800 1a0164"  # the first key, "d"
    "1a0808011000 1a026432"  # the second key, the first hash key, "d2"
    "9e4b7aabb0911e95162d8d667804211f"
)
"""Two records, as AWS' own Python package aws_kinesis_agg 1.2.3 aggregates them."""

RECORDS = (UserRecord("k", b"d"), UserRecord("k2", b"d2", "123"))

keys = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=256)
hash_keys = st.none() | st.integers(0, 2**128 - 1).map(str)
user_records = st.builds(UserRecord, keys, st.binary(max_size=300), hash_keys, st.none())


PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def traced(record: UserRecord) -> UserRecord:
    return record._replace(trace=TraceContext(PARENT, "vendor=1"))


def framed(message: bytes) -> bytes:
    return MAGIC + message + md5(message).digest()


def test_the_bytes_are_those_that_aws_makes() -> None:
    assert aggregate(RECORDS) == MADE_BY_AWS


def test_what_aws_makes_is_taken_apart() -> None:
    assert take_apart(MADE_BY_AWS) == RECORDS


@given(st.lists(user_records, max_size=20))
def test_what_is_aggregated_comes_back_in_its_order(records: list[UserRecord]) -> None:
    assert take_apart(aggregate(records)) == tuple(records)


@given(st.lists(st.one_of(user_records, user_records.map(traced)), max_size=20))
def test_it_weighs_no_more_than_it_says(records: list[UserRecord]) -> None:
    texts = [*{record.partition_key for record in records}, *{record.explicit_hash_key for record in records}]
    most = FRAME_BYTES + sum(RECORD_BYTES + len(record.data) for record in records)
    most += sum(len(tags_of(record.trace)) for record in records if record.trace is not None)
    most += sum(KEY_BYTES + len(text.encode()) for text in texts if text is not None)
    assert len(aggregate(records)) <= most


def test_a_large_record_weighs_no_more_than_it_says_either() -> None:
    key = "\N{GRINNING FACE}" * 256
    size = len(aggregate([UserRecord(key, bytes(1024 * 1024), "9" * 38)]))
    assert size <= FRAME_BYTES + RECORD_BYTES + 1024 * 1024 + 2 * KEY_BYTES + 1024 + 38


def test_trace_context_comes_back_on_request_alone() -> None:
    data = aggregate([RECORDS[0], traced(RECORDS[1])])
    found = contents(data, with_traces=True)
    assert found is not None
    assert found.traces == [None, TraceContext(PARENT, "vendor=1")]
    assert contents(data) == found._replace(traces=None)
    assert take_apart(data) == RECORDS


@pytest.mark.parametrize(
    "parent",
    [
        PARENT[:-1] + "0",
        PARENT.upper(),
        PARENT[:-2] + "xx",
        "ff" + PARENT[2:],
        f"00-{'0' * 32}-b7ad6b7169203331-01",
        f"00-0af7651916cd43dd8448eb211c80319c-{'0' * 16}-01",
        PARENT + "-more",
        "",
    ],
    ids=[
        "not sampled",
        "in capitals",
        "no flags",
        "version ff",
        "no trace",
        "no span",
        "longer",
        "empty",
    ],
)
def test_trace_context_that_is_invalid_or_not_sampled_is_none(parent: str) -> None:
    found = contents(aggregate([RECORDS[0]._replace(trace=TraceContext(parent))]), with_traces=True)
    assert found is not None
    assert found.traces is None
    assert found.data == [b"d"]


def test_a_tracestate_of_more_than_512_characters_is_left_out() -> None:
    records = [RECORDS[0]._replace(trace=TraceContext(PARENT, f"vendor={'x' * 600}"))]
    found = contents(aggregate(records), with_traces=True)
    assert found is not None
    assert found.traces == [TraceContext(PARENT)]


def test_tags_are_passed_over() -> None:
    message = bytes.fromhex("0a016b 1a0a 0800 1a0164 22030a0174")
    assert take_apart(framed(message)) == (UserRecord("k", b"d"),)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"an ordinary record",
        MAGIC,
        MAGIC + b"fifteen bytes..",
        MADE_BY_AWS[:-1] + b"\x00",
        MADE_BY_AWS[:10] + b"?" + MADE_BY_AWS[11:],
        framed(b"\xff no message"),
        framed(bytes.fromhex("0a016b 1a03 1a0164")),  # a record without a key
        framed(bytes.fromhex("0a016b 1a05 0801 1a0164")),  # the second of one key
        framed(bytes.fromhex("0a016b 1a07 0800 1000 1a0164")),  # the first of no hash keys
    ],
    ids=[
        "nothing",
        "text",
        "magic alone",
        "too short",
        "another digest",
        "another message",
        "no message",
        "no key",
        "no such key",
        "no such hash key",
    ],
)
def test_what_only_looks_like_one_is_an_ordinary_record(data: bytes) -> None:
    assert take_apart(data) is None
