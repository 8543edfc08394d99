"""What is stored with the progress: both or neither, and all shards in one place."""

import json
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from kinesis_spout.consumer.consumer import Consumer
from kinesis_spout.consumer.ports import Ports
from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.plain.record_spout import RecordSpout
from kinesis_spout.plain.stream_tuples import Emitted
from kinesis_spout.settings import SpoutConfig
from tests.support.consumer.world import FIRST, NEVER, SECOND, World, opened

pytestmark = pytest.mark.no_second_run

NAME = "tally"


class Tally:
    """Counts payloads: the simplest content that must count each record once."""

    name = NAME

    def __init__(self) -> None:
        self.counted: Counter[str] | None = None
        self.losses = 0
        self._stored: bytes | None = None

    def load(self, stored: bytes | None) -> None:
        self._stored = stored
        self.counted = Counter(json.loads(stored)) if stored is not None else Counter()

    def attachment(self) -> bytes | None:
        assert self.counted is not None, "nothing is committed before it is loaded, or after it was lost"
        data = json.dumps(self.counted).encode()
        return None if data == self._stored or not self.counted else data

    def committed(self, data: bytes) -> None:
        if self.counted is not None:
            self._stored = data

    def lost(self) -> None:
        self.counted = None
        self.losses += 1


class TallyingSpout(RecordSpout):
    """A spout whose acked records are tallied in the moment of their ack."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.tally = Tally()

    def _new_consumer(self, config: SpoutConfig, ports: Ports) -> Consumer:
        return Consumer(config, ports, message_timeout_seconds=None, companion=self.tally)

    def finish(self, emitted: Emitted) -> None:
        consumer, _ = opened(self)
        with consumer.lock:
            if self.ack(emitted.message_id):
                assert self.tally.counted is not None, "nothing is handed out before the tally is loaded"
                self.tally.counted[str(emitted.values)] += 1


class TallyWorld(World):
    def __init__(self, shards: int = 1) -> None:
        super().__init__(shards)
        self.tallying: list[TallyingSpout] = []

    def tally_spout(self, **settings: Any) -> TallyingSpout:
        chosen: dict[str, Any] = {
            "stream": "orders",
            "app": "billing",
            "initial_position": "trim_horizon",
            "commit_interval_seconds": 0.02,
            "shard_list_interval_seconds": 0.05,
            **settings,
        }
        spout = TallyingSpout(ports=self.ports(), scheme="text", **chosen)
        self.tallying.append(spout)
        spout.open()
        return spout

    def work(self, spout: TallyingSpout, *payloads: str) -> None:
        """Let a spout finish what comes until what is stored counts each of these once."""

        def done() -> bool:
            while (emitted := spout.next_tuple()) is not None:
                spout.finish(emitted)
            return self.stored_tally() == dict.fromkeys(payloads, 1)

        self.until(done, lambda: f"each of {payloads} counted once, got {self.stored_tally()}")

    def stored_tally(self) -> dict[str, int]:
        with self.zookeeper.lock:
            node = self.zookeeper.attached.get(NAME)
            return {} if node is None or not node.data else dict(json.loads(node.data))

    def take_tuple(self, spout: TallyingSpout) -> Emitted:
        (emitted,) = self.take(spout, 1)
        return emitted

    def close(self) -> None:
        for spout in self.tallying:
            if not spout._closed:
                spout.close()
        super().close()


@pytest.fixture
def world() -> Iterator[TallyWorld]:
    world = TallyWorld()
    yield world
    world.close()


@pytest.fixture
def two_shards() -> Iterator[TallyWorld]:
    world = TallyWorld(shards=2)
    yield world
    world.close()


def test_a_record_is_counted_where_its_progress_is_stored(world: TallyWorld) -> None:
    spout = world.tally_spout()
    *_, last = world.put("a", "b", "c")
    world.work(spout, "a", "b", "c")
    world.until_stored(last)


def test_whenever_a_consumer_is_killed_each_record_is_counted_once(world: TallyWorld) -> None:
    draws = random.Random(7)
    payloads = [f"p{number}" for number in range(40)]
    world.put(*payloads)
    for _ in range(6):
        spout = world.tally_spout(commit_interval_seconds=draws.choice([0.02, NEVER]))
        for _ in range(draws.randrange(1, 6)):
            spout.finish(world.take_tuple(spout))
        world.crash(spout)
        world.zookeeper.expire(f"member-{len(world.tallying)}")
    world.work(world.tally_spout(), *payloads)


def test_what_was_not_committed_is_forgotten_with_a_lost_session_and_counted_anew(world: TallyWorld) -> None:
    spout = world.tally_spout(commit_interval_seconds=NEVER)
    world.put("a", "b", "c")
    spout.finish(world.take_tuple(spout))
    in_flight = world.take_tuple(spout)
    world.zookeeper.expire("member-1")
    world.until(lambda: spout.tally.losses == 1, "the loss is noticed")
    spout.finish(in_flight)
    assert world.stored_tally() == {}
    for _ in range(3):
        spout.finish(world.take_tuple(spout))
    spout.close()
    assert world.stored_tally() == {"a": 1, "b": 1, "c": 1}


def test_a_shard_lost_alone_ends_the_consumer_and_nothing_more_is_stored(two_shards: TallyWorld) -> None:
    world = two_shards
    spout = world.tally_spout(commit_interval_seconds=NEVER)
    world.put_in(FIRST, "a")
    world.put_in(SECOND, "b")
    for emitted in world.take(spout, 2):
        spout.finish(emitted)
    world.zookeeper.remove_owner(SECOND)

    consumer, _ = opened(spout)
    world.until(lambda: consumer.fatal is not None, "the consumer ends")
    with pytest.raises(InvalidConfig, match='mode="standby"'):
        spout.next_tuple()
    spout.close()
    assert world.stored_tally() == {}
    world.work(world.tally_spout(), "a", "b")


def test_a_fenced_shard_ends_the_consumer_too(two_shards: TallyWorld) -> None:
    world = two_shards
    spout = world.tally_spout()
    world.put_in(FIRST, "a")
    world.work(spout, "a")
    with world.zookeeper.lock:  # somebody else has written it
        world.zookeeper.put(SECOND, world.zookeeper.shards[SECOND].data)
    world.put_in(FIRST, "b")
    spout.finish(world.take_tuple(spout))
    consumer, _ = opened(spout)
    world.until(lambda: isinstance(consumer.fatal, InvalidConfig), "the consumer ends")
    spout.close()
    assert world.stored_tally() == {"a": 1}
    world.work(world.tally_spout(), "a", "b")


def test_a_second_consumer_that_shares_ends_the_first_and_goes_on_from_what_it_stored(
    two_shards: TallyWorld,
) -> None:
    world = two_shards
    first = world.tally_spout(commit_interval_seconds=NEVER)
    world.put_in(FIRST, "a")
    world.put_in(SECOND, "b")
    for emitted in world.take(first, 2):
        first.finish(emitted)
    second = world.tally_spout()
    consumer, _ = opened(first)
    world.until(lambda: isinstance(consumer.fatal, InvalidConfig), "the first ends")
    assert second.next_tuple() is None, "it waits until it has all shards"
    first.close()
    assert world.stored_tally() == {"a": 1, "b": 1}, "closing stores what is right still"
    world.put_in(FIRST, "c")
    world.put_in(SECOND, "d")
    world.work(second, "a", "b", "c", "d")


def test_a_stand_by_disturbs_nothing_and_takes_over(two_shards: TallyWorld) -> None:
    world = two_shards
    first = world.tally_spout()
    standby = world.tally_spout(mode="standby")
    world.put_in(FIRST, "a")
    world.put_in(SECOND, "b")
    world.work(first, "a", "b")
    world.crash(first)
    world.zookeeper.expire("member-1")
    world.put_in(SECOND, "c")
    world.work(standby, "a", "b", "c")


def test_two_consumers_that_never_let_each_other_alone_say_so(two_shards: TallyWorld) -> None:
    """Both started at once, and each was assigned a half: none of them has all."""
    world = two_shards
    settings = {"hand_over_timeout_seconds": 1.0, "session_timeout_seconds": 2.0}
    one = world.tally_spout(**settings)
    two = world.tally_spout(**settings)
    consumers = [opened(spout)[0] for spout in (one, two)]
    world.until(
        lambda: all(each.fatal is not None for each in consumers), "both end: nobody closed the other"
    )
    assert all("are assigned to" in str(each.fatal) or "took" in str(each.fatal) for each in consumers)


def test_the_end_of_a_shard_is_no_loss(world: TallyWorld) -> None:
    spout = world.tally_spout()
    world.put("a")
    world.work(spout, "a")
    world.stream.split(FIRST)
    world.put("b", "c")
    world.work(spout, "a", "b", "c")
    world.until(lambda: world.stored(FIRST).is_shard_end, "the parent is stored as over")
    assert spout.tally.losses == 0


def test_what_changes_without_records_is_stored_too(world: TallyWorld) -> None:
    spout = world.tally_spout()
    world.put("a")
    world.work(spout, "a")
    consumer, _ = opened(spout)
    with consumer.lock:
        assert spout.tally.counted is not None
        spout.tally.counted["tick"] += 1
    world.work(spout, "a", "tick")


def test_what_somebody_else_stored_meanwhile_is_taken_instead_of_overwritten(world: TallyWorld) -> None:
    spout = world.tally_spout()
    world.put("a")
    world.work(spout, "a")
    world.zookeeper.attach(NAME, b'{"a": 1, "by hand": 1}')
    world.put("b")
    world.work(spout, "a", "by hand", "b")
    assert spout.tally.losses == 1
