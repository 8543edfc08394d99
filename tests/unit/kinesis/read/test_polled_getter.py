"""What the contract suite cannot see: which calls are made, when, and what is passed on."""

import json
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import pytest

from kinesis_spout.kinesis import SCHEMA, PollingShardGetter, ReadSettings
from kinesis_spout.kinesis.aggregated_record import UserRecord, aggregate
from kinesis_spout.kinesis.calls import RAW_BODY
from kinesis_spout.model.errors import (
    AccessDenied,
    DataLoss,
    InvalidIterator,
    KinesisError,
    ShardNotFound,
    Throttled,
    Unavailable,
)
from kinesis_spout.testing import InMemoryShardLister, InMemoryStream, ManualClock
from shard_state import Position, SequenceNumber
from tests.support.kinesis.in_memory_client import InMemoryKinesisClient, client_error

if TYPE_CHECKING:
    from mypy_boto3_kinesis import KinesisClient

pytestmark = [pytest.mark.no_second_run, pytest.mark.usefixtures("each_decoder")]

SHARD = "shardId-000000000000"

GOES_ON = ReadSettings(fail_on_data_loss=False)
DAY = 24 * 3600.0


class Scene:
    """A stream with a shard, a client that counts, and getters on it."""

    def __init__(self) -> None:
        self.clock = ManualClock(epoch=1_700_000_000.0)
        self.stream = InMemoryStream("orders", clock=self.clock)
        self.client = InMemoryKinesisClient(self.stream)

    def put(self, *payloads: bytes) -> list[SequenceNumber]:
        return [self.stream.put(payload, "key").sequence for payload in payloads]

    def getter(self, position: Position | None = None, **others: Any) -> PollingShardGetter:
        return PollingShardGetter(
            cast("KinesisClient", self.client),
            shard_id=SHARD,
            position=position or Position.trim_horizon(),
            clock=self.clock,
            jitter=lambda: 0.0,
            **{"stream": "orders", "lister": InMemoryShardLister(self.stream), **others},
        )

    @property
    def iterator_kinds(self) -> list[tuple[str, str | None]]:
        return [
            (request["ShardIteratorType"], request.get("StartingSequenceNumber"))
            for request in self.client.iterator_requests
        ]


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_an_iterator_is_kept_from_page_to_page(scene: Scene) -> None:
    getter = scene.getter()

    for _ in range(5):
        getter.read(10)

    assert scene.iterator_kinds == [("TRIM_HORIZON", None)]
    assert scene.client.calls == 5


@pytest.mark.parametrize("stream", ["orders", "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"])
def test_a_call_names_the_account_where_the_stream_was_given_with_one(scene: Scene, stream: str) -> None:
    asked: list[Any] = []

    class Noting(InMemoryKinesisClient):
        def get_records(self, **request: Any) -> dict[str, Any]:
            asked.append(request.get("StreamARN"))
            return super().get_records(**request)

    scene.client = Noting(scene.stream)
    scene.getter(stream=stream).read(10)

    assert asked == [stream if stream.startswith("arn:") else None]


def test_an_old_iterator_is_renewed_before_it_expires(scene: Scene) -> None:
    numbers = scene.put(b"one")
    getter = scene.getter()
    getter.read(10)
    scene.clock.advance(271)

    getter.read(10)

    assert scene.iterator_kinds[1:] == [("AT_SEQUENCE_NUMBER", numbers[0].kinesis)]
    assert scene.client.calls == 2


def test_an_expired_iterator_does_not_reopen_at_the_position_known_at_start(scene: Scene) -> None:
    numbers = scene.put(b"one", b"two", b"three")
    getter = scene.getter(Position.at(numbers[0]))
    getter.read(2)
    scene.stream.expire_iterators()

    page = getter.read(10)

    assert [record.data for record in page.records] == [b"three"]
    assert scene.iterator_kinds[-1] == ("AT_SEQUENCE_NUMBER", numbers[1].kinesis)


def test_latest_is_asked_for_as_the_time_it_was_pinned_to(scene: Scene) -> None:
    scene.clock.advance(0.1239)
    getter = scene.getter(Position.latest())
    scene.clock.advance(50)
    getter.read(1)
    scene.stream.expire_iterators()
    getter.read(1)

    asked = [(each["ShardIteratorType"], each["Timestamp"]) for each in scene.client.iterator_requests]

    # In whole milliseconds, rounded down: arrivals are too, and none may fall in between.
    assert asked == [("AT_TIMESTAMP", 1_700_000_000.123)] * 2


