"""Progress published beside Spark's checkpoint, over a ZooKeeper in memory."""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import pytest

from kinesis_spout.model.errors import (
    CheckpointUnreadable,
    ConsumerAlive,
    InvalidConfig,
    StoreUnavailable,
    StreamRecreated,
)
from kinesis_spout.ports import Attachment, CheckpointWrite, CommitResult
from kinesis_spout.settings.source_options import StreamReadOptions
from kinesis_spout.structured.offsets import QueryOffset, ReadRange, ShardOffset, StreamOffset
from kinesis_spout.structured.published import published_progress
from kinesis_spout.structured.published.published_progress import PublishedProgress, ZooKeeperPlaces
from kinesis_spout.structured.published.published_stream import OTHERS_SECONDS, Place
from kinesis_spout.testing import InMemoryProcess, InMemoryStream, InMemoryZooKeeper, ManualClock, StoreFault
from kinesis_spout.testing.zookeeper.checkpoint_store import InMemoryCheckpointStore
from shard_state import Checkpoint, Position, SequenceNumber, Shard
from shard_state.sequence_number import SHARD_END, SHARD_START
from tests.support.core.shards import everywhere
from tests.support.waiting import wait_until
from tests.unit.structured.spark_in_memory import SparkInMemory, options

ORDERS, RETURNS = "orders", "returns"
PARENT, CHILD, OTHER = "shardId-000000000000", "shardId-000000000001", "shardId-000000000002"
CREATED = 1_700_000_000.0
HORIZON = Position.trim_horizon()


def number(value: int) -> SequenceNumber:
    return SequenceNumber(value)


def after(value: int, *parents: str, at_end: bool = False) -> ShardOffset:
    return ShardOffset(position=Position.after(number(value)), parents=parents, at_end=at_end)


def at_horizon(*parents: str) -> ShardOffset:
    return ShardOffset(position=HORIZON, parents=parents)


def offset(*, unlogged: bool = False, created: float = CREATED, **shards: ShardOffset) -> QueryOffset:
    named = {"parent": PARENT, "child": CHILD, "other": OTHER}
    stream = StreamOffset(
        created=created, shards={named[name]: shard for name, shard in sorted(shards.items())}
    )
    return QueryOffset(streams={ORDERS: stream}, unlogged=unlogged)


@dataclass
class World:
    """An application's places in memory. ``query`` gives what a run of a query has."""

    clock: ManualClock = field(default_factory=ManualClock)
    zookeepers: dict[str, InMemoryZooKeeper] = field(default_factory=dict)
    queries: list[PublishedProgress] = field(default_factory=list)

    def of(self, stream: str = ORDERS) -> InMemoryZooKeeper:
        return self.zookeepers.setdefault(stream, InMemoryZooKeeper())

    def query(
        self,
        member: str = "query",
        *,
        zookeeper_wins: bool = False,
        open_place: Callable[[str], Place] | None = None,
    ) -> PublishedProgress:
        query = PublishedProgress(
            open_place or (lambda stream: self.of(stream).process(member)),
            app="billing",
            zookeeper_wins=zookeeper_wins,
            clock=self.clock,
        )
        self.queries.append(query)
        return query

    def published(self, done: QueryOffset, member: str = "query") -> None:
        """Let a query publish, and end."""
        query = self.query(member)
        query.publish(done)
        query.finish()

    def stored(self, stream: str = ORDERS) -> dict[str, Checkpoint]:
        return dict(self.of(stream).process("operator").store.load())

    def bases(self, stream: str = ORDERS) -> dict[str, str]:
        return {shard_id: str(checkpoint.base) for shard_id, checkpoint in self.stored(stream).items()}

    def is_at(self, base: int) -> Callable[[], bool]:
        return lambda: self.bases().get(PARENT) == str(base)

    def left(self, **checkpoints: Checkpoint) -> None:
        """Store what another consumer left behind."""
        named = {"parent": PARENT, "child": CHILD, "other": OTHER}
        process = self.of().process("spout")
        process.store.open(
            CREATED, everywhere(HORIZON), [Shard(shard_id=named[name]) for name in checkpoints]
        )
        writes = []
        for name, checkpoint in checkpoints.items():
            owned = process.coordinator.acquire(named[name], checkpoint)
            assert owned is not None
            writes.append(
                CheckpointWrite(shard_id=named[name], checkpoint=replace(checkpoint, epoch=owned.epoch))
            )
        assert not process.store.commit(writes).fenced
        process.close()


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    for zookeeper in world.zookeepers.values():
        zookeeper.set_available(available=True)
    for query in world.queries:
        query.close()


