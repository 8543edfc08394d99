"""RoundRobin against a plain list, whose front is next."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from shard_state.shards.round_robin import RoundRobin

MEMBERS = st.sampled_from("abcdef")


class RoundRobinMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.turns = RoundRobin()
        self.order: list[str] = []

    @rule(member=MEMBERS)
    def add(self, member: str) -> None:
        self.turns.add(member)
        if member not in self.order:
            self.order.append(member)

    @rule(member=MEMBERS)
    def remove(self, member: str) -> None:
        self.turns.remove(member)
        if member in self.order:
            self.order.remove(member)

    @rule(member=MEMBERS)
    def serve_anyone(self, member: str) -> None:
        self.turns.served(member)
        if member in self.order:
            self.order.remove(member)
            self.order.append(member)

    @rule(data=st.data())
    def serve_a_round(self, data: st.DataObject) -> None:
        """Every member gets its turn in one round, whoever leaves and joins meanwhile (invariant 15)."""
        before, served = list(self.order), []
        for member in self.turns.round():
            served.append(member)
            self.serve_anyone(member)
            if data.draw(st.booleans()):
                self.add(data.draw(MEMBERS))
        assert served == before

    @invariant()
    def agrees(self) -> None:
        assert list(self.turns.round()) == self.order
        assert len(self.turns) == len(self.order)
        assert all(member in self.turns for member in self.order)


TestRoundRobin = RoundRobinMachine.TestCase
TestRoundRobin.settings = settings(max_examples=40, stateful_step_count=30)