def test_a_wall_clock_that_jumps_costs_an_iterator_and_nothing_else(scene: Scene) -> None:
    scene.put(b"one", b"two")
    getter = scene.getter()
    getter.read(1)
    scene.clock.jump(-3600)

    assert [record.data for record in getter.read(10).records] == [b"two"]


def test_a_place_moves_to_another_process_with_its_iterator_and_its_pace(scene: Scene) -> None:
    scene.put(b"x" * 4_000_000, b"two")
    old = scene.getter()
    old.read(1)

    new = scene.getter(
        old.position,
        cursor=old.cursor,
    )

    assert new.ready_at == pytest.approx(scene.clock.monotonic() + 2.0, abs=0.01)
    assert [record.data for record in new.read(10).records] == [b"two"]
    assert len(scene.client.iterator_requests) == 1


def test_a_place_from_a_machine_whose_clock_is_an_hour_ahead_is_read_as_soon_as_any(scene: Scene) -> None:
    scene.put(b"one", b"two")
    old = scene.getter()
    old.read(1)
    cursor = old.cursor
    scene.clock.jump(-3600)

    assert scene.getter(old.position, cursor=cursor).ready_at == old.ready_at


def test_another_process_repeats_a_read_with_its_iterator(scene: Scene) -> None:
    scene.put(b"one", b"two", b"three")
    old = scene.getter()
    old.read(1)
    before = old.position
    old.read(1)

    new = scene.getter(before, cursor=old.cursor_before)

    assert [record.data for record in new.read(10).records] == [b"two", b"three"]
    assert len(scene.client.iterator_requests) == 1


def test_the_iterator_to_repeat_a_read_is_the_one_that_replaced_a_refused_one(scene: Scene) -> None:
    scene.put(b"one")
    old = scene.getter()
    scene.stream.fail_next(InvalidIterator("x"))
    old.read(1)

    new = scene.getter(cursor=old.cursor_before)

    assert [record.data for record in new.read(10).records] == [b"one"]
    assert len(scene.client.iterator_requests) == 2


def test_a_getter_goes_on_with_the_iterator_of_another_one(scene: Scene) -> None:
    scene.put(b"one", b"two")
    old = scene.getter()
    old.read(1)

    new = scene.getter(old.position)
    new.go_on(old.cursor)

    assert [record.data for record in new.read(10).records] == [b"two"]
    assert len(scene.client.iterator_requests) == 1


def test_an_iterator_that_outlived_its_move_is_asked_for_again(scene: Scene) -> None:
    numbers = scene.put(b"one", b"two")
    old = scene.getter()
    old.read(1)
    scene.clock.advance(400)

    new = scene.getter(old.position, cursor=old.cursor)

    assert [record.data for record in new.read(10).records] == [b"two"]
    assert scene.iterator_kinds[-1] == ("AT_SEQUENCE_NUMBER", numbers[0].kinesis)


def test_a_refused_iterator_is_replaced_once_in_a_call(scene: Scene) -> None:
    scene.put(b"one")
    getter = scene.getter()
    scene.stream.fail_next(InvalidIterator("x"))

    assert [record.data for record in getter.read(10).records] == [b"one"]


def test_a_fresh_iterator_that_is_refused_too_is_retriable(scene: Scene) -> None:
    scene.put(b"one")
    getter = scene.getter()
    scene.stream.fail_next(InvalidIterator("x"), times=2)

    with pytest.raises(Unavailable, match="fresh iterator"):
        getter.read(10)

    assert getter.ready_at > scene.clock.monotonic()
    assert [record.data for record in getter.read(10).records] == [b"one"]


def test_a_throttle_keeps_the_iterator_and_is_counted(scene: Scene) -> None:
    getter = scene.getter()
    getter.read(10)
    scene.stream.throttle()

    with pytest.raises(Throttled):
        getter.read(10)
    getter.read(10)

    assert (getter.throttles, len(scene.client.iterator_requests)) == (1, 1)


