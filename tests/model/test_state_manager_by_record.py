"""StateManager under a shell that works record by record, like the plain-Python spout.

Users ack and fail in any order, late, twice, and after their shard was lost; messages time out. ``shell_model``
has what else happens.
"""

from collections.abc import Callable
from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from shard_state import (
    SHARD_START,
    Checkpoint,
    Exhausted,
    Order,
    Retry,
    SequenceNumber,
    ShardPhase,
)
from shard_state.sequence_number import WHOLE
from tests.model.shell_model import ShellModel
from tests.model.stream_in_memory import StoredRecord, fate_of
from tests.support.core.reading import may_read

pytestmark = pytest.mark.no_second_run

KEYS = st.sampled_from((None, "a", "b"))
TIMEOUT_SECONDS = 20.0

Place = tuple[str, SequenceNumber]


class Delivery(NamedTuple):
    """One delivery of one record."""

    shard_id: str
    sequence: SequenceNumber
    attempt: int


class RecordShell(ShellModel):
    MESSAGE_TIMEOUT_SECONDS = TIMEOUT_SECONDS

    def __init__(self) -> None:
        super().__init__()
        self.reached: dict[str, SequenceNumber] = {}
        """How far each owned shard was read."""
        self.out: dict[Place, tuple[int, float]] = {}
        """What is in flight under the present ownership: its attempt, and when it times out."""
        self.handled: list[tuple[Delivery, int]] = []
        """Everything that was ever delivered, and under which epoch: users may report on any of it."""
        self.exhausted: list[Place] = []

    def crash(self) -> None:
        for held in (self.reached, self.out, self.exhausted):
            held.clear()

    # The stream

    @rule(data=st.data(), keys=st.lists(KEYS, min_size=1, max_size=4), aggregated=st.booleans())
    def write(self, data: st.DataObject, keys: list[str | None], *, aggregated: bool) -> None:
        """Write some records, or an aggregated one with as many inside."""
        shard_id = data.draw(st.sampled_from(self.stream.open_shards()))
        for at, key in enumerate(keys):
            self.stream.put(shard_id, key, poison=False, sub=at if aggregated else WHOLE)

    # Owning

    def acquire(self, shard_id: str) -> Checkpoint:
        checkpoint = super().acquire(shard_id)
        self.reached[shard_id] = checkpoint.base
        return checkpoint

    def drop(self, shard_ids: set[str]) -> None:
        self.out = {place: out for place, out in self.out.items() if place[0] not in shard_ids}
        self.exhausted = [gone for gone in self.exhausted if gone[0] not in shard_ids]

    # Record by record

    @rule()
    def serve_a_round(self) -> None:
        """One record of every shard that has one: neither an idle nor a poisoned one slows another."""
        before = set(self.manager.owned)
        seen: set[str] = set()
        for shard_id in self.manager.turns.round():
            assert shard_id not in seen
            seen.add(shard_id)
            if self.serve(shard_id):
                self.manager.turns.served(shard_id)
        assert seen == before

    def serve(self, shard_id: str) -> bool:
        """Deliver a record of a shard, if there is one; while deliveries are slow, the only one for a while."""
        if self.manager.blame.is_slowed and not self.manager.blame.allowance(self.now):
            assert self.manager.take_retry(shard_id, self.now) is None
            return False
        served = self.serve_next(shard_id)
        if served and self.manager.blame.is_slowed:
            assert not self.manager.blame.allowance(self.now)
        return served

    def serve_next(self, shard_id: str) -> bool:
        retry = self.manager.take_retry(shard_id, self.now)
        if retry is not None:
            self.delivered(self.stream.record(shard_id, retry.sequence), retry.attempt)
            return True
        while may_read(self.manager, shard_id):
            ahead = self.ahead(shard_id)
            if not ahead:
                if not self.stream.shards[shard_id].shard.closed:
                    self.see_the_tip(shard_id)
                return False
            record = ahead[0]
            if self.manager.ends_before(shard_id, record.sequence, None):
                return False
            emission = self.manager.emit(shard_id, record.sequence, record.key, self.now)
            self.reached[shard_id] = record.sequence
            if emission.deliver:
                self.delivered(record, emission.attempt)
                return True
            assert emission.held or record.finished
        return False

    def ahead(self, shard_id: str) -> list[StoredRecord]:
        reached = self.reached.get(shard_id, SHARD_START)
        return [record for record in self.stream.shards[shard_id].records if record.sequence > reached]

    def delivered(self, record: StoredRecord, attempt: int) -> None:
        place = (record.shard_id, record.sequence)
        assert place not in self.out
        self.check_bound(record.sequence)
        self.check_operator_pause(record.shard_id)
        self.check_limit(*place, attempt)
        self.stream.check_parents_finished(record.shard_id)
        self.lines.deliver(record)
        self.out[place] = attempt, self.now + TIMEOUT_SECONDS
        self.handled.append((Delivery(*place, attempt), self.epoch(record.shard_id)))

    def epoch(self, shard_id: str) -> int:
        state = self.manager.shard(shard_id)
        return 0 if state is None else state.epoch

    @precondition(lambda self: self.manager.owned)
    @rule()
    def read_to_the_end(self) -> None:
        for shard_id in self.manager.owned:
            state = self.manager.shard(shard_id)
            assert state is not None
            if state.phase is not ShardPhase.READING:
                continue
            if self.stream.shards[shard_id].shard.closed and not self.ahead(shard_id):
                self.manager.end_read(shard_id)

    @precondition(lambda self: self.handled)
    @rule(data=st.data())
    def ack(self, data: st.DataObject) -> None:
        """Ack anything that was ever delivered, under whatever ownership."""
        (shard_id, sequence, _), _ = data.draw(st.sampled_from(self.handled))
        self.ack_one((shard_id, sequence))

    def ack_one(self, place: Place) -> None:
        self.stream.record(*place).finished = True
        changed = self.manager.ack(*place, self.now)
        assert changed or place not in self.out
        self.out.pop(place, None)
        if place in self.exhausted:
            self.exhausted.remove(place)
        assert not self.manager.ack(*place, self.now)

    @precondition(lambda self: self.handled)
    @rule(data=st.data(), rejected=st.booleans())
    def fail(self, data: st.DataObject, *, rejected: bool) -> None:
        """Fail any delivery of the present ownership, however old. The shell keeps others' fails away."""
        delivery, epoch = data.draw(st.sampled_from(self.handled))
        if epoch == self.epoch(delivery.shard_id):
            self.fail_one(delivery, rejected=rejected)

    @rule()
    def time_out(self) -> None:
        late = {place for place, (_, deadline) in self.out.items() if deadline <= self.now}
        expired = self.manager.expired(self.now)
        assert set(expired) == late
        assert len(expired) == len(late)
        for place in expired:
            self.fail_one(Delivery(*place, self.out[place][0]), rejected=False)

    def deliver_all(self, fails: Callable[[int], bool]) -> None:
        self.serve_a_round()
        for at, (place, (attempt, _)) in enumerate(list(self.out.items())):
            if fails(at):
                self.fail_one(Delivery(*place, attempt), rejected=False)
            else:
                self.ack_one(place)

    def fail_one(self, delivery: Delivery, *, rejected: bool) -> None:
        place = delivery.shard_id, delivery.sequence
        record = self.stream.record(*place)
        decision = self.manager.fail(
            *place,
            self.now,
            attempt=delivery.attempt,
            partition_key=record.key,
            fate=fate_of(rejected=rejected),
        )
        attempt, _ = self.out.get(place, (None, None))
        assert (decision is None) == (attempt != delivery.attempt)
        if decision is None:
            return
        del self.out[place]
        self.lines.fail(record)
        if not rejected:
            self.failed(*delivery, gone=isinstance(decision, Exhausted))
        if isinstance(decision, Exhausted):
            self.exhausted.append(place)
        else:
            assert isinstance(decision, Retry)
            assert not rejected
            next_due = self.manager.next_due()
            paused = self.operator_pause.covers(delivery.shard_id)
            assert next_due is not None or self.order is not Order.UNORDERED or paused
        assert self.manager.fail(*place, self.now, attempt=delivery.attempt, partition_key=record.key) is None

    # Finishing

    @precondition(lambda self: self.exhausted)
    @rule(data=st.data())
    def write_a_dead_letter(self, data: st.DataObject) -> None:
        self.bury(data.draw(st.sampled_from(self.exhausted)))

    def bury(self, place: Place) -> None:
        self.exhausted.remove(place)
        self.stream.record(*place).finished = True
        assert self.manager.dead_lettered(*place, self.now)
        assert not self.manager.dead_lettered(*place, self.now)

    # Always

    @invariant()
    def what_is_in_flight_is_known(self) -> None:
        assert sum(status.in_flight for status in self.manager.status()) == len(self.out)
        assert sum(status.exhausted for status in self.manager.status()) == len(self.exhausted)

    def work_off(self) -> None:
        for place in list(self.out):
            self.ack_one(place)
        for place in list(self.exhausted):
            self.bury(place)
        self.serve_a_round()
        self.read_to_the_end()


TestStateManagerByRecord = RecordShell.TestCase
TestStateManagerByRecord.settings = settings(max_examples=150, stateful_step_count=40)
