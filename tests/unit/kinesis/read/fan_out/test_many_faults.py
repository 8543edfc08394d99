"""Take-overs, cuts and renewals by the dozen, while shards are split: each record once, in its shard's order."""

import random
from collections import Counter
from contextlib import ExitStack

import pytest

from kinesis_spout.kinesis import FanOutShardGetter, FanOutStream
from kinesis_spout.kinesis.read.fan_out.subscription_reader import SubscriptionPeriods
from kinesis_spout.model.errors import KinesisError
from kinesis_spout.testing import InMemoryStream
from shard_state import Position
from tests.support.kinesis.pushed_stream import FAULTS as PUSH_FAULTS
from tests.support.kinesis.pushed_stream import FanOutServer, serve, subscribed
from tests.support.kinesis.streams_under_test import LeapingClock
from tests.support.kinesis.unkind.behaviours import Behaviour
from tests.support.waiting import wait_until

pytestmark = pytest.mark.no_second_run

FAULTS = 120
RENEWAL_SECONDS = 0.3


class Members:
    """Two members of an application, which take shards from each other. Mutable."""

    def __init__(self, stream: InMemoryStream, service: FanOutServer, members: list[FanOutStream]) -> None:
        self._service = service
        self._members = members
        self._getters: dict[str, FanOutShardGetter] = {}
        self._owners: dict[str, int] = {}
        self.read: dict[str, list[str]] = {}
        self.done: Counter[str] = Counter()
        for shard in stream.list_shards():
            self._own(shard.shard_id, Position.trim_horizon())

    def _own(self, shard_id: str, position: Position) -> None:
        owner = self._owners[shard_id] = 1 - self._owners.get(shard_id, 0)
        self._getters[shard_id] = self._members[owner].getter(shard_id, position)
        self.read.setdefault(shard_id, [])

    def look(self) -> None:
        """Read what came, and the children of what ended."""
        for shard_id, getter in list(self._getters.items()):
            try:
                page = getter.read(50)
            except KinesisError:
                self.done["errors"] += 1
                continue
            self.read[shard_id] += [record.sequence_number for record in page.records]
            if page.at_end:
                del self._getters[shard_id]
                for child in page.child_shards:
                    self._own(child.shard_id, Position.trim_horizon())

    def suffer(self, drawn: random.Random) -> None:
        """Have something happen to a shard."""
        shard_id = drawn.choice(sorted(self._getters))
        match drawn.choice(("other member", "taken over", *PUSH_FAULTS)):
            case Behaviour() as fault:
                self._service.push(fault)
            case "taken over":
                self.done["taken over"] += self._service.take_over(shard_id)
            case _:
                old = self._getters[shard_id]
                if drawn.random() < 0.5:  # the old owner has not noticed yet
                    old.close()
                self._own(shard_id, old.position)
                self.done["other member"] += 1


def test_each_record_comes_once_and_in_order_whatever_happens_to_subscriptions_during_splits(
    fan_out_server: FanOutServer,
) -> None:
    seed = random.SystemRandom().randrange(1_000_000)
    print(f"seed {seed}")  # noqa: T201 - shown when it fails
    drawn, clock = random.Random(seed), LeapingClock()
    stream = InMemoryStream(shards=3, clock=clock)
    with ExitStack() as opened:
        service = serve(stream, fan_out_server, opened)
        periods = SubscriptionPeriods(again_after_seconds=0.0, renew_after_seconds=RENEWAL_SECONDS)
        members = [subscribed(stream, fan_out_server, opened, clock=clock, periods=periods) for _ in range(2)]
        world = Members(stream, service, members)
        for number in range(FAULTS):
            for _ in range(20):
                stream.put(b"x" * drawn.randrange(2000), str(drawn.random()))
            world.suffer(drawn)
            if number % 30 == 15:
                still_open = [shard.shard_id for shard in stream.list_shards() if not shard.closed]
                stream.split(drawn.choice(still_open))
            world.look()
            seen = service.counts.total() + len(service.granted)

            def has_more(seen: int = seen) -> bool:
                world.look()
                return service.counts.total() + len(service.granted) > seen

            wait_until(has_more, "the fault, or a renewal")
        wanted = {
            shard.shard_id: [record.sequence_number for record in stream.records(shard.shard_id)]
            for shard in stream.list_shards()
        }

        def has_all() -> bool:
            world.look()
            return world.read == wanted

        wait_until(has_all, "every record")
        connections = sum(member.reader.connections for member in members)
    print(f"{connections} connections; {dict(service.counts + world.done)}")  # noqa: T201 - with -s
    assert connections > FAULTS
