"""OrderedRetries against one plain dict: who is in line, whether it waits, and since when it is due."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from shard_state import Order, SequenceNumber
from shard_state.retries.ordered_retries import OrderedRetries

pytestmark = pytest.mark.no_second_run

RECORDS = st.integers(0, 11)


def key_of(number: int) -> str | None:
    return (None, "a", "b", "c")[number % 4]


class OrderedRetriesMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.waiting: dict[int, float] = {}
        """In line and to be offered: from when."""
        self.silent: set[int] = set()
        """In line, but out or given up."""

    @initialize(order=st.sampled_from(Order))
    def begin(self, order: Order) -> None:
        self.order = order
        self.retries = OrderedRetries(order)

    def same_line(self, one: int, other: int) -> bool:
        if self.order is Order.KEY:
            return one == other or (key_of(one) is not None and key_of(one) == key_of(other))
        return one == other or self.order is Order.SHARD

    def in_line(self) -> set[int]:
        return self.silent | set(self.waiting)

    def offered(self) -> dict[int, float]:
        """The waiting records that have nobody of their line before them."""
        return {
            number: due_at
            for number, due_at in self.waiting.items()
            if not any(self.same_line(number, other) for other in self.in_line() if other < number)
        }

    @rule(number=RECORDS, delay=st.integers(0, 9))
    def wait(self, number: int, delay: int) -> None:
        self.retries.wait(SequenceNumber(number), key_of(number), self.now + delay)
        self.waiting.setdefault(number, self.now + delay)
        self.silent.discard(number)

    @rule(number=RECORDS)
    def block(self, number: int) -> None:
        if self.order is not Order.UNORDERED:
            self.waiting.pop(number, None)
            self.silent.add(number)
        self.retries.block(SequenceNumber(number), key_of(number))

    @rule()
    def take_all_that_is_due(self) -> None:
        due = {number for number, due_at in self.offered().items() if due_at <= self.now}
        taken: set[int] = set()
        while (first := self.retries.first_due(self.now)) is not None:
            self.retries.take(first)
            taken.add(first.number)
            del self.waiting[first.number]
            self.silent.add(first.number)
        assert taken == due

    @rule(number=RECORDS)
    def finish(self, number: int) -> None:
        self.retries.finished(SequenceNumber(number), self.now)
        self.waiting.pop(number, None)
        self.silent.discard(number)

    @rule(seconds=st.integers(1, 9))
    def pass_time(self, seconds: int) -> None:
        self.now += seconds

    @invariant()
    def agrees(self) -> None:
        in_line = self.in_line()
        assert len(self.retries) == len(in_line)
        assert self.retries.blocks_shard == (self.order is Order.SHARD and bool(in_line))
        keys = {key_of(number) for number in in_line if self.order is Order.KEY} - {None}
        assert self.retries.blocked_keys == keys
        for key in ("a", "b", "c"):
            expected = key in keys if self.order is Order.KEY else self.retries.blocks_shard
            assert self.retries.blocks(key) == expected
        for number in in_line:
            behind: list[int] = []
            for other in sorted(other for other in in_line if other > number):
                if self.order is Order.UNORDERED or not self.same_line(number, other):
                    continue
                if self.waiting.get(other, self.now + 1) > self.now:
                    break
                behind.append(other)
            assert [held.number for held in self.retries.behind(SequenceNumber(number), self.now)] == behind

    @invariant()
    def forgets_dead_entries(self) -> None:
        assert len(self.retries._offered) <= 64 + 2 * len(self.waiting) + 1

    @invariant()
    def tells_when_to_call_again(self) -> None:
        next_due = self.retries.next_due()
        offered = self.offered().values()
        assert (next_due is None) == (not offered)
        if next_due is not None and min(offered) > self.now:
            assert next_due == min(offered)


TestOrderedRetries = OrderedRetriesMachine.TestCase
TestOrderedRetries.settings = settings(max_examples=120, stateful_step_count=40)
