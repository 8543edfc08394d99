"""What a whole spout delivers within its rates: by the clock, with acks, retries and dead letters."""

from math import inf

import pytest

from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.model.handler import NotNow
from kinesis_spout.plain.stream_tuples import Emitted
from kinesis_spout.settings import SpoutConfig
from kinesis_spout.testing import (
    SteppedSpout,
)
from tests.support.consumer.world import SteppedWorld


class _World(SteppedWorld):
    """A stream, and who read it when. Mutable."""

    def __init__(self, *, shards: int = 1, records: int = 100) -> None:
        super().__init__(shards, retry_backoff_seconds=0.1, retry_backoff_cap_seconds=0.1)
        self.delivered: list[tuple[float, str, str]] = []
        """When, of which shard, and what."""
        for number in range(records):
            self.put(str(number), key=f"key-{number}")

    def step(
        self, spouts: list[SteppedSpout], seconds: float, *, fails: frozenset[str] = frozenset()
    ) -> None:
        until = self.clock.monotonic() + seconds
        while self.clock.monotonic() < until:
            for spout in spouts:
                while (emitted := spout.next_tuple()) is not None:
                    self._handle(spout, emitted, fails)
            self.clock.advance(0.05)

    def _handle(self, spout: SteppedSpout, emitted: Emitted, fails: frozenset[str]) -> None:
        record = emitted.values
        payload = record.data.decode()
        self.delivered.append((self.clock.monotonic(), record.shard_id, payload))
        if payload in fails:
            spout.fail(emitted.message_id, "no")
        else:
            spout.ack(emitted.message_id)

    @property
    def most_in_a_second(self) -> int:
        times = [at for at, _, _ in self.delivered]
        return max(sum(begin <= at < begin + 0.999 for at in times) for begin in times)


@pytest.mark.parametrize("rate", [0.5, 3, 20])
def test_no_second_has_more_deliveries_than_the_rate_and_over_time_there_are_as_many(rate: float) -> None:
    world = _World(records=200)
    with world.new_spout(max_deliveries_per_second=rate).open() as spout:
        world.step([spout], 10.0)

    assert world.most_in_a_second <= max(1, rate)
    assert 0.85 * rate * 10 <= len(world.delivered) <= rate * 10 + max(1, rate)


def test_it_says_for_how_long_nothing_is_given() -> None:
    world = _World()
    with world.new_spout(max_deliveries_per_second=0.1).open() as spout:
        world.step([spout], 1.0)
        assert spout.next_tuple() is None
        assert 8.5 <= spout.rate_wait_seconds <= 10.0
        world.step([spout], 9.5)
        assert len(world.delivered) == 2
    with _World().new_spout().open() as spout:
        assert spout.rate_wait_seconds == 0.0


def test_acks_and_commits_go_on_while_the_rate_holds_back() -> None:
    world = _World(records=50)
    with world.new_spout(max_deliveries_per_second=0.01, commit_interval_seconds=1.0).open() as spout:
        emitted = None
        while emitted is None:
            emitted = spout.next_tuple()
            world.clock.advance(0.05)
        assert spout.rate_wait_seconds > 60
        spout.ack(emitted.message_id)
        for _ in range(40):
            assert spout.next_tuple() is None
            world.clock.advance(0.1)
        assert spout.uncommitted == 0, "what was acked is stored"
        assert spout.counters.commits >= 1


def test_retries_count_and_starve_no_fresh_records_and_end_as_dead_letters() -> None:
    world = _World(records=30)
    bad = frozenset(str(number) for number in range(5))
    with world.new_spout(max_deliveries_per_second=5, retry_limit=3).open() as spout:
        world.step([spout], 3.0, fails=bad)
        first = [payload for _, _, payload in world.delivered]
        assert len(set(first)) > 6, "fresh records are delivered beside the retries"
        world.step([spout], 10.0, fails=bad)
        world.step([spout], 1.0)

    assert world.most_in_a_second <= 5
    assert len(world.delivered) == 25 + 5 * 4
    assert len(world.dead_letters.letters) == 5


def test_a_tuple_that_is_put_off_burns_no_attempt() -> None:
    world = _World(records=1)
    with world.new_spout(retry_limit=0).open() as spout:
        for _ in range(5):
            emitted = None
            while emitted is None:
                emitted = spout.next_tuple()
                world.clock.advance(0.1)
            assert spout.fail(emitted.message_id, NotNow(1.0))
        world.step([spout], 3.0)
        assert spout.counters.given_up == 0
        assert len(world.delivered) == 1


def test_the_few_deliveries_go_round_the_shards() -> None:
    world = _World(shards=4, records=200)
    with world.new_spout(max_deliveries_per_second=2).open() as spout:
        world.step([spout], 10.0)
    counts = [
        sum(shard == each for _, each, _ in world.delivered) for shard in {s for _, s, _ in world.delivered}
    ]
    assert len(counts) == 4
    assert min(counts) >= 4


def test_two_members_share_the_rate_of_the_application_and_the_one_that_is_left_has_all_of_it() -> None:
    world = _World(shards=4, records=2_000)
    one, other = (world.new_spout(max_total_deliveries_per_second=20) for _ in range(2))
    one.open()
    other.open()
    world.step([one, other], 20.0)
    both = sum(10.0 <= at < 20.0 for at, _, _ in world.delivered)
    other.close()
    world.step([one], 20.0)
    alone = sum(30.0 <= at < 40.0 for at, _, _ in world.delivered)
    one.close()

    assert 0.8 * 200 <= both <= 200 + 20
    assert 0.8 * 200 <= alone <= 200 + 20
    assert world.most_in_a_second <= 20 + 2


def test_a_member_without_shards_waits_without_end() -> None:
    world = _World(shards=1)
    one, other = (world.new_spout(max_total_deliveries_per_second=20) for _ in range(2))
    one.open()
    other.open()
    world.step([one, other], 5.0)
    assert sorted((one.rate_wait_seconds, other.rate_wait_seconds))[1] == inf
    one.close()
    other.close()


@pytest.mark.parametrize("name", ["max_deliveries_per_second", "max_total_deliveries_per_second"])
@pytest.mark.parametrize("wrong", [0, -1, float("nan"), float("inf"), 2_000_000, "many", True])
def test_what_is_no_rate_is_refused(name: str, wrong: object) -> None:
    with pytest.raises(InvalidConfig, match=name):
        SpoutConfig.of(**{"stream": "orders", "app": "billing", name: wrong})  # type: ignore[arg-type]
