"""Averaged rates and patience together: shards stay while loads are noisy, and move when they have changed."""

from collections import Counter
from collections.abc import Callable
from random import Random

import pytest

from shard_state import Assignment, AssignmentPlanner, GroupMember, Shard
from shard_state.assignment.observed_rates import OBSERVED_SECONDS, SETTLED_SECONDS, ObservedRates

RATE = 100_000.0
BURST_OF = 6
"""Observations: all of a minute's bytes come in one of them."""
HOUR = int(3600 / OBSERVED_SECONDS)

Load = Callable[[int, int], float]
"""Bytes per second of a shard at a step."""


def noise(part: float) -> Load:
    random = Random(7)
    return lambda _shard, _step: RATE * (1 + random.uniform(-part, part))


def bursts(shard: int, step: int) -> float:
    """Give ten seconds in each minute, another ten for each shard."""
    return RATE * BURST_OF if step % BURST_OF == Random(shard).randrange(BURST_OF) else 0.0


def bursts_at_any_time(shard: int, step: int) -> float:
    minute = step // BURST_OF
    return RATE * BURST_OF if step % BURST_OF == Random(shard * 1_000 + minute).randrange(BURST_OF) else 0.0


class Group:
    """A hundred shards of ten members, which observe them every ten seconds, and a leader."""

    def __init__(self, load: Load, members: int = 10, shards: int = 100) -> None:
        self.load = load
        self.step = 0
        self.moves: Counter[str] = Counter()
        self.shards = [Shard(shard_id=f"{at:03}") for at in range(shards)]
        self.observed = {f"m{at}": ObservedRates() for at in range(members)}
        self.lead(Assignment())

    def lead(self, current: Assignment) -> None:
        """Begin a leader's term."""
        self.planner = AssignmentPlanner(current)
        self.planner.listed(self.shards, {})
        self.planner.plan(self.members(), self.now)
        self.moves.clear()

    @property
    def now(self) -> float:
        return self.step * OBSERVED_SECONDS

    @property
    def current(self) -> Assignment:
        return self.planner.current

    def members(self) -> list[GroupMember]:
        return [
            GroupMember.decode(GroupMember(name=name, rates=rates.said).encode(), name=name, joined=at)
            for at, (name, rates) in enumerate(self.observed.items())
        ]

    def run(self, steps: int) -> None:
        for _ in range(steps):
            for name, rates in self.observed.items():
                owned = self.current.of(name)
                read = {
                    each: int(OBSERVED_SECONDS * self.load(int(each), self.step)) for each in sorted(owned)
                }
                rates.observe(read, owned, OBSERVED_SECONDS)
            self.step += 1
            before = self.current.owners
            self.planner.plan(self.members(), self.now)
            self.moves.update(name for name, owner in before.items() if self.current.owners[name] != owner)

    def loads(self, load: Load) -> list[float]:
        """Give the load of each member, as a part of its share."""
        whole = sum(load(int(shard.shard_id), self.step) for shard in self.shards)
        return [
            sum(load(int(each), self.step) for each in self.current.of(name)) * len(self.observed) / whole
            for name in self.observed
        ]


@pytest.mark.parametrize("load", [noise(0.1), noise(0.3)], ids=["10 %", "30 %"])
def test_noise_moves_nothing(load: Load) -> None:
    group = Group(load)
    group.run(2 * HOUR)
    assert not group.moves


@pytest.mark.parametrize("load", [bursts, bursts_at_any_time])
def test_bursts_in_each_minute_move_next_to_nothing(load: Load) -> None:
    group = Group(load)
    group.run(2 * HOUR)
    assert group.moves.total() <= 20


def test_a_leader_that_begins_anew_every_few_minutes_moves_nothing_either() -> None:
    group = Group(noise(0.3))
    for _ in range(10):
        group.run(40)
        assert not group.moves
        group.lead(group.current)


def test_a_member_with_twice_the_load_is_relieved_within_minutes() -> None:
    noisy = noise(0.1)
    group = Group(noisy)
    group.run(60)
    busy = {int(each) for each in group.current.of("m3")}

    def doubled(shard: int, step: int) -> float:
        return noisy(shard, step) * (2 if shard in busy else 1)

    group.load = doubled
    assert max(group.loads(doubled)) > 1.7
    group.run(int(300 / OBSERVED_SECONDS))
    assert max(group.loads(doubled)) < 1.5
    group.run(int(600 / OBSERVED_SECONDS))
    assert max(group.loads(doubled)) < 1.25
    assert group.moves.total() <= 10


def test_a_member_that_joins_has_its_share_at_once_and_nothing_moves_after() -> None:
    group = Group(noise(0.3))
    group.run(60)
    group.observed["new"] = ObservedRates()
    group.run(1)
    assert len(group.current.of("new")) == 9
    group.moves.clear()
    group.run(HOUR)
    assert not group.moves


# What a member says


def observed(*reads: int) -> ObservedRates:
    rates = ObservedRates()
    for read in reads:
        rates.observe({"a": read}, {"a", "b"}, OBSERVED_SECONDS)
    return rates


def test_nothing_is_said_of_a_shard_before_it_was_observed_for_a_minute() -> None:
    settled = int(SETTLED_SECONDS / OBSERVED_SECONDS)
    assert observed(*[1_000] * (settled - 1)).said == {}
    assert observed(*[1_000] * settled).said == {"a": pytest.approx(100.0), "b": 0.0}


def test_half_of_a_lasting_change_is_said_after_about_two_minutes() -> None:
    rates = observed(*[1_000] * 100, *[3_000] * 14)
    assert rates.said["a"] == pytest.approx(200.0, rel=0.1)


def test_what_hardly_changes_is_not_said_anew() -> None:
    rates = observed(*[1_000] * 20)
    said = rates.said
    for read in (1_100, 900) * 20:
        rates.observe({"a": read}, {"a", "b"}, OBSERVED_SECONDS)
        assert rates.said is said


def test_a_shard_that_is_given_away_is_forgotten() -> None:
    rates = observed(*[1_000] * 20)
    rates.observe({"a": 1_000}, {"b"}, OBSERVED_SECONDS)
    assert rates.said == {"b": 0.0}
    rates.observe({"a": 9_000}, {"a", "b"}, OBSERVED_SECONDS)
    assert rates.said == {"b": 0.0}


def test_an_observation_counts_for_as_long_as_it_took() -> None:
    once, often = ObservedRates(), ObservedRates()
    for _ in range(6):
        often.observe({"a": 1_000}, {"a"}, OBSERVED_SECONDS)
    once.observe({"a": 6_000}, {"a"}, 6 * OBSERVED_SECONDS)
    for rates in (once, often):
        rates.observe({}, {"a"}, 10 * OBSERVED_SECONDS)
    assert once.said["a"] == pytest.approx(often.said["a"])
