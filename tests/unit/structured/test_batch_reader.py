"""The batch reader over a stream in memory, on a clock that tests move."""

import json
import logging
import pickle
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesis_spout.kinesis import KinesisClientSettings
from kinesis_spout.kinesis.aggregated_record import UserRecord
from kinesis_spout.kinesis.calls import RAW_BODY
from kinesis_spout.model.errors import (
    AccessDenied,
    DataLoss,
    InvalidConfig,
    KeyUnavailable,
    KinesisError,
    StreamNotFound,
)
from kinesis_spout.model.record import Record
from kinesis_spout.settings.source_options import BatchReadOptions
from kinesis_spout.structured.batch_reader import KinesisBatchReader, ShardIntervals, read_intervals
from kinesis_spout.structured.schema import arrow_schema
from kinesis_spout.testing import InMemoryStream, ManualClock
from tests.support.kinesis.in_memory_account import InMemoryAccountClient
from tests.support.kinesis.in_memory_client import InMemoryKinesisClient, client_error

if TYPE_CHECKING:
    from botocore.exceptions import ClientError

FIRST, SECOND = "shardId-000000000000", "shardId-000000000001"
HOUR = 3600.0
EPOCH = ManualClock().time()

_clients: dict[str, "BatchClient"] = {}


class BatchClient(InMemoryKinesisClient):
    """What a batch read asks for beyond records. Its listing may lag, its replies may be changed."""

    def __init__(self, stream: InMemoryStream) -> None:
        super().__init__(stream)
        self.retention_hours = 24
        self.unlisted: set[str] = set()
        self.before_read: Callable[[str], None] = lambda _iterator: None
        self.has_arrivals = True
        self.empty_pages = 0
        self.summary_failures: list[ClientError] = []

    def describe_stream_summary(self, **request: Any) -> dict[str, Any]:
        if self.summary_failures:
            raise self.summary_failures.pop()
        reply = super().describe_stream_summary(**request)
        reply["StreamDescriptionSummary"]["RetentionPeriodHours"] = self.retention_hours
        return reply

    def list_shards(self, **request: Any) -> dict[str, Any]:
        shards = super().list_shards(**request)["Shards"]
        return {"Shards": [shard for shard in shards if shard["ShardId"] not in self.unlisted]}

    def get_records(self, **request: Any) -> dict[str, Any]:
        self.before_read(request["ShardIterator"])
        if self.empty_pages:
            self.empty_pages -= 1
            following = request["ShardIterator"]
            reply = {"Records": [], "NextShardIterator": following, "MillisBehindLatest": 60_000}
            return {RAW_BODY: json.dumps(reply).encode()}
        reply = super().get_records(**request)
        if self.has_arrivals:
            return reply
        body = json.loads(reply[RAW_BODY])
        for record in body["Records"]:
            del record["ApproximateArrivalTimestamp"]
        return {RAW_BODY: json.dumps(body).encode()}


@dataclass(frozen=True, slots=True, kw_only=True)
class InMemorySettings(KinesisClientSettings):
    """Leads to a client in memory, also after it was pickled."""

    name: str = ""

    def connect(self) -> Any:
        return _clients[self.name]


@dataclass
class World:
    """A stream, and batch reads of it."""

    shards: int = 1
    name: str = "orders"
    clock: ManualClock = field(default_factory=ManualClock)

    def __post_init__(self) -> None:
        self.stream = InMemoryStream(self.name, shards=self.shards, clock=self.clock)
        self.client = _clients[self.name] = BatchClient(self.stream)

    def put(self, count: int = 1, *, every_seconds: float = 0.0) -> list[Record]:
        records: list[Record] = []
        for number in range(count):
            payload = f"{self.clock.time()}-{number}"
            records.append(self.stream.put(payload.encode(), partition_key=payload))
            self.clock.sleep(every_seconds)
        return records

    def reader(self, **given: str) -> KinesisBatchReader:
        options = BatchReadOptions.of({"streamName": self.name, "region": "us-east-1", **given})
        settings = InMemorySettings(region="us-east-1", aws_secret_access_key="very-secret", name=self.name)
        return KinesisBatchReader(replace(options, client=settings), now=self.clock.time())

    def tasks(self, **given: str) -> list[ShardIntervals]:
        return shipped(self.reader(**given))

    def read(self, **given: str) -> list[str]:
        """Plan and read, in the order of the tasks: the sequence numbers."""
        return self.rows(self.tasks(**given))

    def rows(self, tasks: list[ShardIntervals]) -> list[str]:
        return [
            number
            for task in tasks
            for batch in read_intervals(task, self.clock)
            for number in numbers(batch)
        ]