def test_a_new_application_begins_where_the_options_say(world: World) -> None:
    first = offset(
        parent=ShardOffset(position=Position.at_timestamp(5.0)), other=after(7), child=at_horizon(PARENT)
    )
    query = world.query()
    assert query.start(first) == first
    assert world.stored() == {}
    query.publish(first)
    query.finish()
    assert world.stored()[PARENT].read_from == Position.at_timestamp(5.0)
    assert world.stored()[OTHER].read_from == Position.after(number(7))
    assert world.stored()[CHILD].read_from == HORIZON


def test_progress_is_stored_as_a_consumer_stores_it(world: World) -> None:
    world.published(
        offset(parent=after(9, at_end=True), child=after(12, PARENT), other=ShardOffset(position=HORIZON))
    )
    assert world.bases() == {PARENT: "SHARD_END", CHILD: "12", OTHER: "SHARD_START"}
    assert {checkpoint.epoch for checkpoint in world.stored().values()} == {1}
    assert world.stored()[PARENT].app_instance == world.stored()[CHILD].app_instance == "query"


def test_a_shard_at_its_end_is_given_up_and_the_others_are_owned(world: World) -> None:
    query = world.query()
    query.publish(offset(parent=after(9, at_end=True), child=at_horizon(PARENT), other=after(1)))
    wait_until(lambda: world.bases().get(OTHER) == "1", "the progress is stored")
    assert set(world.of().owners) == {CHILD, OTHER}
    assert world.of().member_names == {"query"}


def test_a_shard_that_waits_for_its_parents_is_not_owned_yet(world: World) -> None:
    query = world.query()
    query.publish(offset(parent=after(9), child=at_horizon(PARENT)))
    wait_until(world.is_at(9), "the progress is stored")
    assert set(world.of().owners) == {PARENT}


def test_the_end_of_a_parent_is_stored_before_anything_of_its_child(world: World) -> None:
    commits: list[list[str]] = []

    class RecordingStore(InMemoryCheckpointStore):
        def commit(
            self, writes: Sequence[CheckpointWrite], attachment: Attachment | None = None
        ) -> CommitResult:
            commits.append([write.shard_id for write in writes])
            return super().commit(writes, attachment)

    def open_place(stream: str) -> InMemoryProcess:
        process = world.of(stream).process("query")
        process.store = RecordingStore(world.of(stream), process.coordinator)
        return process

    query = world.query(open_place=open_place)
    query.publish(offset(parent=after(9, at_end=True), child=after(12, PARENT)))
    query.finish()
    assert commits == [[PARENT], [CHILD]]


def test_a_query_begins_where_the_application_ended_shard_by_shard(world: World) -> None:
    world.left(
        parent=Checkpoint(start=HORIZON, base=SHARD_END),
        child=Checkpoint(start=HORIZON, base=number(12)),
    )
    first = offset(parent=at_horizon(), child=at_horizon(PARENT), other=at_horizon(), unlogged=True)
    begun = world.query().start(first)
    shards = begun.streams[ORDERS].shards
    assert shards[PARENT].at_end
    assert shards[CHILD] == after(12, PARENT)
    assert begun.streams[ORDERS].readable() == [OTHER, CHILD]
    assert not begun.unlogged


def test_a_shard_born_since_is_read_from_its_beginning_whatever_the_options_say(world: World) -> None:
    world.left(parent=Checkpoint(start=HORIZON, base=number(5)))
    at_latest = ShardOffset(position=Position.at_timestamp(1e9), parents=(PARENT,))
    first = offset(parent=ShardOffset(position=Position.at_timestamp(1e9)), child=at_latest)
    assert world.query().start(first) == offset(parent=after(5), child=at_horizon(PARENT))


def test_records_in_holes_count_as_not_finished(world: World) -> None:
    world.left(
        parent=Checkpoint(
            start=HORIZON,
            base=number(5),
            holes=((number(6), number(9)),),
            anchor=number(6),
            attempts=((number(6), 2),),
        )
    )
    query = world.query()
    assert query.start(offset(parent=at_horizon())) == offset(parent=after(5))
    query.publish(offset(parent=after(5)))
    query.publish(offset(parent=after(7)))
    query.finish()
    stored = world.stored()[PARENT]
    assert (stored.base, stored.holes, stored.anchor, stored.attempts) == (number(7), (), None, ())


