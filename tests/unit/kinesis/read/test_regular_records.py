"""What is taken straight from the bytes of a reply is what the decoder makes of it."""

import base64
import json
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kinesis_spout.kinesis import ReadSettings
from kinesis_spout.kinesis.read import arrow
from kinesis_spout.kinesis.read.arrow import ArrowForm
from kinesis_spout.kinesis.read.page import decode_reply
from kinesis_spout.kinesis.read.record_columns import RecordColumns, columns_of
from kinesis_spout.kinesis.read.regular_records import WORTHWHILE_BYTES, regular_columns
from kinesis_spout.model.errors import Unavailable

COMPACT, SPACED = (",", ":"), (", ", ": ")
FORM = ArrowForm(
    stream="orders",
    shard_id="shard-1",
    settings=ReadSettings(extra_columns=("encryptionType", "millisBehindLatest")),
)
NUMBER = 49_680_427_482_694_328_467_366_729_337_512_435_546_436_086_034_247_712_770

plain_text = st.text(
    st.characters(min_codepoint=32, max_codepoint=126, exclude_characters='"\\'), max_size=20
)
members = st.permutations(
    ["Data", "PartitionKey", "SequenceNumber", "EncryptionType", "ApproximateArrivalTimestamp"]
).filter(lambda order: order[-1] != "ApproximateArrivalTimestamp")


def record(number: int, data: bytes, key: str = "key", **others: Any) -> dict[str, Any]:
    return {
        "ApproximateArrivalTimestamp": 1_795_260_005.277 + number / 8,
        "Data": base64.b64encode(data).decode(),
        "EncryptionType": "NONE",
        "PartitionKey": key,
        "SequenceNumber": str(NUMBER + number),
        **others,
    }


def body_of(records: list[dict[str, Any]], separators: tuple[str, str] = COMPACT, **others: Any) -> bytes:
    reply = {"MillisBehindLatest": 7, "Records": records, "NextShardIterator": "AAAA/+==", **others}
    return json.dumps(reply, separators=separators).encode()


def listed(columns: RecordColumns) -> list[list[Any]]:
    assert columns.encryption_type is not None
    return [
        column.to_pylist()
        for column in (
            columns.data,
            columns.partition_key,
            columns.sequence_number,
            columns.arrival,
            columns.encryption_type,
        )
    ]


def taken(body: bytes) -> RecordColumns:
    """Take the columns, and make sure that they and the rest are what the decoder gives."""
    found = regular_columns(body)
    assert found is not None
    columns, rest = found
    reply = decode_reply(body)
    assert listed(columns) == listed(columns_of(reply.records, encryption_type=True))
    reply.records = []
    assert decode_reply(rest) == reply
    for column in (columns.data, columns.partition_key, columns.sequence_number):
        column.validate(full=True)
    return columns


@given(
    contents=st.lists(st.tuples(st.binary(max_size=40), plain_text), min_size=1, max_size=30),
    order=members,
    separators=st.sampled_from([COMPACT, SPACED]),
    is_encryption_told=st.booleans(),
)
def test_regular_replies_give_what_the_decoder_gives(
    contents: list[tuple[bytes, str]],
    order: list[str],
    separators: tuple[str, str],
    *,
    is_encryption_told: bool,
) -> None:
    told = [member for member in order if is_encryption_told or member != "EncryptionType"]
    assume(told[-1] != "ApproximateArrivalTimestamp")
    records = [record(number, data, key) for number, (data, key) in enumerate(contents)]
    ordered = [{member: each[member] for member in told} for each in records]

    columns = taken(body_of(ordered, separators))

    assert columns.data.to_pylist() == [data for data, _ in contents]
    assert columns.size_bytes == sum(len(data) + len(key) for data, key in contents)


def test_a_reply_of_many_megabytes_is_worked_on_in_pieces() -> None:
    records = [record(number, bytes([number % 256]) * (number % 2_000)) for number in range(3_000)]

    assert len(taken(body_of(records)).data) == 3_000


def test_records_larger_than_what_is_worked_on_at_once() -> None:
    records = [record(number, bytes(1_500_000 - number)) for number in range(3)]

    assert [len(data) for data in taken(body_of(records)).data.to_pylist()] == [
        1_500_000,
        1_499_999,
        1_499_998,
    ]


@pytest.mark.parametrize("extra", range(4))
def test_large_values_with_and_without_padding_are_what_the_decoder_gives(extra: int) -> None:
    records = [record(number, bytes([number]) * (9_000 + number + extra)) for number in range(5)]

    columns = taken(body_of([record(9, b""), *records]))

    assert [len(data) for data in columns.data.to_pylist()] == [0, *(9_000 + at + extra for at in range(5))]


