"""Runs of the micro-batch engine that end by themselves, with everything around it but Spark."""

from kinesis_spout.model.record import Record
from kinesis_spout.testing import ManualClock
from shard_state import ShardPhase, SliceKind
from tests.unit.spark.driver.world import Diary, EngineWorld, KillsWorker, RunningQuery


def at_the_end(running: RunningQuery) -> RunningQuery:
    """Wait until it has ended by itself."""
    assert running.query.awaitTermination(60.0)
    assert running.query.is_done
    assert not running.query.isActive
    return running


def clock(world: EngineWorld) -> ManualClock:
    assert isinstance(world.stream.clock, ManualClock)
    return world.stream.clock


def put_before_and_after(world: EngineWorld) -> tuple[Record, float]:
    """Put 30 records, and 20 more that arrive later; gives the last of the first, and the time between."""
    *_, last = world.put(*(f"r{number}" for number in range(30)))
    clock(world).advance(100.0)
    until = clock(world).time()
    world.put(*(f"late{number}" for number in range(20)))
    return last, until


def test_a_query_with_until_ends_by_itself_when_what_was_there_is_stored(world: EngineWorld) -> None:
    *_, last = world.put("a", "b", "c")
    diary = Diary(b=[ValueError("once")])
    running = at_the_end(world.start(diary, until="latest"))
    assert sorted(diary.payloads) == ["a", "b", "b", "c"]
    assert world.stored().base == last.sequence
    assert running.query.status["message"] == "Done: came up to its end"
    assert running.query.exception() is None
    assert not world.zookeeper.process("looks").coordinator.members(), "its shards are free"
    running.query.stop()


def test_executors_stop_before_the_record_that_ends_a_shard_and_the_next_run_goes_on_there(
    world: EngineWorld,
) -> None:
    last, until = put_before_and_after(world)
    diary = Diary()
    running = at_the_end(world.start(diary, until=until, task={"records_per_fetch": 7}))
    assert diary.payloads == [f"r{number}" for number in range(30)]
    assert running.runner.slices(SliceKind.READ)
    assert world.stored().base == last.sequence
    assert [status.phase for status in running.query.shards()] == [ShardPhase.AT_BOUND]

    following = Diary()
    at_the_end(world.start(following, until="latest"))
    assert following.payloads == [f"late{number}" for number in range(20)]


def test_the_driver_stops_before_the_record_that_ends_a_shard(world: EngineWorld) -> None:
    """Executors read the first record only, so that the bound is in a page of the driver's."""
    _, until = put_before_and_after(world)
    diary = Diary()
    at_the_end(world.start(diary, until=until, engine={"records_per_fetch": 100}, max_records_per_slice=1))
    assert diary.payloads == [f"r{number}" for number in range(30)]


def test_a_time_that_is_over_within_a_page_keeps_what_was_not_reached_on_this_side_of_the_bound(
    world: EngineWorld,
) -> None:
    """What executors fetched and had no time for travels back, up to the bound and no further."""
    _, until = put_before_and_after(world)
    diary = Diary()
    task = {"max_seconds": 0.0, "max_left_bytes": 1 << 20, "records_per_fetch": 100}
    at_the_end(world.start(diary, until=until, task=task))
    assert diary.payloads == [f"r{number}" for number in range(30)]


def test_a_worker_that_dies_before_the_bound_changes_nothing_of_it(world: EngineWorld) -> None:
    _, until = put_before_and_after(world)
    diary = Diary(r29=[KillsWorker()])
    at_the_end(world.start(diary, until=until))
    assert {*diary.payloads} == {f"r{number}" for number in range(30)}
