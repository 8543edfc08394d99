"""The guarantees of the plain-Python door, whatever ends its processes.

Two members of an application take records, ack and fail some, crash, are closed, lose their session with or
without knowing it; the store loses requests and answers. At the end somebody works everything off.
"""

from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesis_spout.kinesis.aggregated_record import UserRecord
from kinesis_spout.plain.stream_tuples import MessageId
from kinesis_spout.testing import (
    InMemoryDeadLetterSink,
    InMemoryStream,
    InMemoryZooKeeper,
    ManualClock,
    SteppedSpout,
    in_memory_ports,
)
from kinesis_spout.testing.zookeeper.nodes import StoreFault
from tests.support.consumer.world import opened

if TYPE_CHECKING:
    from kinesis_spout.plain.stream_tuples import Emitted

pytestmark = pytest.mark.no_second_run

STEPS = 120
QUIET_ROUNDS = 40
"""Seconds: longer than a session and the hand-over of a shard."""


class Members:
    """The members of one application, and what they were given. Mutable."""

    def __init__(self, guarantee: str, order: str, random: Random, *, only_clean_ends: bool) -> None:
        self.random = random
        self._only_clean_ends = only_clean_ends
        self.clock = ManualClock()
        self.stream = InMemoryStream("orders", shards=2, clock=self.clock)
        self.zookeeper = InMemoryZooKeeper()
        self.dead_letters = InMemoryDeadLetterSink()
        self._settings: dict[str, Any] = {
            "stream": "orders",
            "app": "billing",
            "initial_position": "trim_horizon",
            "guarantee": guarantee,
            "order": order,
            "scheme": "text",
            "retry_limit": 1,
        }
        self.put = 0
        self.delivered: Counter[str] = Counter()
        self.of_ownership: Counter[tuple[str, int]] = Counter()
        """By payload and epoch."""
        self.acked: set[str] = set()
        self.spouts = [self.joins(), self.joins()]
        self.out: list[tuple[SteppedSpout, Emitted]] = []

    def joins(self) -> SteppedSpout:
        ports = in_memory_ports(self.stream, self.zookeeper, self.dead_letters)
        return SteppedSpout(ports=ports, **self._settings).open()

    def takes(self, spout: SteppedSpout) -> bool:
        emitted = spout.next_tuple()
        if emitted is None:
            return False
        self.delivered[emitted.values] += 1
        self.of_ownership[emitted.values, MessageId.parse(emitted.message_id).epoch] += 1
        self.out.append((spout, emitted))
        return True

    def reports(self, *, acks: bool) -> None:
        spout, emitted = self.out.pop(self.random.randrange(len(self.out)))
        if spout not in self.spouts:
            return
        if not acks:
            spout.fail(emitted.message_id)
        elif spout.ack(emitted.message_id):
            self.acked.add(emitted.values)

    def one_ends(self) -> None:
        at = self.random.randrange(2)
        spout, dice = self.spouts[at], self.random.random()
        if self._only_clean_ends or dice < 0.4:
            spout.close()
        elif dice < 0.7:
            spout.crash()
        else:
            lose = self.zookeeper.expire if dice < 0.85 else self.zookeeper.end_session
            lose(opened(spout)[0].ports.coordinator.member)
            return
        self.spouts[at] = self.joins()

    def puts(self) -> None:
        """Put a record, or a few in an aggregated one."""
        inside = self.random.choice((1, 1, 3))
        records = [
            UserRecord(self.random.choice("abc"), str(self.put + number).encode())
            for number in range(1, inside + 1)
        ]
        self.put += inside
        if inside == 1:
            self.stream.put(records[0].data, records[0].partition_key)
        else:
            self.stream.put_aggregated(records)

    def step(self) -> None:
        dice = self.random.random()
        if dice < 0.15:
            self.puts()
        elif dice < 0.55:
            self.takes(self.random.choice(self.spouts))
        elif dice < 0.7 and self.out:
            self.reports(acks=self.random.random() < 0.6)
        elif dice < 0.9:
            self.clock.advance(self.random.choice((0.01, 0.3, 2.0)))
        elif dice < 0.94:
            self.zookeeper.fail_next(self.random.choice((StoreFault.ANSWER_LOST, StoreFault.REQUEST_LOST)))
        else:
            self.one_ends()

    def work_off(self) -> None:
        quiet = 0
        while quiet < QUIET_ROUNDS:
            before = sum(self.delivered.values())
            for spout in self.spouts:
                while self.takes(spout):
                    pass
            while self.out:
                self.reports(acks=True)
            quiet = quiet + 1 if sum(self.delivered.values()) == before else 0
            self.clock.advance(1.0)

    @property
    def payloads(self) -> set[str]:
        return {str(number + 1) for number in range(self.put)}

    @property
    def buried(self) -> set[str]:
        return {letter.data.decode() for letter in self.dead_letters.letters}


@pytest.mark.parametrize("guarantee", ["at_least_once", "at_most_once", "none"])
@settings(max_examples=25)
@given(
    seed=st.integers(0, 2**32),
    order=st.sampled_from(("unordered", "key", "shard")),
    only_clean_ends=st.booleans(),
)
def test_a_guarantee_holds_whatever_ends_a_process(
    guarantee: str, seed: int, order: str, *, only_clean_ends: bool
) -> None:
    members = Members(guarantee, order, Random(seed), only_clean_ends=only_clean_ends)
    for _ in range(STEPS):
        members.step()
    members.work_off()
    if guarantee == "at_least_once":
        assert members.payloads == members.acked | members.buried
        return
    assert set(members.of_ownership.values()) <= {1}, "a record came twice to one owner"
    if guarantee == "at_most_once":
        assert set(members.delivered.values()) <= {1}, "a record came twice"
    if only_clean_ends:
        assert set(members.delivered.values()) <= {1}, "a record came twice although every end was clean"
        assert members.payloads == set(members.delivered), "a record was lost although every end was clean"