@pytest.mark.parametrize("end", ["AA==AAAA", "AAA=AAAA", "A===", "====", "AA=A", "AA!A", "AA"])
def test_large_values_that_are_no_base64_are_left_to_the_decoder(end: str) -> None:
    good = record(1, bytes(9_000))

    assert regular_columns(body_of([good, {**good, "Data": "A" * 12_000 + end}])) is None


def test_members_after_the_records_are_kept() -> None:
    child = {
        "ShardId": "shard-2",
        "ParentShards": ["shard-0"],
        "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": "9"},
    }

    taken(body_of([record(1, b"x"), record(2, b"y")], NextShardIterator=None, ChildShards=[child]))


def test_an_arrival_may_be_written_with_an_exponent() -> None:
    body = body_of([record(1, b"x"), record(2, b"y")]).replace(b"1795260005.402", b"1.795260005402E9")

    taken(body)


@pytest.mark.parametrize(
    "odd",
    [
        record(2, b"x", PartitionKey='quoted "key"'),
        record(2, b"x", PartitionKey="back\\slash"),
        record(2, b"x", PartitionKey="ключ"),
        record(2, b"x", PartitionKey=None),
        record(2, b"x", EncryptionType=None),
        record(2, b"x", ApproximateArrivalTimestamp=None),
        record(2, b"x", ApproximateArrivalTimestamp="1795260005.277"),
        record(2, b"x", New="member"),
        record(2, b"x", New={"a": ["member"]}),
        {key: value for key, value in record(2, b"x").items() if key != "PartitionKey"},
        {key: value for key, value in record(2, b"x").items() if key != "EncryptionType"},
        dict(reversed(record(2, b"x").items())),
    ],
)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_record_that_is_written_otherwise_is_left_to_the_decoder(odd: dict[str, Any], place: int) -> None:
    records = [record(number, b"data") for number in range(2)]
    records.insert(place, odd)

    assert regular_columns(body_of(records)) is None


def test_swapped_members_of_the_same_length_are_noticed() -> None:
    first = b'"PartitionKey":"49680427482694328467366729337512435546436086034247712771"'
    body = body_of([record(1, b"x", str(NUMBER + 1)), record(2, b"y", str(NUMBER + 2))])
    at = body.rindex(b'"PartitionKey"')
    swapped = body[:at] + body[at:].replace(b'"PartitionKey"', b'"PartitionKEY"')

    assert first in body
    assert regular_columns(body) is not None
    assert regular_columns(swapped) is None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"<html>busy</html>",
        b'{"Records":null}',
        b'{"Records":[]}',
        b'{"Records":[{}]}',
        b'{"Records":[{"Data":"',
        body_of([]),
        body_of([record(1, b"x")])[:-60],
        body_of([record(1, b"x"), record(2, b"x")]).replace(b'"Data":"eA=="', b'"Data":"e==="'),
        body_of([record(1, b"x"), record(2, b"x")]).replace(b'"Data":"eA=="', b'"Data":"eA="'),
        body_of([record(1, b"x"), record(2, b"x")]).replace(b'"Data":"eA=="', b'"Data":"e A="'),
        body_of([record(1, b"x"), record(2, b"x")]).replace(b"1795260005.5", b"1795260005.e"),
    ],
)
def test_what_is_no_regular_reply_is_left_to_the_decoder(body: bytes) -> None:
    assert regular_columns(body) is None


@given(st.data())
def test_a_reply_that_was_damaged_gives_what_the_decoder_gives_or_nothing(data: st.DataObject) -> None:
    body = bytearray(body_of([record(number, b"%d" % number * 3, f"key-{number}") for number in range(4)]))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(body) - 1))
        body[place] = data.draw(st.sampled_from(b'"{}[],:\\= 0aA') | st.integers(0, 255))
    damaged = bytes(body)

    found = regular_columns(damaged)
    if found is None:
        return
    try:
        reply = decode_reply(damaged)
    except Unavailable:
        # The decoder is stricter about numbers and what is outside of the records; the values are still there.
        return
    assert listed(found[0]) == listed(columns_of(reply.records, encryption_type=True))


def test_only_large_replies_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    small = body_of([record(1, b"x")])
    large = body_of([record(1, bytes(WORTHWHILE_BYTES))])
    looked_at: list[bytes] = []
    monkeypatch.setattr(arrow, "regular_columns", looked_at.append)

    for body in (small, large):
        assert FORM.decode(body) == FORM.convert(decode_reply(body))
    assert looked_at == [large]


def test_the_page_of_a_large_reply_is_the_decoders() -> None:
    body = body_of([record(number, bytes(1000)) for number in range(1_000)])
    assert len(body) > WORTHWHILE_BYTES

    assert FORM.decode(body) == FORM.convert(decode_reply(body))