def shipped(reader: KinesisBatchReader) -> list[ShardIntervals]:
    """Plan, and send the tasks to the executors."""
    tasks = pickle.loads(pickle.dumps(reader.partitions()))
    assert all(isinstance(task, ShardIntervals) for task in tasks)
    return list(tasks)


def numbers(batch: pa.RecordBatch) -> list[str]:
    return [str(number) for number in batch.column("sequenceNumber").to_pylist()]


def of(records: list[Record]) -> list[str]:
    return [record.sequence_number for record in records]


def at_time(seconds: float) -> str:
    return json.dumps({"at_timestamp": seconds})


def at(record: Record) -> dict[str, str]:
    return {"iteratorType": "AT_SEQUENCE_NUMBER", "iteratorPosition": record.sequence_number}


def after(record: Record) -> dict[str, str]:
    return {"iteratorType": "AFTER_SEQUENCE_NUMBER", "iteratorPosition": record.sequence_number}


# --- what is read


def test_everything_up_to_now_is_read_once_in_the_order_of_each_shard() -> None:
    world = World(shards=3)
    records = world.put(60, every_seconds=0.5)

    rows = world.read(maxRecordsPerFetch="7")

    assert Counter(rows) == Counter(of(records))
    for shard in world.stream.list_shards():
        own = of(world.stream.records(shard.shard_id))
        assert [row for row in rows if row in own] == own


def test_what_arrives_after_the_plan_is_not_read_by_it_whichever_task_reads_when() -> None:
    world = World(shards=2)
    before = world.put(20, every_seconds=0.1)
    tasks = world.tasks(shardsPerTask="1")
    world.put(20, every_seconds=0.1)

    first = world.rows(tasks)
    world.put(20, every_seconds=0.1)
    again = world.rows(tasks)

    assert Counter(first) == Counter(of(before))
    assert again == first


def test_readers_made_at_different_times_for_one_load_read_the_same() -> None:
    world = World()
    before = world.put(5, every_seconds=1)
    loaded = world.clock.time()
    world.put(5, every_seconds=1)
    settings = InMemorySettings(region="us-east-1", name=world.name)
    options = replace(BatchReadOptions.of({"streamName": world.name, "region": "us-east-1"}), client=settings)

    rows = [world.rows(shipped(KinesisBatchReader(options, now=loaded))) for _ in range(2)]

    assert rows == [of(before), of(before)]


def test_a_record_at_the_start_time_is_read_and_one_at_the_end_time_is_not() -> None:
    world = World()
    records = world.put(10, every_seconds=1)

    rows = world.read(startingPosition=at_time(EPOCH + 3), endingPosition=at_time(EPOCH + 6))

    assert rows == of(records[3:6])


