"""The micro-batch engine while Kinesis pushes to the driver."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from kinesis_spout.testing import InMemoryStream
from shard_state import SliceKind
from tests.support.kinesis.pushed_stream import FanOutServer, serve, subscribed
from tests.support.kinesis.unkind.behaviours import Behaviour
from tests.unit.spark.driver.world import FIRST, Diary, EngineWorld, StreamClient

DRIVER_READS = {"driver_reads_all": True, "poll_seconds": 1.0, "idle_poll_seconds": 1.0}
"""Polls come late: two for each cut."""


@pytest.fixture
def world(fan_out_server: FanOutServer) -> Iterator[EngineWorld]:
    with ExitStack() as opened:
        world = EngineWorld()
        world.stream = InMemoryStream("orders")  # time is real: sockets do not wait for a test
        world.client = StreamClient(world.stream)
        service = serve(world.stream, fan_out_server, opened)
        service.push(Behaviour.CUT, times=2)
        world.fresh_getter = subscribed(world.stream, fan_out_server, opened).getter
        yield world
        world.close()


def test_the_driver_reads_a_backlog_and_the_tip_and_executors_carry(world: EngineWorld) -> None:
    backlog = world.put(*(f"b{number}" for number in range(50)))
    diary = Diary()
    running = world.start(diary, engine=DRIVER_READS)
    diary.until([record.data.decode() for record in backlog])
    late = world.put("late")
    diary.until(["late"])
    world.until_stored(late[0])

    assert diary.payloads == [f"b{number}" for number in range(50)] + ["late"]
    assert running.runner.slices(SliceKind.READ) == []


def test_a_failed_record_comes_again_from_what_the_driver_kept(world: EngineWorld) -> None:
    diary = Diary(bad=[ValueError("once")])
    world.start(diary, engine=DRIVER_READS)
    world.put("good", "bad")

    diary.until(["good", "bad"])
    world.until_stored(world.put("end")[0])

    assert diary.attempts("bad") == [1, 2]


def test_a_split_is_read_through(world: EngineWorld) -> None:
    diary = Diary()
    world.start(diary, engine=DRIVER_READS)
    world.put("before")
    world.stream.split(FIRST)
    world.put("after")

    diary.until(["before", "after"])

    assert diary.payloads == ["before", "after"]


def test_caught_up_means_that_an_event_said_so_since(world: EngineWorld) -> None:
    diary = Diary()
    running = world.start(diary, engine=DRIVER_READS | {"poll_seconds": 0.05, "idle_poll_seconds": 0.05})
    world.put(*(f"r{number}" for number in range(20)))

    running.query.processAllAvailable()

    assert len(diary.payloads) == 20
