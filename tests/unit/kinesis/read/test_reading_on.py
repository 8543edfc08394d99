"""Wherever one reader of a shard stops, the next one goes on, inside aggregated records as well."""

from typing import TYPE_CHECKING, Literal, cast

from hypothesis import given
from hypothesis import strategies as st

from kinesis_spout.kinesis import PollingShardGetter
from kinesis_spout.kinesis.aggregated_record import UserRecord, aggregate
from kinesis_spout.model.record import Record
from kinesis_spout.testing import InMemoryShardLister, InMemoryStream, ManualClock
from shard_state import Position
from tests.support.kinesis.in_memory_client import InMemoryKinesisClient

if TYPE_CHECKING:
    from mypy_boto3_kinesis import KinesisClient

SHARD = "shardId-000000000000"
Put = int | Literal["plain", "damaged", "empty"]
"""How many user records are in an aggregate, or what else is put."""
puts = st.lists(st.integers(1, 4) | st.sampled_from(("plain", "damaged", "empty")), max_size=12)


def put_all(stream: InMemoryStream, puts: list[Put]) -> list[tuple[str, bytes]]:
    """Put something of each kind. Gives what a reader must find: where, and which data."""
    expected: list[tuple[str, bytes]] = []
    for at, what in enumerate(puts):
        data = b"%d" % at
        if isinstance(what, int):
            inside = [UserRecord(f"key-{sub}", b"%d.%d" % (at, sub)) for sub in range(what)]
            expected += [(str(record.sequence), record.data) for record in stream.put_aggregated(inside)]
            continue
        if what == "empty":
            stream.put(aggregate(()), "key")
            continue
        record = stream.put(aggregate([UserRecord("key", data)])[:-1] if what == "damaged" else data, "key")
        expected.append((record.sequence_number, record.data))
    return expected


def open_getter(stream: InMemoryStream, position: Position) -> PollingShardGetter:
    return PollingShardGetter(
        cast("KinesisClient", InMemoryKinesisClient(stream)),
        stream=stream.name,
        shard_id=SHARD,
        position=position,
        lister=InMemoryShardLister(stream),
        clock=cast("ManualClock", stream.clock),
    )


def read_to_the_tip(getter: PollingShardGetter, limit: int) -> list[Record]:
    records: list[Record] = []
    while (page := getter.read(limit)).millis_behind_latest or page.records:
        records.extend(page.records)
    return records


@given(puts, st.integers(1, 5), st.data())
def test_a_reader_goes_on_with_the_record_behind_the_last_one_that_was_handled(
    puts: list[Put], limit: int, data: st.DataObject
) -> None:
    stream = InMemoryStream(clock=ManualClock())
    expected = put_all(stream, puts)
    records = read_to_the_tip(open_getter(stream, Position.trim_horizon()), limit)
    assert [(str(record.sequence), record.data) for record in records] == expected
    if not records:
        return

    handled = data.draw(st.integers(0, len(records) - 1))
    after = open_getter(stream, Position.after(records[handled].sequence))
    again = open_getter(stream, Position.at(records[handled].sequence))

    assert read_to_the_tip(after, limit) == records[handled + 1 :]
    assert read_to_the_tip(again, limit) == records[handled:]


@given(puts, st.integers(1, 5))
def test_the_position_of_a_getter_is_between_the_records_of_kinesis(puts: list[Put], limit: int) -> None:
    stream = InMemoryStream(clock=ManualClock())
    expected = put_all(stream, puts)
    position, found = Position.trim_horizon(), 0

    for _ in range(len(puts)):
        getter = open_getter(stream, position)
        found += len(getter.read(limit).records)
        position = getter.position

    assert found == len(expected)