def test_failures_are_retried_without_limit_and_never_lose_the_place(scene: Scene) -> None:
    scene.put(b"one")
    getter = scene.getter()
    scene.stream.make_unavailable(times=40)

    for _ in range(40):
        with pytest.raises(Unavailable):
            getter.read(10)

    assert [record.data for record in getter.read(10).records] == [b"one"]


def test_denied_access_is_not_retriable_but_keeps_the_place(scene: Scene) -> None:
    scene.put(b"one")
    getter = scene.getter()
    for seconds in (1, 30):  # the first refusal may be a stray answer
        scene.stream.fail_next(AccessDenied("x"))
        with pytest.raises(AccessDenied, match="permissions"):
            getter.read(10)
        assert seconds <= getter.ready_at - scene.clock.monotonic() <= 1.1 * seconds

    assert [record.data for record in getter.read(10).records] == [b"one"]


class FirstPages(InMemoryKinesisClient):
    """Changes the first pages."""

    def __init__(self, stream: InMemoryStream, pages: int, **members: Any) -> None:
        super().__init__(stream)
        self._pages, self._members = pages, members

    def get_records(self, **request: Any) -> dict[str, Any]:
        reply = super().get_records(**request)
        if self.calls <= self._pages:
            reply[RAW_BODY] = json.dumps(json.loads(reply[RAW_BODY]) | self._members).encode()
        return reply


def test_a_shard_that_seems_to_be_over_is_asked_ever_more_slowly(scene: Scene) -> None:
    scene.client = FirstPages(scene.stream, 6, NextShardIterator=None)
    scene.put(b"one")
    getter = scene.getter()

    waits = []
    for _ in range(6):
        with pytest.raises(Unavailable, match="as if the shard were over"):
            getter.read(10)
        waits.append(getter.ready_at - scene.clock.monotonic())

    assert waits == pytest.approx([0.2, 0.4, 0.8, 1.6, 3.2, 5.0])
    assert [record.data for record in getter.read(10).records] == [b"one"]


def test_a_refused_question_for_the_retention_is_asked_slowly(scene: Scene) -> None:
    class Denied(InMemoryShardLister):
        def summary(self) -> Any:
            raise AccessDenied("DescribeStreamSummary")

    numbers = scene.put(b"one", b"two")
    scene.stream.trim(SHARD, numbers[0])
    position = Position.after(numbers[0]).known_since(scene.clock.time() - 2 * DAY)
    getter = scene.getter(position, lister=Denied(scene.stream))

    for seconds in (1, 30):
        with pytest.raises(AccessDenied):
            getter.read(10)
        assert seconds <= getter.ready_at - scene.clock.monotonic() <= 1.1 * seconds


def test_a_page_that_claims_to_be_a_day_behind_stops_no_shard_whose_position_is_still_there(
    scene: Scene,
) -> None:
    scene.client = FirstPages(scene.stream, 1, Records=[], MillisBehindLatest=int(DAY * 1000))
    numbers = scene.put(b"one", b"two", b"three")
    getter = scene.getter(Position.after(numbers[1]).known_since(scene.clock.time() - 3600.0))

    assert not getter.read(10).records
    assert [record.data for record in getter.read(10).records] == [b"three"]
    scene.clock.advance(271)
    scene.put(b"four")
    assert [record.data for record in getter.read(10).records] == [b"four"]
    assert [kind for kind, _ in scene.iterator_kinds] == [
        "AT_SEQUENCE_NUMBER",
        "TRIM_HORIZON",
        "AT_SEQUENCE_NUMBER",
    ]


def test_not_found_of_a_listed_shard_is_retriable_and_no_shard_end(scene: Scene) -> None:
    scene.put(b"one")
    getter = scene.getter()
    scene.stream.fail_next(ShardNotFound("a lie"))

    with pytest.raises(Unavailable, match="yet the stream lists the shard"):
        getter.read(10)

    page = getter.read(10)
    assert ([record.data for record in page.records], page.at_end) == ([b"one"], False)


def test_not_found_that_cannot_be_verified_now_is_retriable(scene: Scene) -> None:
    class BusyLister(InMemoryShardLister):
        def list_shards(self) -> Any:
            raise Throttled("ListShards is busy")

    getter = PollingShardGetter(
        cast("KinesisClient", scene.client),
        stream="orders",
        shard_id="shardId-000000000077",
        position=Position.trim_horizon(),
        lister=BusyLister(scene.stream),
        clock=scene.clock,
    )

    with pytest.raises(Throttled, match="busy"):
        getter.read(10)


