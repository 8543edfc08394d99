"""RoundRobin against plain lists: who is next, and behind those who sleeps."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from shard_state.owned_shards import RoundRobin

pytestmark = pytest.mark.no_second_run

MEMBERS = st.sampled_from("abcdef")


class RoundRobinMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.turns = RoundRobin()
        self.order: list[str] = []
        self.sleeping: list[str] = []

    @rule(member=MEMBERS)
    def add(self, member: str) -> None:
        self.turns.add(member)
        if member in self.sleeping:
            self.sleeping.remove(member)
        if member not in self.order:
            self.order.append(member)

    @rule(member=MEMBERS)
    def remove(self, member: str) -> None:
        self.turns.remove(member)
        for members in (self.order, self.sleeping):
            if member in members:
                members.remove(member)

    @precondition(lambda self: self.order)
    @rule()
    def let_the_current_one_sleep(self) -> None:
        assert self.turns.current(0.0) == self.order[0]
        self.turns.sleep()
        self.sleeping.append(self.order.pop(0))

    @rule(member=MEMBERS)
    def wake_anyone(self, member: str) -> None:
        self.turns.wake(member)
        if member in self.sleeping:
            self.sleeping.remove(member)
            self.order.append(member)

    @rule(member=MEMBERS)
    def serve_anyone(self, member: str) -> None:
        self.turns.served(member)
        if member in self.order:
            self.order.remove(member)
            self.order.append(member)

    @rule(data=st.data())
    def serve_a_round(self, data: st.DataObject) -> None:
        """Every member gets its turn in one round, whoever leaves and joins meanwhile (invariant 15)."""
        before, served = self.order + self.sleeping, []
        for member in self.turns.round():
            served.append(member)
            self.serve_anyone(member)
            if data.draw(st.booleans()):
                self.add(data.draw(MEMBERS))
        assert served == before

    @invariant()
    def agrees(self) -> None:
        members = self.order + self.sleeping
        assert list(self.turns.round()) == members
        assert len(self.turns) == len(members)
        assert all(member in self.turns for member in members)
        assert self.turns.current(0.0) == next(iter(self.order), None)


TestRoundRobin = RoundRobinMachine.TestCase
TestRoundRobin.settings = settings(max_examples=40, stateful_step_count=30)
