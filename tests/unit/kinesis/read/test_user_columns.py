"""The columns of a page with aggregated records are those that its records have, taken apart one by one."""

from hashlib import md5
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesis_spout.kinesis.aggregated_record import MAGIC, UserRecord, aggregate, tags_of
from kinesis_spout.kinesis.read.record_columns import (
    NOTHING,
    AggregateCounts,
    RecordColumns,
    columns_of,
    with_user_rows,
)
from kinesis_spout.kinesis.read.user_records import HashKeys, taken_apart
from kinesis_spout.model.record import Record, TraceContext

MIDDLE = HashKeys((1 << 126).to_bytes(16), (3 << 126).to_bytes(16))

keys = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
hash_keys = st.none() | st.integers(0, 2**128 - 1).map(str) | st.sampled_from(["", "-1", "one", "9" * 39])
traces = st.none() | st.builds(
    TraceContext,
    st.text("0123456789abcdef-\x00é", min_size=54, max_size=56),
    st.sampled_from(["", "", "vendor=1"]),
)
user_records = st.builds(UserRecord, keys, st.binary(max_size=300), hash_keys, traces)
TRACE_TAG = tags_of(TraceContext(f"00-{1:032x}-{1:016x}-01"))


def framed(message: bytes) -> bytes:
    return MAGIC + message + md5(message).digest()


def varint(number: int) -> bytes:
    return bytes([number]) if number < 128 else bytes([number & 127 | 128, number >> 7])


@st.composite
def odd_aggregates(draw: st.DrawFn) -> bytes:
    """Make messages that producers do not write, good ones among them."""
    table = b"\x0a\x01k\x0a\x02k2\x12\x03123"
    parts = st.sampled_from(
        [
            b"\x08\x00",
            b"\x08\x01",
            b"\x08\x02",  # no such key
            b"\x08\x81\x00",  # 1, in two bytes
            b"\x08" + b"\x80" * 6 + b"\x00",
            b"\x08",
            b"\x10\x00",
            b"\x10\x01",  # no such hash key
            b"\x10" + b"\xff" * 9 + b"\x01",
            b"\x1a\x00",
            b"\x1a\x03abc",
            b"\x1a\x05abc",
            b"\x1a\x83\x00abc",
            b"\x22\x03\x0a\x01t",  # a tag
            b"\x22\x00",  # a tag without its key
            TRACE_TAG,
            TRACE_TAG[:-1] + b"\xff",  # not UTF-8
            TRACE_TAG[:-1],
            TRACE_TAG.replace(b"trace", b"grand"),
            b"\x28\x01",  # what nobody knows
        ]
    )
    records = draw(st.lists(st.lists(parts, max_size=5).map(b"".join), max_size=4))
    tables = draw(st.sampled_from([table, table, b"\x0a\x01\xff" + table, table + b"\x12\x01\xff"]))
    message = tables + b"".join(b"\x1a" + varint(len(record)) + record for record in records)
    return framed(message)


def damaged(data: bytes) -> st.SearchStrategy[bytes]:
    places = st.integers(4, len(data) - 1)
    return places.map(lambda at: data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])


aggregates = st.lists(user_records, max_size=20).map(aggregate)
data = st.one_of(
    st.binary(max_size=20),
    st.binary(max_size=20).map(lambda rest: MAGIC + rest),
    aggregates,
    aggregates.flatmap(damaged),
    odd_aggregates(),
)


def page(contents: list[bytes]) -> list[Record]:
    return [
        Record(
            data=each,
            sequence_number=str(7 + 2 * number),
            partition_key=f"carrier-{number}",
            arrival_timestamp=1_795_260_005.25 + number,
            encryption_type="KMS" if number % 2 else None,
        )
        for number, each in enumerate(contents)
    ]