def test_data_loss_says_what_was_lost_and_what_to_do(scene: Scene) -> None:
    numbers = scene.put(b"one", b"two", b"three")
    scene.stream.trim(SHARD, numbers[1])

    with pytest.raises(DataLoss) as caught:
        scene.getter(Position.after(numbers[0])).read(10)

    for part in (SHARD, "orders", str(numbers[0]), "`fail_on_data_loss=False`"):
        assert part in str(caught.value)


def test_a_position_behind_retention_becomes_trim_horizon_only_loudly(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    numbers = scene.put(b"one", b"two", b"three")
    scene.stream.trim(SHARD, numbers[1])
    getter = scene.getter(Position.after(numbers[0]), settings=GOES_ON)

    with caplog.at_level(logging.WARNING):
        page = getter.read(10)

    assert [record.data for record in page.records] == [b"three"]
    assert getter.data_losses == 1
    assert "reading continues at the oldest one" in caplog.text


@pytest.mark.parametrize("is_overtaken", [True, False])
def test_a_reader_that_retention_overtakes_between_two_pages_is_told_and_one_that_keeps_ahead_is_not(
    scene: Scene, *, is_overtaken: bool
) -> None:
    scene.put(b"one")
    scene.clock.advance(120.0)
    scene.put(b"two", b"three")
    scene.clock.advance(DAY - 180.0)
    getter = scene.getter()
    assert [record.data for record in getter.read(1).records] == [b"one"]
    scene.clock.advance(30.0)
    if is_overtaken:
        scene.clock.advance(90.0)
    scene.put(b"four")

    if is_overtaken:
        with pytest.raises(DataLoss):
            getter.read(10)
    else:
        assert [record.data for record in getter.read(10).records] == [b"two", b"three", b"four"]


@pytest.mark.parametrize("form", ["read", "read_arrow"])
def test_empty_pages_a_day_behind_in_front_of_the_oldest_record_hide_no_loss(scene: Scene, form: str) -> None:
    class Searching(InMemoryKinesisClient):
        """As AWS at times: the oldest record comes after some empty pages."""

        def get_records(self, **request: Any) -> dict[str, Any]:
            reply = super().get_records(**request)
            if self.calls > 3:
                return reply
            nothing = {
                "Records": [],
                "MillisBehindLatest": 86_400_000,
                "NextShardIterator": request["ShardIterator"],
            }
            return {RAW_BODY: json.dumps(nothing).encode()}

    numbers = scene.put(b"one", b"two")
    scene.clock.advance(2 * DAY)
    scene.put(b"three")
    for since, is_loss in ((None, True), (scene.clock.time() - 60.0, False)):
        scene.client = Searching(scene.stream)
        getter = scene.getter(Position.after(numbers[0]).known_since(since))
        if is_loss:
            with pytest.raises(DataLoss):
                getattr(getter, form)(10)
        else:
            sizes = [getattr(getter, form)(10).size_bytes for _ in range(4)]
            assert sizes == [0, 0, 0, len(b"three") + len("key")]


def test_a_question_that_no_page_has_answered_moves_to_another_process(scene: Scene) -> None:
    numbers = scene.put(b"one", b"two")
    scene.stream.trim(SHARD, numbers[1])
    scene.put(b"three")
    old = scene.getter(Position.after(numbers[0]), settings=GOES_ON)
    old.read(1)

    new = scene.getter(Position.after(numbers[0]), cursor=old.cursor_before)

    with pytest.raises(DataLoss):
        new.read(10)


def test_a_timestamp_that_is_refused_is_no_data_loss(scene: Scene) -> None:
    class Refusing(InMemoryKinesisClient):
        def get_shard_iterator(self, **request: Any) -> dict[str, Any]:
            numbers = {"StartingSequenceNumber": "1", "ShardIteratorType": "AFTER_SEQUENCE_NUMBER"}
            return super().get_shard_iterator(ShardId=request["ShardId"], **numbers)

    scene.client = Refusing(scene.stream)

    with pytest.raises(KinesisError) as caught:
        scene.getter(Position.at_timestamp(5.0), settings=GOES_ON).read(10)

    assert type(caught.value) is KinesisError


def test_a_time_that_the_service_has_not_reached_is_asked_for_again(scene: Scene) -> None:
    class Slow(InMemoryKinesisClient):
        """As AWS: timestampInMillis cannot be greater than currentTimestampInMillis."""

        def get_shard_iterator(self, **request: Any) -> dict[str, Any]:
            if request["Timestamp"] > scene.clock.time() - 2.0:
                raise client_error("InvalidArgumentException", "GetShardIterator")
            return super().get_shard_iterator(**request)

    scene.client = Slow(scene.stream)
    getter = scene.getter(Position.latest())
    scene.clock.advance(1.0)
    scene.put(b"one")
    with pytest.raises(Unavailable, match="clock"):
        getter.read(10)
    assert getter.ready_at > scene.clock.monotonic()
    scene.clock.advance(2.0)

    assert [record.data for record in getter.read(10).records] == [b"one"]


def test_a_reply_that_is_cut_off_is_asked_for_again_and_loses_nothing(scene: Scene) -> None:
    class Cutting(InMemoryKinesisClient):
        def get_records(self, **request: Any) -> dict[str, Any]:
            reply = super().get_records(**request)
            return {RAW_BODY: reply[RAW_BODY][:-20]} if self.calls == 1 else reply

    scene.put(b"one")
    scene.client = Cutting(scene.stream)
    getter = scene.getter()

    with pytest.raises(Unavailable):
        getter.read(10)

    assert [record.data for record in getter.read(10).records] == [b"one"]


class Saying(InMemoryKinesisClient):
    """Answers GetRecords with ``bodies`` first."""

    def __init__(self, stream: InMemoryStream) -> None:
        super().__init__(stream)
        self.bodies: list[bytes] = []

    def get_records(self, **request: Any) -> dict[str, Any]:
        return {RAW_BODY: self.bodies.pop(0)} if self.bodies else super().get_records(**request)


def body_of(**members: Any) -> bytes:
    return json.dumps({"Records": [], "MillisBehindLatest": 0, **members}).encode()


CHILD = {
    "ShardId": "shardId-9",
    "ParentShards": ["shardId-8"],
    "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": "9"},
}


