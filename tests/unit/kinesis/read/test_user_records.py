"""A page with its aggregated records taken apart."""

from hashlib import md5

import pytest

from kinesis_spout.kinesis.aggregated_record import MAGIC, UserRecord, aggregate
from kinesis_spout.kinesis.read.user_records import HashKeys, taken_apart, with_user_records
from kinesis_spout.model.record import Record
from kinesis_spout.ports import Page
from shard_state import Position, SequenceNumber, Shard

LOWER = Shard(shard_id="shard-1", parents=("shard-0",), hash_range=(0, 2**127 - 1))
UPPER = Shard(shard_id="shard-2", parents=("shard-0",), hash_range=(2**127, 2**128 - 1))
INSIDE = (UserRecord("a", b"one"), UserRecord("b", b"two", "5"), UserRecord("a", b"three"))


def record(data: bytes, number: int = 7) -> Record:
    return Record(
        data=data,
        sequence_number=str(number),
        partition_key="carrier's",
        arrival_timestamp=12.5,
        encryption_type="KMS",
        stream="orders",
        shard_id="shard-1",
    )


def page(*records: Record) -> Page:
    return Page(records=list(records), size_bytes=99, millis_behind_latest=5, at_end=False)


def read(found: Page) -> list[tuple[bytes, str]]:
    return [(each.data, str(each.sequence)) for each in found.records]


def test_a_user_record_has_data_and_keys_of_its_own_and_the_rest_of_its_carrier() -> None:
    first, second, _ = taken_apart([record(aggregate(INSIDE))]).records

    assert first == Record(
        data=b"one",
        sequence_number="7",
        partition_key="a",
        arrival_timestamp=12.5,
        encryption_type="KMS",
        stream="orders",
        shard_id="shard-1",
        sub_sequence_number=0,
    )
    assert (second.data, second.partition_key, second.explicit_hash_key) == (b"two", "b", "5")
    assert (second.sub_sequence_number, second.message_id) == (1, "shard-1:7:1")


def test_what_is_not_aggregated_is_given_back_as_it_is() -> None:
    plain = page(record(b"one"), record(b"", 8))

    assert with_user_records(plain, start=None, hash_keys=None) is plain


def test_user_records_come_where_their_carrier_was() -> None:
    found = taken_apart([record(b"before"), record(aggregate(INSIDE), 8), record(b"after", 9)])

    assert [str(each.sequence) for each in found.records] == ["7", "8:0", "8:1", "8:2", "9"]
    assert found.records == sorted(found.records, key=lambda each: each.sequence)


def test_a_damaged_aggregate_is_a_record_as_any_and_counted() -> None:
    damaged, short = aggregate(INSIDE)[:-1] + b"\0", MAGIC
    given = [record(damaged), record(short, 8)]

    found = taken_apart(given)

    assert (found.records, found.damaged_aggregates) == (given, 2)


def test_an_aggregate_of_nothing_is_nothing() -> None:
    found = with_user_records(page(record(aggregate(()))), start=None, hash_keys=None)

    assert (read(found), found.kinesis_records, found.damaged_aggregates) == ([], 1, 0)


def test_a_page_says_what_it_is_to_kinesis() -> None:
    found = with_user_records(page(record(aggregate(INSIDE)), record(b"x", 8)), start=None, hash_keys=None)

    assert (len(found.records), found.kinesis_records, found.size_bytes) == (4, 2, 99)
    assert found.holds_at_least(2)
    assert not found.holds_at_least(3)


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (Position.at(SequenceNumber(7, 1)), ["7:1", "7:2", "8"]),
        (Position.after(SequenceNumber(7, 1)), ["7:2", "8"]),
        (Position.after(SequenceNumber(7, 2)), ["8"]),
        (Position.after(SequenceNumber(7, 20)), ["8"]),
        (Position.at(SequenceNumber(7)), ["7:0", "7:1", "7:2", "8"]),
        (Position.trim_horizon(), ["7:0", "7:1", "7:2", "8"]),
    ],
    ids=str,
)
def test_what_is_before_the_start_is_left_out(start: Position, expected: list[str]) -> None:
    given = page(record(aggregate(INSIDE)), record(b"x", 8))

    found = with_user_records(given, start=start, hash_keys=None)

    assert [sequence for _, sequence in read(found)] == expected


def test_what_lies_outside_the_shard_is_given_and_counted() -> None:
    lower = next(key for key in map(str, range(99)) if md5(key.encode()).digest()[0] < 128)
    upper = next(key for key in map(str, range(99)) if md5(key.encode()).digest()[0] >= 128)
    inside = [
        UserRecord(lower, b""),
        UserRecord(upper, b""),
        UserRecord(upper, b"", "0"),
        UserRecord(lower, b"", str(2**128 - 1)),
        UserRecord(lower, b"", "no hash key"),
    ]
    plain_keys = [UserRecord(lower, b""), UserRecord(upper, b""), UserRecord(upper, b"")]

    for records, shard, outside in (
        (inside, LOWER, 3),
        (inside, UPPER, 3),
        (plain_keys, LOWER, 2),
        (plain_keys, UPPER, 1),
    ):
        found = taken_apart([record(aggregate(records))], HashKeys.to_check(shard))
        assert len(found.records) == len(records)
        assert found.records_outside_shard == outside


def test_hash_keys_are_looked_at_only_where_a_reshard_has_made_the_shard() -> None:
    assert HashKeys.to_check(Shard(shard_id="shard-0", hash_range=(0, 5))) is None
    assert HashKeys.to_check(LOWER) == HashKeys(bytes(16), b"\x7f" + b"\xff" * 15)