def test_holes_are_kept_until_the_query_has_passed_the_base(world: World) -> None:
    holes = ((number(6), number(9)),)
    world.left(parent=Checkpoint(start=HORIZON, base=number(5), holes=holes, anchor=number(6)))
    world.published(offset(parent=after(5)))
    assert world.stored()[PARENT].holes == holes


def test_inside_an_aggregate_the_whole_of_it_comes_again(world: World) -> None:
    world.left(parent=Checkpoint(start=HORIZON, base=SequenceNumber(5, 3)))
    begun = world.query().start(offset(parent=at_horizon()))
    assert begun == offset(parent=ShardOffset(position=Position.at(number(5))))


def test_the_start_stays_the_same_for_the_whole_run(world: World) -> None:
    query = world.query()
    begun = query.start(offset(parent=ShardOffset(position=Position.at_timestamp(1.0)), unlogged=True))
    assert (
        query.start(offset(parent=ShardOffset(position=Position.at_timestamp(2.0)), unlogged=True)) == begun
    )


def test_only_the_newest_of_what_waits_is_stored(world: World) -> None:
    query = world.query()
    query.publish(offset(parent=after(1)))
    wait_until(world.is_at(1), "the first is stored")
    before = world.of().shards[PARENT].version
    with world.of().lock:  # ZooKeeper is slow
        for last in range(2, 50):
            query.publish(offset(parent=after(last)))
    wait_until(world.is_at(49), "the newest is stored")
    assert world.of().shards[PARENT].version - before <= 2


def test_a_lost_connection_does_not_end_the_query(world: World, caplog: pytest.LogCaptureFixture) -> None:
    query = world.query()
    query.publish(offset(parent=after(1)))
    wait_until(world.is_at(1), "the first is stored")
    world.of().set_available(available=False)
    query.publish(offset(parent=after(2)))
    wait_until(lambda: "is published later" in caplog.text, "the failure is logged")
    query.publish(offset(parent=after(3)))
    world.of().set_available(available=True)
    wait_until(world.is_at(3), "the newest is stored")


@pytest.mark.parametrize("fault", list(StoreFault))
def test_a_request_that_fails_is_made_again(world: World, fault: StoreFault) -> None:
    query = world.query()
    query.publish(offset(parent=after(1)))
    wait_until(world.is_at(1), "the first is stored")
    world.of().fail_next(fault)
    query.publish(offset(parent=after(2)))
    wait_until(world.is_at(2), "the second is stored")


def test_a_lost_session_is_replaced_under_a_new_epoch(world: World) -> None:
    query = world.query()
    query.publish(offset(parent=after(1)))
    wait_until(world.is_at(1), "the first is stored")
    world.of().expire("query")
    query.publish(offset(parent=after(2)))
    wait_until(world.is_at(2), "the second is stored")
    assert world.stored()[PARENT].epoch == 2


def test_an_idle_query_gets_its_shards_back_after_a_lost_session(world: World) -> None:
    query = world.query()
    query.publish(offset(parent=after(1)))
    wait_until(world.is_at(1), "the progress is stored")
    world.of().expire("query")
    query.publish(offset(parent=after(1)))  # as at every question for the next batch
    wait_until(lambda: PARENT in world.of().owners, "the shard is owned again")


def test_a_fenced_write_is_made_again_under_a_new_epoch(world: World) -> None:
    query = world.query()
    query.publish(offset(parent=after(1)))
    wait_until(world.is_at(1), "the first is stored")
    # Somebody wrote while we slept: our next write meets another version.
    world.of().put(PARENT, world.of().shards[PARENT].data)
    world.of().owners.clear()
    query.publish(offset(parent=after(2)))
    wait_until(world.is_at(2), "the second is stored")
    assert world.stored()[PARENT].epoch == 2