@pytest.mark.parametrize("read", ["read", "read_arrow"])
@pytest.mark.parametrize(
    ("body", "said"),
    [
        (body_of(), "does not list it as closed"),
        (body_of(ChildShards=[]), "does not list it as closed"),
        (body_of(ChildShards=[CHILD]), "expected its child shards, got those of others: shardId-9"),
        (body_of(NextShardIterator="i", Records=[{"Data": "eA==", "SequenceNumber": "1"}]), "another call"),
    ],
)
def test_a_reply_that_cannot_be_the_answer_is_asked_for_again_from_the_same_place(
    scene: Scene, body: bytes, said: str, read: str
) -> None:
    client = scene.client = Saying(scene.stream)
    numbers = scene.put(b"one", b"two")
    getter = scene.getter()
    getter.read(1)
    client.bodies = [body] * 2
    for _ in range(2):
        with pytest.raises(Unavailable, match=said):
            getattr(getter, read)(10)
        assert getter.ready_at > scene.clock.monotonic()
        scene.clock.advance(60)

    assert [record.data for record in getter.read(10).records] == [b"two"]
    assert scene.iterator_kinds[-1] == ("AT_SEQUENCE_NUMBER", numbers[0].kinesis)


def test_an_end_without_child_shards_is_one_where_the_shard_is_listed_as_closed(scene: Scene) -> None:
    client = scene.client = Saying(scene.stream)
    getter = scene.getter()
    scene.stream.split(scene.stream.list_shards()[0].shard_id)
    client.bodies = [body_of()]

    assert getter.read(10).at_end
    assert getter.read(10).at_end


def test_columns_are_read_from_the_same_place_as_records(scene: Scene) -> None:
    scene.put(b"one", b"two", b"three")
    getter = scene.getter()
    getter.read(1)

    page = getter.read_arrow(1)

    assert page.batch.schema.equals(SCHEMA)
    assert page.batch.column("data").to_pylist() == [b"two"]
    assert [record.data for record in getter.read(10).records] == [b"three"]


