"""StateManager under a shell that works record by record, like the plain-Python spout.

Users ack and fail in any order, late, twice, and after their shard was lost; messages time out; two consumers
take shards from each other. At the end of every run all shards are closed and worked off: every record must be
finished, and every shard over in the store.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from shard_state import (
    SHARD_START,
    Capacity,
    Exhausted,
    Order,
    RecordEvent,
    Retry,
    RetryPolicy,
    SequenceNumber,
    Shard,
    StateManager,
)
from tests.model.stream_in_memory import Failures, Store, StoredRecord, Stream

KEYS = st.sampled_from((None, "a", "b"))
TIMEOUT_SECONDS = 20.0

Delivery = tuple[str, SequenceNumber]


class RecordShell(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.stream = Stream()
        self.store = Store(self.stream)
        self.reached: dict[str, SequenceNumber] = {}
        """How far each owned shard was read."""
        self.out: dict[Delivery, float] = {}
        """What is in flight under the present ownership, and when it times out."""
        self.handled: list[Delivery] = []
        """Everything that was ever delivered: users may report on any of it."""
        self.exhausted: list[Delivery] = []
        self.stolen: set[str] = set()

    @initialize(order=st.sampled_from(Order), limit=st.sampled_from((0, 1, 2)), shards=st.integers(1, 3))
    def begin(self, order: Order, limit: int, shards: int) -> None:
        self.order = order
        self.policy = RetryPolicy(limit=limit, backoff_seconds=4.0, cap_seconds=8.0)
        for _ in range(shards):
            self.stream.open_shard()
        self.restart()

    @rule()
    def restart(self) -> None:
        self.manager = StateManager(
            app_instance="model",
            random=lambda: 0.5,
            retry=self.policy,
            order=self.order,
            capacity=Capacity(records=8, holes=6),
            message_timeout_seconds=TIMEOUT_SECONDS,
        )
        self.failures = Failures(self.order)
        for held in (self.reached, self.out, self.exhausted, self.stolen):
            held.clear()
        self.list_and_acquire(behind=0)

    # The stream

    @rule(data=st.data(), keys=st.lists(KEYS, min_size=1, max_size=4))
    def write(self, data: st.DataObject, keys: list[str | None]) -> None:
        shard_id = data.draw(st.sampled_from(self.stream.open_shards()))
        for key in keys:
            self.stream.put(shard_id, key, poison=False)

    @precondition(lambda self: len(self.stream.shards) < 6)
    @rule(data=st.data())
    def split(self, data: st.DataObject) -> None:
        parent = data.draw(st.sampled_from(self.stream.open_shards()))
        for _ in range(2):
            self.stream.open_shard((parent,))

    @precondition(lambda self: len(self.stream.shards) < 6 and len(self.stream.open_shards()) > 1)
    @rule(data=st.data())
    def merge(self, data: st.DataObject) -> None:
        one, other = data.draw(st.permutations(self.stream.open_shards()))[:2]
        self.stream.open_shard((one, other))

    @rule(seconds=st.integers(1, 15))
    def pass_time(self, seconds: int) -> None:
        self.now += seconds

    # Owning

    @rule(behind=st.integers(0, 2))
    def list_and_acquire(self, behind: int) -> None:
        """Lists are eventually consistent: the newest shards may be missing."""
        shards: list[Shard] = [shard.shard for shard in self.stream.shards.values()]
        self.manager.listed(shards[: max(1, len(shards) - behind)], self.store.load())
        for shard in self.manager.to_acquire():
            assert set(shard.parents) <= self.store.over()
            self.acquire(shard.shard_id)

    def acquire(self, shard_id: str) -> None:
        checkpoint = self.store.acquire(shard_id, self.manager.fresh_checkpoint())
        self.reached[shard_id] = checkpoint.base
        self.manager.acquired(shard_id, checkpoint)

    @precondition(lambda self: self.manager.owned)
    @rule(data=st.data())
    def another_consumer_takes_a_shard(self, data: st.DataObject) -> None:
        shard_id = data.draw(st.sampled_from(sorted(self.manager.owned)))
        self.store.acquire(shard_id, self.manager.fresh_checkpoint())
        self.stolen.add(shard_id)

    @precondition(lambda self: self.stolen)
    @rule()
    def hear_of_lost_shards(self) -> None:
        lost = set(self.stolen)
        self.manager.lost(lost)
        self.failures.forget(lost)
        self.out = {delivery: at for delivery, at in self.out.items() if delivery[0] not in lost}
        self.exhausted = [gone for gone in self.exhausted if gone[0] not in lost]
        self.stolen.clear()

    # Record by record

    @rule()
    def serve_a_round(self) -> None:
        """One record of every shard that has one: neither an idle nor a poisoned one slows another."""
        before = set(self.manager.owned)
        seen: set[str] = set()
        for shard_id in self.manager.round():
            assert shard_id not in seen
            seen.add(shard_id)
            if self.serve(shard_id):
                self.manager.served(shard_id)
        assert seen == before

    def serve(self, shard_id: str) -> bool:
        retry = self.manager.take_retry(shard_id, self.now)
        if retry is not None:
            self.delivered(self.stream.record(shard_id, retry.sequence), retry.attempt)
            return True
        while self.manager.may_read(shard_id):
            ahead = self.ahead(shard_id)
            if not ahead:
                return False
            record = ahead[0]
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
        delivery = (record.shard_id, record.sequence)
        assert delivery not in self.out
        assert self.policy.limit is not None
        assert attempt <= 1 + self.policy.limit
        self.stream.check_parents_finished(record.shard_id)
        self.failures.check_delivery(record)
        self.out[delivery] = self.now + TIMEOUT_SECONDS
        self.handled.append(delivery)

    @precondition(lambda self: self.manager.owned)
    @rule()
    def read_to_the_end(self) -> None:
        for shard_id in self.manager.owned:
            state = self.manager.shard(shard_id)
            assert state is not None
            if self.stream.shards[shard_id].shard.closed and not self.ahead(shard_id):
                self.manager.end_read(shard_id)

    @precondition(lambda self: self.handled)
    @rule(data=st.data())
    def ack(self, data: st.DataObject) -> None:
        """Ack anything that was ever delivered, under whatever ownership."""
        delivery = data.draw(st.sampled_from(self.handled))
        self.ack_one(delivery)

    def ack_one(self, delivery: Delivery) -> None:
        self.stream.record(*delivery).finished = True
        changed = self.manager.ack(*delivery, self.now)
        assert changed or delivery not in self.out
        self.out.pop(delivery, None)
        if delivery in self.exhausted:
            self.exhausted.remove(delivery)
        assert not self.manager.ack(*delivery, self.now)

    @precondition(lambda self: self.handled)
    @rule(data=st.data(), rejected=st.booleans())
    def fail(self, data: st.DataObject, *, rejected: bool) -> None:
        """Fail anything that was ever delivered, under whatever ownership."""
        delivery = data.draw(st.sampled_from(self.handled))
        self.fail_one(delivery, RecordEvent.FAIL, rejected=rejected)

    @rule()
    def time_out(self) -> None:
        late = {delivery for delivery, deadline in self.out.items() if deadline <= self.now}
        expired = self.manager.expired(self.now)
        assert set(expired) == late
        assert len(expired) == len(late)
        for delivery in expired:
            self.fail_one(delivery, RecordEvent.TIME_OUT, rejected=False)

    def fail_one(self, delivery: Delivery, event: RecordEvent, *, rejected: bool) -> None:
        record = self.stream.record(*delivery)
        decision = self.manager.fail(
            *delivery, self.now, partition_key=record.key, rejected=rejected, event=event
        )
        assert (decision is None) == (delivery not in self.out)
        if decision is None:
            return
        del self.out[delivery]
        self.failures.add(record)
        if isinstance(decision, Exhausted):
            self.exhausted.append(delivery)
        else:
            assert isinstance(decision, Retry)
            assert not rejected
            next_due = self.manager.next_due()
            assert next_due is not None or self.order is not Order.UNORDERED
        assert self.manager.fail(*delivery, self.now, partition_key=record.key) is None

    # Finishing and storing

    @precondition(lambda self: self.exhausted)
    @rule(data=st.data())
    def write_a_dead_letter(self, data: st.DataObject) -> None:
        self.bury(data.draw(st.sampled_from(self.exhausted)))

    def bury(self, delivery: Delivery) -> None:
        self.exhausted.remove(delivery)
        self.stream.record(*delivery).finished = True
        assert self.manager.dead_lettered(*delivery, self.now)
        assert not self.manager.dead_lettered(*delivery, self.now)

    @rule()
    def commit(self) -> None:
        pending = self.manager.to_commit()
        stored = [commit for commit in pending if self.store.commit(commit.shard_id, commit.checkpoint)]
        fenced = {commit.shard_id for commit in pending} - {commit.shard_id for commit in stored}
        assert fenced <= self.stolen
        over = set(self.manager.committed(stored))
        assert over <= self.store.over()
        self.stolen -= over
        assert not [commit for commit in self.manager.to_commit() if commit.shard_id not in fenced]

    # Always

    @invariant()
    def what_is_over_is_finished(self) -> None:
        for shard_id in self.store.over():
            assert not self.stream.unfinished(shard_id)
            assert self.stream.shards[shard_id].shard.closed

    @invariant()
    def what_is_in_flight_is_known(self) -> None:
        assert sum(status.in_flight for status in self.manager.status()) == len(self.out)
        assert sum(status.exhausted for status in self.manager.status()) == len(self.exhausted)

    def teardown(self) -> None:
        """Close every shard and work everything off: nothing may hang, nothing may be lost."""
        if not hasattr(self, "manager"):
            return
        self.stream.close_all()
        everything = sum(len(shard.records) for shard in self.stream.shards.values())
        for _ in range(30 + 10 * everything):
            self.now += 100.0
            self.hear_of_lost_shards()
            self.list_and_acquire(behind=0)
            for delivery in list(self.out):
                self.ack_one(delivery)
            for delivery in list(self.exhausted):
                self.bury(delivery)
            self.serve_a_round()
            self.read_to_the_end()
            self.commit()
            if self.store.over() == set(self.stream.shards):
                break
        assert self.store.over() == set(self.stream.shards)
        assert not any(self.stream.unfinished(shard_id) for shard_id in self.stream.shards)
        self.manager.listed([shard.shard for shard in self.stream.shards.values()], self.store.load())
        assert self.manager.all_over


TestStateManagerByRecord = RecordShell.TestCase
TestStateManagerByRecord.settings = settings(
    max_examples=150, stateful_step_count=40, deadline=None, print_blob=True
)
