"""The plain-Python door while Kinesis pushes."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from kinesis_spout.testing import InMemoryStream
from tests.support.consumer.world import World
from tests.support.kinesis.pushed_stream import FanOutServer, serve, subscribed
from tests.support.kinesis.streams_under_test import LeapingClock
from tests.support.kinesis.unkind.behaviours import Behaviour
from tests.support.waiting import wait_until


class Pushed(World):
    """Time is real here: sockets do not wait for a test."""

    def __init__(self, server: FanOutServer, opened: ExitStack) -> None:
        super().__init__()
        self.clock = LeapingClock()  # type: ignore[assignment]  # sockets need real time
        self.stream = InMemoryStream("orders")
        self.service: FanOutServer = serve(self.stream, server, opened)
        self.open_getter = subscribed(self.stream, server, opened, clock=self.clock).getter


@pytest.fixture
def world(fan_out_server: FanOutServer) -> Iterator[Pushed]:
    with ExitStack() as opened:
        world = Pushed(fan_out_server, opened)
        yield world
        world.close()


def test_pushed_records_are_delivered_through_cuts_and_a_split_and_the_progress_is_stored(
    world: Pushed,
) -> None:
    spout = world.spout()
    seen: list[str] = []

    def has(count: int) -> bool:
        emitted = spout.next_tuple()
        if emitted is not None:
            seen.append(emitted.values)
            spout.ack(emitted.message_id)
        return len(seen) >= count

    world.put(*(f"a{number}" for number in range(20)))
    wait_until(lambda: has(20), "the first records")
    world.service.push(Behaviour.CUT)
    world.put(*(f"b{number}" for number in range(20)))
    wait_until(lambda: has(40), "the records after a cut")
    world.stream.split("shardId-000000000000")
    ids = world.put(*(f"c{number}" for number in range(20)))
    wait_until(lambda: has(60), "the records after a split")

    assert seen == [f"{round_}{number}" for round_ in "abc" for number in range(20)]
    shard_id, _, sequence = ids[-1].rpartition(":")
    wait_until(lambda: str(world.stored(shard_id).base) == sequence, "the checkpoint")


def test_a_lost_shard_is_subscribed_to_no_more(world: Pushed) -> None:
    spout = world.spout()
    world.put("one")
    wait_until(lambda: spout.next_tuple() is not None, "a record")

    spout.close()

    wait_until(lambda: not world.service.is_pushing, "the subscription to end")