def test_columns_say_the_end_too(scene: Scene) -> None:
    scene.put(b"one")
    scene.stream.split(SHARD)

    page = scene.getter().read_arrow(10)

    assert (page.batch.num_rows, page.at_end, len(page.child_shards)) == (1, True, 2)


def test_records_before_a_position_that_was_given_up_but_not_trimmed_are_left_out(scene: Scene) -> None:
    numbers = scene.put(b"one", b"two", b"three", b"four")
    for position in (Position.after(numbers[1]), Position.at(numbers[2])):
        scene.stream.refuse_sequence_numbers()
        getter = scene.getter(position, settings=GOES_ON)
        pages = [[record.data for record in getter.read(1).records] for _ in range(4)]
        assert pages == [[], [], [b"three"], [b"four"]]
        assert getter.data_losses == 1

        scene.stream.refuse_sequence_numbers()
        getter = scene.getter(position, settings=GOES_ON)
        page = getter.read_arrow(3)
        assert page.batch.column("data").to_pylist() == [b"three"]
        assert getter.read_arrow(3).batch.column("data").to_pylist() == [b"four"]


def test_a_place_that_moved_before_its_start_was_reached_again_leaves_out_the_same(scene: Scene) -> None:
    numbers = scene.put(b"one", b"two", b"three")
    scene.stream.refuse_sequence_numbers()
    start = Position.after(numbers[1])
    getter = scene.getter(start, settings=GOES_ON)
    assert not getter.read(1).records

    moved = scene.getter(
        start,
        cursor=getter.cursor,
        settings=GOES_ON,
    )
    assert [record.data for record in moved.read(10).records] == [b"three"]


def test_an_iterator_that_expires_before_the_start_is_reached_again_is_renewed_where_reading_stands(
    scene: Scene,
) -> None:
    numbers = scene.put(b"one", b"two", b"three")
    scene.stream.refuse_sequence_numbers()
    getter = scene.getter(Position.after(numbers[1]), settings=GOES_ON)
    assert not getter.read(1).records
    scene.stream.expire_iterators()

    assert [record.data for record in getter.read(10).records] == [b"three"]
    assert scene.iterator_kinds[-1] == ("AT_SEQUENCE_NUMBER", str(numbers[0]))


# --- aggregated records, as columns


@pytest.mark.parametrize("kind", [Position.at, Position.after])
@pytest.mark.parametrize("wanted", range(6))
def test_a_position_in_an_aggregate_skips_the_user_records_before_it_in_columns_as_in_records(
    scene: Scene, kind: Callable[[SequenceNumber], Position], wanted: int
) -> None:
    (before,) = scene.put(b"before")
    inside = scene.stream.put_aggregated([UserRecord("key", str(at).encode()) for at in range(3)])
    single = scene.stream.put_aggregated([UserRecord("key", b"single")])
    scene.put(b"behind")
    sequences = [
        before,
        *(record.sequence for record in (*inside, *single)),
        SequenceNumber(int(before.number) + 3),
    ]
    position = kind(sequences[wanted])

    page = scene.getter(position).read_arrow(10)

    expected = [record.data for record in scene.getter(position).read(10).records]
    assert page.batch.column("data").to_pylist() == expected


def test_columns_of_an_aggregate_say_what_kinesis_gave_and_what_it_weighs(scene: Scene) -> None:
    carrier_bytes = len(aggregate([UserRecord("key", b"one"), UserRecord("key", b"two")])) + len("key")
    scene.stream.put_aggregated([UserRecord("key", b"one"), UserRecord("key", b"two")])
    getter = scene.getter()

    page = getter.read_arrow(10)

    assert page.batch.num_rows == 2
    assert (page.kinesis_records, page.aggregates, page.size_bytes) == (1, 1, carrier_bytes)
    number = int(page.batch.column("sequenceNumber")[1].as_py())
    assert getter.position == Position.after(SequenceNumber(number))


def test_aggregates_stay_whole_in_columns_where_that_is_asked_for(scene: Scene) -> None:
    inside = [UserRecord("key", b"one"), UserRecord("key", b"two")]
    scene.stream.put_aggregated(inside)

    page = scene.getter(settings=ReadSettings(deaggregate=False)).read_arrow(10)

    assert page.batch.column("data").to_pylist() == [aggregate(inside)]
