"""AssignmentPlanner under members that come, go, drain and change, and a stream that is split and merged.

The followers of the model do at once what an assignment says. After each plan everything is checked that must hold
of any assignment, and what must hold of a move.
"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from shard_state import (
    SHARD_END,
    SHARD_START,
    Assignment,
    AssignmentPlanner,
    Checkpoint,
    GroupMember,
    MemberMode,
    Position,
    Shard,
)
from shard_state.assignment.assignment_planner import (
    IDLE_BYTES_PER_SECOND,
    LASTING_SECONDS,
    TOLERATED_DIFFERENCE,
)

pytestmark = pytest.mark.no_second_run

RATES = st.sampled_from((0.0, 1_000.0, 20_000.0, 100_000.0, 110_000.0, 1_000_000.0))
WEIGHTS = st.sampled_from((1.0, 1.0, 1.0, 0.5, 3.0))
MODES = st.sampled_from((MemberMode.SHARING, MemberMode.SHARING, MemberMode.SHARING, MemberMode.STANDBY))


@dataclass
class Living:
    """A member as the world knows it."""

    name: str
    joined: int
    weight: float
    mode: MemberMode
    draining: bool = False
    ended: set[str] = field(default_factory=set)


class PlannerModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.shards: dict[str, Shard] = {}
        self.rates: dict[str, float] = {}
        self.observed: dict[str, float] = {}
        """The rates that the planner was told last, of the shards that may be read."""
        self.over: set[str] = set()
        """Whose SHARD_END is in the store."""
        self.in_sight: set[str] = set()
        """What was listed last, and whatever was assigned."""
        self.assigned: set[str] = set()
        """Whatever was."""
        self.members: dict[str, Living] = {}
        self.joined = 0

    @initialize(shards=st.integers(1, 12), equal=st.booleans(), members=st.integers(0, 3))
    def begin(self, shards: int, *, equal: bool, members: int) -> None:
        self.equal = equal
        """Whether all rates are the same: then numbers of shards say everything."""
        for _ in range(shards):
            self.open_shard()
        for _ in range(members):
            self.join(1.0, MemberMode.SHARING)
        self.lead(Assignment())
        self.list_shards(behind=0)

    def lead(self, current: Assignment) -> None:
        self.planner = AssignmentPlanner(current)
        self.too_much_since: dict[str, float] = {}
        """The members that had too much at each plan of this planner since."""
        self.planned_for: tuple[object, object] | None = None
        """The members that take shards, and the shards, at the planner's last plan."""
        self.observed = {}

    def open_shard(self, *parents: str) -> None:
        shard_id = f"shard-{len(self.shards):03}"
        self.shards[shard_id] = Shard(shard_id=shard_id, parents=parents)
        self.rates[shard_id] = 0.0

    # The stream

    @precondition(lambda self: len(self.shards) < 30)
    @rule(data=st.data())
    def split(self, data: st.DataObject) -> None:
        parent = data.draw(st.sampled_from(self.open_shards()))
        self.open_shard(parent)
        self.open_shard(parent)

    @precondition(lambda self: len(self.shards) < 30 and len(self.open_shards()) > 1)
    @rule(data=st.data())
    def merge(self, data: st.DataObject) -> None:
        one, other = data.draw(st.permutations(self.open_shards()))[:2]
        self.open_shard(one, other)

    def open_shards(self) -> list[str]:
        parents = {parent for shard in self.shards.values() for parent in shard.parents}
        return sorted(self.shards.keys() - parents)

    @rule(behind=st.integers(0, 2))
    def list_shards(self, behind: int) -> None:
        """Lists are eventually consistent: the newest shards may be missing."""
        listed = list(self.shards.values())[: max(1, len(self.shards) - behind)]
        self.planner.listed(listed, {})
        self.in_sight = {shard.shard_id for shard in listed} | self.assigned
        self.plan()

    @precondition(lambda self: self.planner.current.owners)
    @rule(data=st.data())
    def an_owner_stores_an_end(self, data: st.DataObject) -> None:
        shard_id, owner = data.draw(st.sampled_from(sorted(self.planner.current.owners.items())))
        if shard_id not in self.open_shards() and owner in self.members:
            self.members[owner].ended.add(shard_id)
            self.over.add(shard_id)

    @precondition(lambda self: not self.equal)
    @rule(data=st.data(), rate=RATES)
    def change_a_rate(self, data: st.DataObject, rate: float) -> None:
        self.rates[data.draw(st.sampled_from(sorted(self.shards)))] = rate

    # Members

    @precondition(lambda self: len(self.members) < 6)
    @rule(weight=WEIGHTS, mode=MODES)
    def join(self, weight: float, mode: MemberMode) -> None:
        self.joined += 1
        name = f"member-{7 * self.joined % 10}-{self.joined}"
        self.members[name] = Living(name, self.joined, weight, mode)

    @precondition(lambda self: self.members)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        """Or die: what it has ended is found in the store."""
        member = self.members.pop(data.draw(st.sampled_from(sorted(self.members))))
        self.planner.over(member.ended)

    @precondition(lambda self: self.members)
    @rule(data=st.data(), draining=st.booleans())
    def drain(self, data: st.DataObject, *, draining: bool) -> None:
        self.members[data.draw(st.sampled_from(sorted(self.members)))].draining = draining

    @rule(lists=st.booleans())
    def another_leader(self, *, lists: bool) -> None:
        """It begins with the stored assignment; it may plan before it has listed anything."""
        before = self.planner.current
        self.lead(Assignment.decode(before.encode()))
        self.planner.over(self.over)
        self.in_sight = self.assigned = set(before.owners)
        if lists:
            self.planner.listed(self.shards.values(), self.stored())
            self.in_sight = set(self.shards)
        self.plan()
        self.planner.listed(self.shards.values(), self.stored())
        self.in_sight = set(self.shards)

    def stored(self) -> Mapping[str, Checkpoint]:
        return {
            shard_id: Checkpoint(
                start=Position.trim_horizon(),
                base=SHARD_END if shard_id in self.over else SHARD_START,
                parents=self.shards[shard_id].parents,
            )
            for shard_id in (*self.assigned, *self.over)
        }

    # Planning

    @rule(seconds=st.sampled_from((0.0, 10.0, LASTING_SECONDS / 2, LASTING_SECONDS)))
    def plan_after(self, seconds: float) -> None:
        self.now += seconds
        self.plan()

    def plan(self) -> None:
        before, members = self.planner.current, self.seen()
        self.observe(members)
        changed = self.planner.plan(members, self.now)
        after = self.planner.current
        assert (changed is None) == (after == before)
        assert changed is None or (changed == after and after.epoch == before.epoch + 1)
        assert self.planner.plan(members, self.now) is None, "the same again changes nothing"
        self.assigned |= after.owners.keys()
        self.check_assignment(after)
        self.check_moves(before, after)
        if self.equal:
            self.check_numbers(before, after)
        self.check_next_plan()
        self.check_loads(after)
        assert Assignment.decode(after.encode()) == after

    def seen(self) -> list[GroupMember]:
        owners = self.planner.current.owners
        return [
            GroupMember(
                name=member.name,
                mode=member.mode,
                weight=member.weight,
                joined=member.joined,
                draining=member.draining,
                ended=frozenset(member.ended),
                rates={name: self.rates[name] for name, owner in owners.items() if owner == member.name},
            )
            for member in self.members.values()
        ]

    def observe(self, members: list[GroupMember]) -> None:
        for member in members:
            self.observed.update(member.rates)
        self.observed = {name: self.observed[name] for name in self.observed.keys() & self.assignable()}

    def assignable(self) -> set[str]:
        return {name for name in self.in_sight - self.over if self.over.issuperset(self.shards[name].parents)}

    def takers(self) -> dict[str, float]:
        """Give the members that share, with their weights; a stand-by is none of them."""
        return {
            member.name: member.weight
            for member in self.members.values()
            if member.mode is MemberMode.SHARING and not member.draining
        }

    # What must hold

    def check_assignment(self, after: Assignment) -> None:
        """Each shard that may be read has one living owner; no child before its parents are over."""
        stand_bys = {member.name for member in self.members.values() if not member.draining}
        if self.takers() or stand_bys:
            assert after.owners.keys() == self.assignable()
        else:
            assert not after.owners
        if self.takers():
            assert set(after.owners.values()) <= self.takers().keys()
        else:
            assert set(after.owners.values()) <= stand_bys
            assert len(set(after.owners.values())) <= 1
        assert after.members == self.members.keys()
        assert after.parents == {name: self.shards[name].parents for name in after.owners}
        assert after.all_over <= (self.assignable() == set())

    def check_moves(self, before: Assignment, after: Assignment) -> None:
        """Only because somebody or something came or left; or from members that had too much for long."""
        same = (self.takers(), after.owners.keys()) == self.planned_for
        loads = self.loads(after)
        had = self.overloaded(before, loads) if same else set()
        too_much = {name: self.too_much_since.get(name, self.now) for name in had}
        givers = {before.owners[shard] for shard in self.moved(before, after)} if same else set()
        for giver in givers:
            assert self.now >= too_much[giver] + LASTING_SECONDS
        has = self.overloaded(after, loads)
        lasted = {name for name, since in too_much.items() if self.now >= since + LASTING_SECONDS}
        old = too_much if same else self.too_much_since
        self.too_much_since = {name: self.now if name in lasted else old.get(name, self.now) for name in has}
        self.planned_for = self.takers(), after.owners.keys()

    def check_next_plan(self) -> None:
        after = self.planner.next_plan_at
        assert after is None or (self.now < after <= self.now + LASTING_SECONDS)

    def moved(self, before: Assignment, after: Assignment) -> list[str]:
        """Name the shards that were taken from somebody who takes shards."""
        takers = self.takers()
        return [
            name
            for name, owner in before.owners.items()
            if owner in takers and after.owners.get(name, owner) != owner
        ]

    def check_numbers(self, before: Assignment, after: Assignment) -> None:
        """Everybody is within one shard of its share, and no more shards moved than that needs."""
        takers = self.takers()
        numbers = Counter(after.owners.values())
        stayed = Counter(owner for name, owner in before.owners.items() if name in after.owners)
        total = sum(takers.values())
        shares = {name: len(after.owners) * weight / total for name, weight in takers.items()}
        for name, share in shares.items():
            assert abs(numbers[name] - share) <= 1 + 1e-6
        too_many = sum(math.ceil(max(0.0, stayed[name] - share)) for name, share in shares.items())
        assert len(self.moved(before, after)) <= too_many

    def check_loads(self, after: Assignment) -> None:
        """Nobody has too much, unless the planner wants to be asked again."""
        if self.planner.next_plan_at is None:
            assert not self.overloaded(after, self.loads(after), margin=1e-6)

    def loads(self, assignment: Assignment) -> dict[str, float]:
        average = sum(self.observed.values()) / len(self.observed) if self.observed else 0.0
        return {name: IDLE_BYTES_PER_SECOND + self.observed.get(name, average) for name in assignment.owners}

    def overloaded(self, assignment: Assignment, loads: dict[str, float], margin: float = -1e-6) -> set[str]:
        """Name the members from whom a single move would improve loads that differ by more than a fifth.

        Args:
            assignment: who has what; of other shards, or of members that take none, it says nothing here.
            loads: of all shards.
            margin: what differs by less than this, as a part, may be either.
        """
        takers, whole = self.takers(), sum(loads.values())
        share = {name: whole * weight / sum(takers.values()) for name, weight in takers.items()}
        held = {name: [loads[shard] for shard in assignment.of(name) if shard in loads] for name in takers}
        excess = {name: sum(held[name]) - share[name] for name in takers}
        counts = {
            name: len(held[name]) - len(loads) * weight / sum(takers.values())
            for name, weight in takers.items()
        }
        return {
            giver
            for giver in takers
            for taker in takers
            if whole
            and (
                excess[giver] / share[giver] - excess[taker] / share[taker] > TOLERATED_DIFFERENCE + margin
                or (margin < 0 and counts[giver] - counts[taker] > 1)
            )
            and excess[giver] - excess[taker] > min(held[giver], default=math.inf) + margin * whole
        }


TestAssignmentPlanner = PlannerModel.TestCase
TestAssignmentPlanner.settings = settings(max_examples=100, stateful_step_count=40)