def listed(columns: RecordColumns) -> list[list[Any]]:
    rows = len(columns.data)
    listed = []
    for column in (
        columns.data,
        columns.partition_key,
        columns.sequence_number,
        columns.arrival,
        columns.encryption_type,
        columns.sub_sequence_number,
        columns.explicit_hash_key,
    ):
        if column is not None:
            column.validate(full=True)
            assert len(column) == rows
        listed.append([None] * rows if column is None else column.to_pylist())
    return listed


@given(contents=st.lists(data, max_size=12))
def test_columns_are_those_of_the_records_taken_apart(contents: list[bytes]) -> None:
    apart = taken_apart(page(contents), MIDDLE)
    expected = listed(columns_of(apart.records, encryption_type=True))
    expected[5] = [record.sub_sequence_number for record in apart.records]
    expected[6] = [record.explicit_hash_key for record in apart.records]

    columns, counts = with_user_rows(columns_of(page(contents), encryption_type=True), MIDDLE)

    assert listed(columns) == expected
    assert counts.damaged == apart.damaged_aggregates
    assert counts.outside == apart.records_outside_shard
    assert counts.user_records == sum(record.sub_sequence_number is not None for record in apart.records)


def test_a_page_without_aggregates_is_given_back_as_it_is() -> None:
    columns = columns_of(page([b"", b"plain", MAGIC[:3], b""]))

    assert with_user_rows(columns) == (columns, NOTHING)


def test_a_page_of_nothing_but_empty_records_has_no_aggregate() -> None:
    columns = columns_of(page([b"", b""]))

    assert with_user_rows(columns) == (columns, NOTHING)


def test_what_is_empty_behind_an_aggregate_stays_where_it_is() -> None:
    columns, counts = with_user_rows(columns_of(page([aggregate([UserRecord("k", b"d")]), b""])))

    assert columns.data.to_pylist() == [b"d", b""]
    assert counts == AggregateCounts(aggregates=1, user_records=1)


def test_an_aggregate_of_nothing_is_no_row() -> None:
    columns, counts = with_user_rows(columns_of(page([b"before", aggregate([]), b"behind"])))

    assert columns.data.to_pylist() == [b"before", b"behind"]
    assert counts == AggregateCounts(aggregates=1)


@pytest.mark.parametrize("size", [127, 128, 16_383, 16_384, 2_097_152])
def test_lengths_of_any_number_of_bytes_are_read(size: int) -> None:
    inside = [UserRecord("k", bytes(size)), UserRecord("k2", b"")]

    columns, _ = with_user_rows(columns_of(page([aggregate(inside)])))

    assert columns.data.to_pylist() == [bytes(size), b""]


@pytest.mark.parametrize(
    "behind", [b"\x22\x03\x0a\x01t", b"\x28\x01", b"\x1a\x01z"], ids=["tag", "unknown", "data"]
)
def test_a_field_behind_the_data_is_no_part_of_the_data(behind: bytes) -> None:
    record = b"\x08\x00\x1a\x03abc" + behind
    carrier = framed(b"\x0a\x01k\x1a" + bytes([len(record)]) + record)
    (expected,) = taken_apart(page([carrier])).records

    columns, counts = with_user_rows(columns_of(page([carrier])))

    assert columns.data.to_pylist() == [expected.data]
    assert columns.partition_key.to_pylist() == ["k"]
    assert counts.damaged == 0


def test_keys_are_those_of_their_own_carrier() -> None:
    first = [UserRecord(f"a{number}", b"", str(number)) for number in range(200)]
    second = [UserRecord(f"b{number}", b"", None if number % 2 else "7") for number in range(200)]

    columns, _ = with_user_rows(columns_of(page([aggregate(first), b"plain", aggregate(second)])))

    assert columns.partition_key.to_pylist() == [
        *[each.partition_key for each in first],
        "carrier-1",
        *[each.partition_key for each in second],
    ]
    assert columns.explicit_hash_key is not None
    assert columns.explicit_hash_key.to_pylist() == [
        *[each.explicit_hash_key for each in first],
        None,
        *[each.explicit_hash_key for each in second],
    ]