@given(
    steps=st.lists(st.integers(-1000, 1500), min_size=1, max_size=40),
    cuts=st.lists(st.integers(0, 20_000), max_size=4),
    page=st.integers(1, 10),
)
def test_adjacent_reads_by_time_have_each_record_once_although_arrivals_go_back_and_forth(
    steps: list[int], cuts: list[int], page: int
) -> None:
    world = World()
    records = []
    wall = lowest = 0
    for step in steps:
        # Never more than the margin behind what arrived before; often the very same millisecond.
        wall = max(wall + step // 100 * 100, lowest - 4000)
        lowest = max(lowest, wall)
        world.clock.jump(EPOCH + max(0, wall) / 1000 - world.clock.time())
        records.extend(world.put())
    world.clock.jump(EPOCH + 1000 - world.clock.time())
    bounds = [EPOCH, *(EPOCH + cut // 100 / 10 for cut in sorted(cuts)), EPOCH + 900]

    rows = [
        row
        for start, end in pairwise(bounds)
        for row in world.read(
            startingPosition=at_time(start), endingPosition=at_time(end), maxRecordsPerFetch=str(page)
        )
    ]

    assert Counter(rows) == Counter(of(records))


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (at, at, slice(2, 6)),
        (at, after, slice(2, 7)),
        (after, at, slice(3, 6)),
        (after, after, slice(3, 7)),
    ],
)
def test_sequence_numbers_bound_a_shard_as_at_and_after_say(
    start: Callable[[Record], object], end: Callable[[Record], object], expected: slice
) -> None:
    world = World()
    records = world.put(10)

    rows = world.read(
        startingPosition=json.dumps({FIRST: start(records[2])}),
        endingPosition=json.dumps({FIRST: end(records[6])}),
        maxRecordsPerFetch="3",
    )

    assert rows == of(records[expected])


def test_positions_of_one_shard_leave_the_others_whole() -> None:
    world = World(shards=2)
    world.put(40)
    own, other = (world.stream.records(shard_id) for shard_id in (FIRST, SECOND))
    world.clock.advance(1)

    rows = world.read(
        startingPosition=json.dumps({FIRST: after(own[1])}), endingPosition=json.dumps({FIRST: after(own[4])})
    )

    assert Counter(rows) == Counter(of(own[2:5]) + of(other))


def test_a_time_and_a_sequence_number_bound_a_shard_together() -> None:
    world = World()
    records = world.put(10, every_seconds=1)

    by_time_first = world.read(
        startingPosition=at_time(EPOCH + 2), endingPosition=json.dumps({FIRST: after(records[4])})
    )
    by_number_first = world.read(
        startingPosition=json.dumps({FIRST: after(records[4])}), endingPosition=at_time(EPOCH + 8)
    )

    assert (by_time_first, by_number_first) == (of(records[2:5]), of(records[5:8]))


def test_an_end_before_the_start_gives_nothing() -> None:
    world = World()
    records = world.put(30, every_seconds=1)

    assert (
        world.read(
            startingPosition=at_time(EPOCH + 20), endingPosition=json.dumps({FIRST: after(records[3])})
        )
        == []
    )
    assert (
        world.read(startingPosition=json.dumps({FIRST: at(records[20])}), endingPosition=at_time(EPOCH + 3))
        == []
    )


def test_a_shard_whose_range_is_empty_is_not_asked_for() -> None:
    world = World()
    records = world.put(3, every_seconds=1)

    assert world.read(startingPosition=at_time(EPOCH + 1), endingPosition=at_time(EPOCH + 1)) == []
    assert (
        world.read(
            startingPosition=json.dumps({FIRST: after(records[1])}),
            endingPosition=json.dumps({FIRST: after(records[1])}),
        )
        == []
    )
    assert world.client.calls == 0


def test_rows_have_the_declared_columns_and_the_extra_ones() -> None:
    world = World()
    world.put(3)
    world.clock.advance(1)

    (task,) = world.tasks(extraColumns="millisBehindLatest")
    (batch,) = read_intervals(task, world.clock)

    assert batch.schema == arrow_schema(["millisBehindLatest"])


def test_user_records_are_read_once_by_whichever_positions() -> None:
    world = World()
    carriers = []
    expected: list[tuple[str, int | None]] = []
    for number in range(4):
        carriers += world.put()
        inside = [UserRecord("key", f"{number}/{at}".encode()) for at in range(3)]
        user_records = world.stream.put_aggregated(inside)
        carriers.append(user_records[0])
        expected += [(carriers[-2].sequence_number, None)]
        expected += [(record.sequence_number, record.sub_sequence_number) for record in user_records]
        world.clock.advance(1)

    def read(**given: str) -> list[tuple[str, int | None]]:
        tasks = world.tasks(extraColumns="subSequenceNumber", **given)
        rows = [
            row for task in tasks for batch in read_intervals(task, world.clock) for row in batch.to_pylist()
        ]
        return [(row["sequenceNumber"], row["subSequenceNumber"]) for row in rows]

    assert read() == expected
    for cut in carriers:
        until = read(endingPosition=json.dumps({FIRST: after(cut)}))
        assert until + read(startingPosition=json.dumps({FIRST: after(cut)})) == expected
        before = read(endingPosition=json.dumps({FIRST: at(cut)}))
        assert before + read(startingPosition=json.dumps({FIRST: at(cut)})) == expected
    for second in (1, 2, 3):
        cut_at = at_time(EPOCH + second)
        assert read(endingPosition=cut_at) + read(startingPosition=cut_at) == expected


def test_aggregates_are_read_whole_where_that_is_asked_for() -> None:
    world = World()
    world.stream.put_aggregated([UserRecord("key", b"one"), UserRecord("key", b"two")])
    world.clock.advance(1)

    assert len(world.read(deaggregate="false")) == 1


# --- when a shard is over


def test_the_tip_is_not_believed_before_the_end_is_past_by_the_margin() -> None:
    world = World()
    world.put()
    world.clock.advance(1)
    late: list[Record] = []

    def show_a_record_late(_iterator: str) -> None:
        if world.client.calls == 2:
            # The second read found the tip. This arrived before the end, and can only be seen now.
            world.clock.jump(-6.0)
            late.extend(world.put())
            world.clock.jump(6.0)

    world.client.before_read = show_a_record_late
    rows = world.read()

    assert len(late) == 1
    assert rows == of(world.stream.records(FIRST))


def test_a_shard_whose_end_is_long_past_is_read_without_waiting() -> None:
    world = World()
    records = world.put(3)
    world.clock.advance(100)
    begun = world.clock.monotonic()

    rows = world.read(endingPosition=at_time(EPOCH + 50))

    assert rows == of(records)
    assert world.clock.monotonic() - begun < 1


def test_reading_stops_at_a_page_that_is_clearly_later_than_the_end() -> None:
    world = World()
    records = world.put(10, every_seconds=1)
    world.clock.advance(10)
    world.put(500)

    rows = world.read(endingPosition=at_time(EPOCH + 10), maxRecordsPerFetch="10")

    assert rows == of(records)
    assert world.client.calls == 2


@pytest.mark.parametrize(
    ("records", "ahead", "of_a_page"),
    [
        pytest.param(2, 14, "2", id="a page a little later"),
        pytest.param(1, 30, "3", id="one record far ahead"),
    ],
)
def test_reading_goes_on_past_what_is_later_than_the_end_for_a_moment(
    records: int, ahead: int, of_a_page: str
) -> None:
    world = World()
    early = world.put(records)
    world.clock.advance(ahead)
    world.put(records)
    world.clock.jump(-ahead)
    out_of_order = world.put(2)
    world.clock.advance(100)

    rows = world.read(endingPosition=at_time(EPOCH + 10), maxRecordsPerFetch=of_a_page)

    assert rows == of(early + out_of_order)


def test_an_empty_page_that_is_behind_is_not_the_tip() -> None:
    world = World()
    records = world.put(5)
    world.clock.advance(100)
    world.client.empty_pages = 7

    assert world.read(endingPosition=at_time(EPOCH + 50)) == of(records)


def test_an_end_at_a_number_that_the_shard_does_not_have_is_a_data_loss_or_given_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    records = world.put(3)
    never = replace_number(records[-1], 10**9)
    tasks = world.tasks(endingPosition=json.dumps({FIRST: after(never)}))

    with pytest.raises(
        DataLoss, match=r"AFTER_SEQUENCE_NUMBER\(1000000000\).*With `fail_on_data_loss=False`"
    ):
        world.rows(tasks)
    with caplog.at_level(logging.WARNING):
        rows = world.read(endingPosition=json.dumps({FIRST: at(never)}), failOnDataLoss="false")
    assert rows == of(records)
    assert "AT_SEQUENCE_NUMBER(1000000000)" in caplog.text


def test_a_record_without_an_arrival_time_is_refused_where_times_decide() -> None:
    world = World()
    records = world.put(3)
    world.client.has_arrivals = False

    with pytest.raises(
        KinesisError, match=f"expected an arrival time.*none with {records[0].sequence_number}"
    ):
        world.read()
    assert world.read(endingPosition=json.dumps({FIRST: after(records[2])})) == of(records)


def replace_number(record: Record, number: int) -> Record:
    return Record(data=record.data, sequence_number=str(number), partition_key=record.partition_key)


# --- what retention took


def test_a_start_at_a_trimmed_record_is_a_data_loss_or_given_up(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    records = world.put(10)
    world.stream.trim(FIRST, records[5].sequence)
    world.clock.advance(1)
    start = json.dumps({FIRST: at(records[2])})

    with pytest.raises(DataLoss, match=r"cannot read shard 'shardId-0.*With `fail_on_data_loss=False`"):
        world.read(startingPosition=start)
    with caplog.at_level(logging.WARNING):
        assert world.read(startingPosition=start, failOnDataLoss="false") == of(records[6:])
    assert records[2].sequence_number in caplog.text


def test_a_start_time_behind_retention_is_a_data_loss() -> None:
    world = World()
    world.put()
    world.clock.advance(30 * HOUR)
    kept = world.put()
    world.clock.advance(1)
    start = at_time(EPOCH + HOUR)

    with pytest.raises(DataLoss, match=r"2023-11-14T23:13:20\.000Z is behind the retention.*24 hours"):
        world.tasks(startingPosition=start)
    assert world.read(startingPosition=start, failOnDataLoss="false") == of(kept)
    assert world.read() == of(kept)


def test_a_start_time_before_the_stream_was_made_loses_nothing_while_it_keeps_everything() -> None:
    world = World()
    records = world.put()
    world.clock.advance(HOUR)

    assert world.read(startingPosition=at_time(EPOCH - 90 * 24 * HOUR)) == of(records)


def test_a_shard_that_is_named_and_not_there_is_a_data_loss(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    records = world.put()
    world.clock.advance(1)
    start = json.dumps({"shardId-000000000077": "trim_horizon"})

    with pytest.raises(DataLoss, match="shardId-000000000077 is not there"):
        world.tasks(startingPosition=start)
    with caplog.at_level(logging.WARNING):
        assert world.read(startingPosition=start, failOnDataLoss="false") == of(records)
    assert "shardId-000000000077" in caplog.text


def test_a_shard_that_retention_takes_between_plan_and_task_is_a_loss_unless_the_oldest_record_was_asked_for() -> (
    None
):
    world = World()
    world.put()
    world.stream.split(FIRST)
    of_today = at_time(world.clock.time() - 1)
    failing = world.tasks(startingPosition=of_today)
    lenient = world.tasks(startingPosition=of_today, failOnDataLoss="false")
    whatever_is_left = world.tasks()
    world.clock.advance(30 * HOUR)

    with pytest.raises(DataLoss, match=r"shard 'shardId-0.* is gone.*With `fail_on_data_loss=False`"):
        world.rows(failing)
    assert world.rows(lenient) == []
    assert world.rows(whatever_is_left) == []


# --- reshards


def test_a_split_shard_and_its_children_are_read_once() -> None:
    world = World()
    records = world.put(10)
    world.stream.split(FIRST)
    records += world.put(10)
    world.clock.advance(1)

    assert Counter(world.read()) == Counter(of(records))
    assert Counter(world.read(shardsPerTask="1")) == Counter(of(records))


@pytest.mark.parametrize("per_task", ["1", "8"])
def test_children_that_the_listing_does_not_have_yet_are_read_once_after_their_parents(per_task: str) -> None:
    world = World(shards=2)
    records = world.put(10)
    merged = world.stream.merge(FIRST, SECOND)
    records += world.put(10)
    halves = world.stream.split(merged.shard_id)
    records += world.put(10)
    world.clock.advance(1)
    world.client.unlisted = {merged.shard_id, *(half.shard_id for half in halves)}

    rows = world.read(shardsPerTask=per_task)

    assert Counter(rows) == Counter(of(records))


@pytest.mark.parametrize("page", ["2", "10000"])
def test_an_unlisted_child_is_read_once_although_its_first_parent_ends_early(page: str) -> None:
    world = World(shards=2)
    world.put(20)
    first, second = (world.stream.records(shard_id) for shard_id in (FIRST, SECOND))
    merged = world.stream.merge(FIRST, SECOND)
    late = world.put(5)
    world.clock.advance(1)
    world.client.unlisted = {merged.shard_id}

    rows = world.read(endingPosition=json.dumps({FIRST: at(first[2])}), maxRecordsPerFetch=page)

    assert Counter(rows) == Counter(of(first[:2] + second + late))


def test_children_born_after_the_plan_give_nothing() -> None:
    world = World()
    records = world.put(10)
    world.clock.advance(1)
    tasks = world.tasks()
    world.stream.split(FIRST)
    world.put(10)

    assert world.rows(tasks) == of(records)


# --- what may pass, and what may not


def test_throttles_failures_and_expired_iterators_lose_and_repeat_nothing() -> None:
    world = World(shards=2)
    records = world.put(60)
    world.clock.advance(1)
    world.stream.throttle(times=3, shard_id=FIRST)
    world.stream.make_unavailable(times=30, shard_id=SECOND)
    tasks = world.tasks(maxRecordsPerFetch="5")

    rows = []
    for task in tasks:
        for batch in read_intervals(task, world.clock):
            world.stream.expire_iterators()
            rows.extend(numbers(batch))

    assert Counter(rows) == Counter(of(records))


def test_a_throttled_shard_does_not_delay_the_others_of_its_task() -> None:
    world = World(shards=2)
    world.put(60)
    world.clock.advance(1)
    (task,) = world.tasks(maxRecordsPerFetch="5")
    world.stream.throttle(times=5, shard_id=FIRST)

    shards = [batch.column("shardId")[0].as_py() for batch in read_intervals(task, world.clock)]

    assert set(shards) == {FIRST, SECOND}
    assert set(shards[:4]) == {SECOND}


def test_a_failing_iterator_request_is_waited_out() -> None:
    world = World()
    records = world.put(3)
    world.clock.advance(1)
    (task,) = world.tasks()
    failures = [client_error("InternalFailureException", "GetShardIterator", status=500)] * 20
    ask = world.client.get_shard_iterator

    def refuse(**request: Any) -> dict[str, Any]:
        if failures:
            raise failures.pop()
        return ask(**request)

    world.client.get_shard_iterator = refuse  # type: ignore[method-assign]
    begun = world.clock.monotonic()

    assert world.rows([task]) == of(records)
    assert world.clock.monotonic() - begun > 20 * 0.2


def test_planning_waits_out_what_may_pass() -> None:
    world = World()
    records = world.put(3)
    world.clock.advance(1)
    world.client.summary_failures.append(client_error("LimitExceededException", "DescribeStreamSummary"))

    assert world.read(startingPosition=at_time(EPOCH)) == of(records)


def test_a_refused_key_is_waited_out_slowly_and_delays_no_other_shard() -> None:
    world = World(shards=2)
    records = world.put(60)
    world.clock.advance(1)
    (task,) = world.tasks(maxRecordsPerFetch="50")
    world.stream.fail_next(KeyUnavailable("key disabled"), times=4, shard_id=FIRST)
    begun = world.clock.monotonic()
    rows: list[str] = []
    of_second_alone = len(world.stream.records(SECOND))

    for batch in read_intervals(task, world.clock):
        rows.extend(numbers(batch))
        if len(rows) == of_second_alone:
            assert world.clock.monotonic() - begun < 30

    assert Counter(rows) == Counter(of(records))
    assert world.clock.monotonic() - begun >= 3 * 30


def test_denied_access_ends_a_task_at_once() -> None:
    world = World()
    tasks = world.tasks()
    world.stream.fail_next(AccessDenied("not for you"))

    with pytest.raises(AccessDenied):
        world.rows(tasks)


def test_a_stream_that_is_not_there_ends_the_plan_at_once() -> None:
    world = World()
    reader = world.reader()
    world.stream.delete()

    with pytest.raises(StreamNotFound, match="orders"):
        reader.partitions()


def test_a_stream_deleted_while_the_plan_is_made_ends_it_at_once() -> None:
    world = World()
    world.clock.advance(1)
    reader = world.reader(startingPosition=at_time(EPOCH))
    world.client.summary_failures.append(client_error("ResourceNotFoundException", "DescribeStreamSummary"))
    list_shards, calls = world.client.list_shards, []

    def gone_at_the_second_call(**request: Any) -> dict[str, Any]:
        calls.append(request)
        if len(calls) == 2:
            world.stream.delete()
        return list_shards(**request)

    world.client.list_shards = gone_at_the_second_call  # type: ignore[method-assign]

    with pytest.raises(StreamNotFound, match="orders"):
        reader.partitions()


def test_an_end_that_is_yet_to_come_is_refused() -> None:
    world = World()

    with pytest.raises(InvalidConfig, match="endingPosition: expected a time that is over"):
        world.tasks(endingPosition=at_time(EPOCH + HOUR))
    with pytest.raises(InvalidConfig, match="endingPosition: expected a time that is over"):
        world.tasks(endingPosition=json.dumps({FIRST: {"at_timestamp": EPOCH + HOUR}}))


@pytest.mark.parametrize("option", ["startingPosition", "endingPosition"])
def test_a_sequence_number_for_all_shards_is_refused_unless_there_is_only_one(option: str) -> None:
    one = World()
    records = one.put(3)
    one.clock.advance(1)
    position = json.dumps(at(records[1]))
    expected = records[1:] if option == "startingPosition" else records[:1]

    assert one.read(**{option: position}) == of(expected)
    with pytest.raises(InvalidConfig, match=f"{option}: a sequence number is of one shard, and 2 are"):
        World(shards=2).tasks(**{option: position})


# --- tasks


@pytest.mark.parametrize(
    ("shards", "given", "sizes"),
    [
        (3, {}, [3]),
        (8, {}, [8]),
        (20, {}, [7, 7, 6]),
        (5, {"shardsPerTask": "2"}, [2, 2, 1]),
        (3, {"shardsPerTask": "1"}, [1, 1, 1]),
        (3, {"shardsPerTask": "100"}, [3]),
    ],
)
def test_shards_are_divided_evenly_among_few_tasks(
    shards: int, given: dict[str, str], sizes: list[int]
) -> None:
    tasks = World(shards=shards).tasks(**given)

    assert [len(task.intervals) for task in tasks] == sizes
    assert len({interval.shard_id for task in tasks for interval in task.intervals}) == shards


def test_a_plan_without_shards_has_a_task_that_reads_nothing() -> None:
    world = World()
    reader = world.reader(startingPosition=at_time(EPOCH - 9), endingPosition=at_time(EPOCH - 9))

    (task,) = reader.partitions()

    assert list(reader.read(task)) == []


def test_no_page_is_asked_for_before_the_one_before_was_taken() -> None:
    world = World(shards=2)
    world.put(40)
    world.clock.advance(1)
    (task,) = world.tasks(maxRecordsPerFetch="5")

    for taken, _ in zip(range(1, 6), read_intervals(task, world.clock), strict=False):
        assert world.client.calls == taken


def test_a_shard_is_read_no_faster_than_asked_for() -> None:
    world = World()
    for _ in range(10):
        world.stream.put(b"x" * 100_000, partition_key="k")
    world.clock.advance(20)
    begun = world.clock.monotonic()

    world.read(maxFetchRate="0.1", maxRecordsPerFetch="2", endingPosition=at_time(EPOCH + 10))

    assert world.clock.monotonic() - begun >= 10 * 100_000 / (0.1 * 1024 * 1024)


def test_several_streams_are_read_in_one_plan() -> None:
    world = World()
    records = world.put(3)
    world.clock.advance(1)

    (task,) = world.tasks(streamName="orders,returns")

    # Both names lead to the one stream in memory.
    assert sorted(world.rows([task])) == sorted(of(records) * 2)
    assert {interval.stream for interval in task.intervals} == {"orders", "returns"}


def test_no_secret_shows_in_a_task() -> None:
    (task,) = World().tasks()

    assert "very-secret" not in f"{task!r} {task.settings!r} {task.plan!r} {task.value!r}"


# --- patterns


class AccountSettings(KinesisClientSettings):
    """Leads to the streams of an account in memory."""

    def connect(self) -> Any:
        return ACCOUNT


ACCOUNT = InMemoryAccountClient()


def test_a_pattern_is_resolved_once_when_the_read_is_planned() -> None:
    ACCOUNT.create("orders-de", b"de")
    ACCOUNT.create("orders-at", b"at")
    ACCOUNT.create("refunds", b"no")
    options = BatchReadOptions.of({"streamName": "orders-*", "region": "us-east-1"})
    reader = KinesisBatchReader(replace(options, client=AccountSettings()))
    tasks = reader.partitions()
    ACCOUNT.create("orders-ch", b"ch")

    for _ in range(2):
        read = [batch.column("data").to_pylist() for task in tasks for batch in reader.read(task)]
        assert sorted(data for batch in read for data in batch) == [b"at", b"de"]
    assert ACCOUNT.listed == 1


def test_a_pattern_that_finds_no_stream_is_an_error() -> None:
    options = BatchReadOptions.of({"streamName": "nothing-*", "region": "us-east-1"})
    reader = KinesisBatchReader(replace(options, client=AccountSettings()))
    with pytest.raises(StreamNotFound, match=r"streamName or streamARN finds, nothing-\* finds none"):
        reader.partitions()