def test_what_is_stored_never_goes_back(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.published(offset(parent=after(9), other=after(3, at_end=True)))
    query = world.query("again")
    query.publish(offset(parent=after(5), other=after(2)))
    query.publish(offset(parent=after(6), other=after(3)))
    query.finish()
    assert world.bases() == {PARENT: "9", OTHER: "SHARD_END"}
    assert "is ahead of the query" in caplog.text
    world.published(offset(parent=after(10), other=after(3, at_end=True)), "later")
    assert world.bases() == {PARENT: "10", OTHER: "SHARD_END"}


def test_another_living_consumer_is_an_error_at_the_start(world: World) -> None:
    world.of().process("a spout").coordinator.join()
    with pytest.raises(ConsumerAlive, match=r"a spout.*another checkpointApp"):
        world.query().start(offset(parent=at_horizon()))
    assert world.clock.monotonic() > OTHERS_SECONDS


def test_a_killed_run_is_waited_for_until_its_session_ends(world: World) -> None:
    world.left(parent=Checkpoint(start=HORIZON, base=number(5)))
    killed = world.of().process("killed")
    killed.coordinator.join()

    class SessionEnds(ManualClock):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            if self.monotonic() >= OTHERS_SECONDS - 1:
                killed.close()

    world.clock = SessionEnds()
    assert world.query().start(offset(parent=at_horizon())) == offset(parent=after(5))


def test_another_living_consumer_is_an_error_also_where_spark_has_the_progress(world: World) -> None:
    world.of().process("a spout").coordinator.join()
    query = world.query()
    query.publish(offset(parent=after(1)))
    query.publish(offset(parent=after(2)))
    wait_until(lambda: _fails_with(query, ConsumerAlive, world.clock), "the error is raised")
    assert world.stored() == {}


def test_a_shard_that_somebody_took_and_keeps_is_an_error(world: World) -> None:
    query = world.query()
    query.publish(offset(parent=after(1)))
    wait_until(world.is_at(1), "the first is stored")
    with world.of().lock:
        world.of().expire("query")
        taken = world.of().process("a spout").coordinator.acquire(PARENT, Checkpoint(start=HORIZON))
    assert taken is not None
    wait_until(lambda: _fails_with(query, ConsumerAlive, world.clock), "the error is raised")
    assert world.bases() == {PARENT: "1"}


def _fails_with(query: PublishedProgress, error: type[Exception], clock: ManualClock) -> bool:
    clock.advance(1.0)
    try:
        query.publish(offset(parent=after(2)))
    except error:
        return True
    return False


def test_an_address_where_nobody_answers_is_an_error_at_the_very_start(world: World) -> None:
    def open_place(stream: str) -> Place:
        raise StoreUnavailable(f"nobody answers for {stream}")

    with pytest.raises(StoreUnavailable, match="nobody answers"):
        world.query(open_place=open_place).start(offset(parent=at_horizon()))


def test_a_place_that_cannot_be_reached_at_first_is_reached_later(world: World) -> None:
    outage = [StoreUnavailable("nobody answers")]

    def open_place(stream: str) -> Place:
        if outage:
            raise outage.pop()
        return world.of(stream).process("query")

    query = world.query(open_place=open_place)
    query.publish(offset(parent=after(1)))
    wait_until(world.is_at(1), "the progress is stored")


def test_an_unexpected_failure_ends_the_query(world: World) -> None:
    def open_place(stream: str) -> Place:
        raise ZeroDivisionError(stream)

    query = world.query(open_place=open_place)
    query.publish(offset(parent=after(1)))
    with pytest.raises(ZeroDivisionError):
        query.finish()


def test_progress_on_a_stream_that_was_made_anew_is_refused(world: World) -> None:
    world.published(offset(parent=after(9)))
    recreated = offset(parent=at_horizon(), created=CREATED + 100)
    query = world.query()
    with pytest.raises(StreamRecreated, match="checkpoints forget"):
        query.start(recreated)
    query.close()
    query = world.query("later")
    query.publish(recreated)
    with pytest.raises(StreamRecreated):
        query.finish()


def test_progress_that_cannot_be_read_is_never_a_fresh_start(world: World) -> None:
    world.published(offset(parent=after(9)))
    world.of().put(PARENT, b"nonsense")
    with pytest.raises(CheckpointUnreadable, match=PARENT):
        world.query().start(offset(parent=at_horizon()))


def test_every_stream_has_a_place_of_its_own(world: World) -> None:
    both = QueryOffset(
        streams={
            ORDERS: StreamOffset(created=CREATED, shards={PARENT: after(3)}),
            RETURNS: StreamOffset(created=CREATED + 5, shards={PARENT: after(4)}),
        }
    )
    world.published(both)
    assert (world.bases(ORDERS), world.bases(RETURNS)) == ({PARENT: "3"}, {PARENT: "4"})
    at_start = {name: replace(stream, shards={PARENT: at_horizon()}) for name, stream in both.streams.items()}
    assert world.query("next").start(QueryOffset(streams=at_start)) == both


def test_streams_of_one_name_are_refused() -> None:
    arns = ",".join(f"arn:aws:kinesis:eu-central-1:{account * 12}:stream/orders" for account in "12")
    given = StreamReadOptions.of({"streamARN": arns, "checkpointApp": "billing", "zookeeper": "zk:2181"})
    with pytest.raises(InvalidConfig, match="different names"):
        PublishedProgress.of(given)


def test_nothing_is_published_unless_it_is_asked_for() -> None:
    assert PublishedProgress.of(StreamReadOptions.of({"streamName": "orders", "region": "x"})) is None


def test_the_end_of_a_query_does_not_wait_for_a_store_that_is_gone(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(published_progress, "LEAVING_SECONDS", 0.1)
    query = world.query()
    query.publish(offset(parent=after(1)))
    wait_until(world.is_at(1), "the first is stored")
    world.of().set_available(available=False)
    query.publish(offset(parent=after(2)))
    with caplog.at_level(logging.WARNING):
        query.finish()
    assert "was not published" in caplog.text
    query.publish(offset(parent=after(3)))  # passed over


# Which one wins


def listed() -> QueryOffset:
    """Every shard; the options say LATEST."""
    now = Position.at_timestamp(1e9)
    return offset(
        parent=ShardOffset(position=now),
        child=ShardOffset(position=now, parents=(PARENT,)),
        other=ShardOffset(position=now),
    )


def test_with_progress_from_spark_sparks_checkpoint_wins(world: World) -> None:
    world.published(offset(parent=after(9)))
    assert world.query("next").moved(offset(parent=after(5)), listed) is None


def test_with_progress_from_zookeeper_the_stored_progress_wins(world: World) -> None:
    world.published(offset(parent=after(9, at_end=True), child=after(3, PARENT)))
    query = world.query("next", zookeeper_wins=True)
    moved = query.moved(offset(parent=after(5)), listed)
    assert moved is not None
    assert moved.streams[ORDERS].shards[PARENT].at_end
    assert moved.streams[ORDERS].shards[CHILD] == after(3, PARENT)
    assert OTHER not in moved.streams[ORDERS].shards, "born since: read from its beginning"


def test_the_stored_progress_wins_once_in_a_run(world: World) -> None:
    world.published(offset(parent=after(3)))
    query = world.query("next", zookeeper_wins=True)
    assert query.moved(offset(parent=after(5)), listed) == offset(parent=after(3))
    assert query.moved(offset(parent=after(3)), listed) is None
    assert query.moved(offset(parent=after(4)), listed) is None


def test_a_query_that_stands_where_the_stored_progress_is_does_not_move(world: World) -> None:
    world.published(offset(parent=after(3)))
    query = world.query("next", zookeeper_wins=True)
    read = ReadRange(first=number(2), rows=2)
    assert query.moved(offset(parent=replace(after(3), read=read)), listed) is None


def test_a_query_that_began_from_the_stored_progress_goes_on_from_its_own(world: World) -> None:
    world.published(offset(parent=after(3)))
    query = world.query("next", zookeeper_wins=True)
    begun = query.start(listed())
    assert query.moved(begun, listed) is None
    query.replays(begun)  # that is: the first batch is planned
    assert query.moved(offset(parent=after(4)), listed) is None


def test_where_nothing_is_stored_spark_wins(world: World) -> None:
    assert world.query(zookeeper_wins=True).moved(offset(parent=after(5)), listed) is None


def test_a_shard_that_is_not_stored_stays_where_spark_has_it(world: World) -> None:
    world.published(offset(parent=after(3)))
    query = world.query("next", zookeeper_wins=True)
    read = ReadRange(first=number(6), rows=2)
    moved = query.moved(offset(parent=after(5), other=replace(after(7), read=read)), listed)
    assert moved == offset(parent=after(3), other=after(7))


def test_a_batch_that_spark_replayed_is_not_read_once_more(world: World) -> None:
    world.published(offset(parent=after(3), other=after(2)))
    query = world.query("next", zookeeper_wins=True)
    query.replays(offset(parent=after(3), other=after(4)))
    end = offset(
        parent=replace(after(8), read=ReadRange(first=number(4), rows=5)),
        other=replace(after(6), read=ReadRange(first=number(5), rows=2)),
    )
    # The other was moved, or its publication is missing: the stored progress wins.
    assert query.moved(end, listed) == offset(parent=after(8), other=after(2))


# With the reader


@pytest.fixture
def in_memory(monkeypatch: pytest.MonkeyPatch) -> InMemoryZooKeeper:
    """Let every reader find this ZooKeeper, as a new member."""
    zookeeper = InMemoryZooKeeper()
    members = iter(range(1000))

    def open_place(places: ZooKeeperPlaces, stream: str) -> Place:
        del places, stream
        return zookeeper.process(f"reader-{next(members)}")

    monkeypatch.setattr(ZooKeeperPlaces, "open", open_place)
    return zookeeper


def spark(stream: InMemoryStream, *, available_now: bool = False, **given: str) -> SparkInMemory:
    published = {"checkpointApp": "billing", "zookeeper": "zk:2181"}
    return SparkInMemory(options(stream, **published, **given), available_now=available_now)


def put(stream: InMemoryStream, *payloads: bytes) -> list[bytes]:
    for payload in payloads:
        stream.put(payload, partition_key=payload.decode())
    return sorted(payloads)


def payloads(query: SparkInMemory) -> list[bytes]:
    return sorted(data for _, _, data in query.rows)


def test_what_is_available_is_published_when_the_query_ends(in_memory: InMemoryZooKeeper) -> None:
    stream = InMemoryStream()
    put(stream, b"a", b"b")
    query = spark(stream, available_now=True)
    query.until_idle()
    assert str(in_memory.decode(PARENT).base) == max(number for _, number, _ in query.rows)
    assert in_memory.member_names == set()
    query.stop()


def test_a_query_without_a_checkpoint_begins_from_the_published_progress(
    in_memory: InMemoryZooKeeper,
) -> None:
    stream = InMemoryStream(shards=2)
    put(stream, b"a", b"b", b"c")
    spark(stream, available_now=True).until_idle()
    children = stream.split(PARENT)
    expected = put(stream, *(b"after %d" % key for key in range(20)))
    query = spark(stream, initialPosition="latest")
    query.until_idle()
    assert payloads(query) == expected
    query.stop()
    assert in_memory.decode(PARENT).base == SHARD_END
    assert any(in_memory.decode(child.shard_id).base > SHARD_START for child in children)


def test_a_new_query_at_latest_keeps_its_start_over_a_crash(in_memory: InMemoryZooKeeper) -> None:
    stream = InMemoryStream()
    put(stream, b"before")
    query = spark(stream, initialPosition="latest")
    query.until_idle()
    query.stop()
    expected = put(stream, b"while down")
    assert in_memory.begun is not None
    query = spark(stream, initialPosition="latest")  # without its checkpoint
    query.until_idle()
    assert payloads(query) == expected
    query.stop()


def test_a_query_without_a_checkpoint_asks_for_its_start_until_there_is_something(
    in_memory: InMemoryZooKeeper,
) -> None:
    stream = InMemoryStream()
    query = spark(stream)
    assert query.trigger() is None
    assert query.trigger() is None
    expected = put(stream, b"a")
    query.until_idle()
    assert payloads(query) == expected
    query.stop()
    assert in_memory.decode(PARENT).base > SHARD_START


@pytest.mark.parametrize(("wins", "again"), [("spark", []), ("zookeeper", [b"a", b"b"])])
def test_a_reset_moves_a_query_that_takes_its_progress_from_zookeeper(
    in_memory: InMemoryZooKeeper, wins: str, again: list[bytes]
) -> None:
    stream = InMemoryStream()
    put(stream, b"a", b"b")
    query = spark(stream, progressFrom=wins)
    query.until_idle()
    query.stop()
    query.batches.clear()
    in_memory.process("operator").store.reset({PARENT: Checkpoint(start=HORIZON)})
    query.start()
    query.until_idle()
    assert payloads(query) == again
    expected = sorted([*again, *put(stream, b"c")])
    query.until_idle()
    assert payloads(query) == expected
    query.stop()


def test_a_batch_replayed_after_a_crash_is_not_read_twice_from_zookeepers_progress(
    in_memory: InMemoryZooKeeper,
) -> None:
    stream = InMemoryStream()
    put(stream, b"a")
    query = spark(stream, progressFrom="zookeeper")
    query.until_idle()
    put(stream, b"b")
    query.trigger(fail=True)
    put(stream, b"c")
    query.until_idle()
    assert payloads(query) == [b"a", b"b", b"c"]
    query.stop()
    assert in_memory.decode(PARENT).base > SHARD_START


def test_a_failure_to_publish_ends_the_query(in_memory: InMemoryZooKeeper) -> None:
    stream = InMemoryStream()
    put(stream, b"a")
    query = spark(stream, available_now=True)
    query.until_idle()
    in_memory.put(PARENT, b"nonsense")
    with pytest.raises(CheckpointUnreadable):
        spark(stream).until_idle()
