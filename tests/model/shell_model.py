"""What the models of both shells of StateManager share: the stream, who owns its shards, and what must hold.

The stream is written to, split and merged; two consumers take shards from each other; the process restarts from
what it stored. Lists may lack the newest shards at any time, the first list after a restart too, although those
are stored: every shard of the first start is, and those that another consumer began. A restart may begin a bounded
run, which hands out no record behind its bound and comes to its end by itself. At the end of every run all shards
are closed and worked off: every record must be finished, and every shard over in the store.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from shard_state import (
    Capacity,
    Checkpoint,
    OperatorPause,
    Order,
    Position,
    RetryPolicy,
    RunBounds,
    SequenceNumber,
    ShardPhase,
    SliceLimits,
    StateManager,
)
from tests.model.stream_in_memory import LinesOfRecords, Store, Stream

MOST_WRITTEN = 300
"""By outages, in sequence numbers."""


class ShellModel(RuleBasedStateMachine):
    """The rules of every shell. A model of one shell adds how it reads, delivers and settles."""

    LIMITS: ClassVar[SliceLimits | None] = None
    MESSAGE_TIMEOUT_SECONDS: ClassVar[float | None] = None

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.stream = Stream()
        self.store = Store(self.stream)
        self.stolen: set[str] = set()
        """Shards that another consumer took, which ours does not know yet."""
        self.failed_at: dict[tuple[str, SequenceNumber], float] = {}
        """When a record failed first under the present ownership."""
        self.operator_pause = OperatorPause()
        """What an operator has paused, which is stored."""

    @initialize(
        order=st.sampled_from(Order),
        limit=st.sampled_from((0, 1, 2)),
        shards=st.integers(1, 3),
        splits=st.integers(0, 2),
        behind=st.integers(0, 2),
        max_spared_seconds=st.sampled_from((0.0, 20.0, 600.0)),
    )
    def begin(
        self,
        order: Order,
        limit: int,
        shards: int,
        splits: int,
        *,
        behind: int,
        max_spared_seconds: float,
    ) -> None:
        self.order = order
        self.max_spared_seconds = max_spared_seconds
        self.policy = RetryPolicy(limit=limit, backoff_seconds=4.0, cap_seconds=8.0)
        for _ in range(shards):
            self.stream.open_shard()
        for _ in range(splits):
            self.stream.open_shard((self.stream.open_shards()[-1],))
        self.store.open()
        self.restart(behind)

    @rule(behind=st.integers(0, 2), last=st.none() | st.integers(0, 20))
    def restart(self, behind: int, last: int | None = None) -> None:
        """Start afresh from what is stored, as after a crash; perhaps only up to the ``last`` record written."""
        self.last = None if last is None else SequenceNumber(7 * last)
        self.manager = StateManager(
            app_instance="model",
            random=lambda: 0.5,
            retry=self.policy,
            order=self.order,
            capacity=Capacity(records=8, holes=6),
            limits=self.LIMITS,
            message_timeout_seconds=self.MESSAGE_TIMEOUT_SECONDS,
            max_spared_seconds=self.max_spared_seconds,
            bounds=None if self.last is None else bounds_after(self.last),
        )
        self.manager.pause_by_operator(self.operator_pause)
        self.failed_at.clear()
        self.lines = LinesOfRecords(self.order, self.stream.unfinished)
        self.stolen.clear()
        self.crash()
        self.list_and_acquire(behind)

    @abstractmethod
    def crash(self) -> None:
        """Lose what the shell keeps in memory."""

    # The stream

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
        shards = [shard.shard for shard in self.stream.shards.values()]
        self.manager.listed(shards[: max(1, len(shards) - behind)], self.store.load())
        for shard in self.manager.to_acquire():
            assert set(shard.parents) <= self.store.over()
            self.stream.check_parents_finished(shard.shard_id)
            self.acquire(shard.shard_id)

    def acquire(self, shard_id: str) -> Checkpoint:
        checkpoint = self.store.acquire(shard_id, self.manager.fresh_checkpoint(shard_id))
        self.manager.acquired(shard_id, checkpoint)
        self.lines.begin(shard_id, checkpoint)
        self.failed_at = {place: at for place, at in self.failed_at.items() if place[0] != shard_id}
        return checkpoint

    # Outages

    @precondition(lambda self: self.max_spared_seconds and self.stream.written < MOST_WRITTEN)
    @rule(
        restarts=st.booleans(), mixed=st.booleans(), rounds=st.integers(1, 3), seconds=st.sampled_from((0, 5))
    )
    def an_outage(self, *, restarts: bool, mixed: bool, rounds: int, seconds: int) -> None:
        """All that is delivered fails, perhaps at the next owner of what partly failed before."""
        for shard_id in self.stream.open_shards():
            for key in (None, "a", "b", None):
                self.stream.put(shard_id, key, poison=False)
        for _ in range(rounds):
            self.deliver_all(lambda at: not (mixed and at % 2))
        if restarts:
            self.commit()
            self.restart(behind=0)
        for _ in range(rounds + 1):
            self.deliver_all(lambda _: True)
            self.now += seconds

    @precondition(lambda self: self.stream.written < MOST_WRITTEN)
    @rule(data=st.data(), failing=st.sampled_from((0.001, 0.01, 0.05, 0.3)))
    def failures_at_random(self, data: st.DataObject, failing: float) -> None:
        """Of what is written and delivered now, each delivery fails with this probability."""
        random = data.draw(st.randoms(use_true_random=False))
        for shard_id in self.stream.open_shards():
            for key in (None, "a", "b", None):
                self.stream.put(shard_id, key, poison=False)
        self.deliver_all(lambda _: random.random() < failing)

    @abstractmethod
    def deliver_all(self, fails: Callable[[int], bool]) -> None:
        """Deliver what can be delivered now; fail those of which, by their number, it says so; ack the others."""

    @rule(data=st.data(), everything=st.booleans())
    def an_operator_pauses(self, data: st.DataObject, *, everything: bool) -> None:
        shard_ids = data.draw(st.sets(st.sampled_from(sorted(self.stream.shards))))
        self.operator_pause = OperatorPause(everything=everything, shards=frozenset(shard_ids))
        self.manager.pause_by_operator(self.operator_pause)
        assert not self.manager.pause_by_operator(self.operator_pause)

    @precondition(lambda self: self.operator_pause)
    @rule()
    def an_operator_ends_what_is_paused(self) -> None:
        self.operator_pause = OperatorPause()
        assert self.manager.pause_by_operator(self.operator_pause)

    def check_operator_pause(self, shard_id: str) -> None:
        """Nothing of what an operator has paused is handed out."""
        assert not self.operator_pause.covers(shard_id)

    @precondition(lambda self: self.manager.blame.is_slowed)
    @rule()
    def an_operator_resumes(self) -> None:
        assert self.manager.blame.resume()
        assert not self.manager.blame.is_slowed
        assert not self.manager.blame.resume()

    def failed(self, shard_id: str, sequence: SequenceNumber, attempt: int, *, gone: bool) -> None:
        """Check what was decided upon a delivery that failed, and was not rejected (invariant 4)."""
        assert self.policy.limit is not None
        first_at = self.failed_at.setdefault((shard_id, sequence), self.now)
        assert not gone or attempt > self.policy.limit
        if attempt > self.policy.limit and self.now >= first_at + self.max_spared_seconds:
            assert gone, "no record is spared for longer"

    def check_bound(self, sequence: SequenceNumber) -> None:
        """No record behind its bound is handed out by a bounded run."""
        assert self.last is None or sequence <= self.last

    def see_the_tip(self, shard_id: str) -> None:
        """Nothing is ahead in an open shard: a bounded run ends there."""
        assert self.manager.ends_at_tip(shard_id, 1.0) == (self.last is not None)

    def check_limit(self, shard_id: str, sequence: SequenceNumber, attempt: int) -> None:
        """At most 1 + limit deliveries where none is spared, and no more are stored (invariant 4)."""
        assert self.policy.limit is not None
        if not self.max_spared_seconds or (shard_id, sequence) not in self.failed_at:
            assert attempt <= 1 + self.policy.limit

    @precondition(lambda self: self.manager.owned)
    @rule(data=st.data())
    def another_consumer_takes_a_shard(self, data: st.DataObject) -> None:
        shard_id = data.draw(st.sampled_from(sorted(self.manager.owned)))
        self.store.acquire(shard_id, self.manager.fresh_checkpoint(shard_id))
        self.stolen.add(shard_id)

    @precondition(lambda self: self.store.to_begin())
    @rule(data=st.data())
    def another_consumer_begins_a_shard(self, data: st.DataObject) -> None:
        """It had a newer list than ours may be."""
        shard_id = data.draw(st.sampled_from(self.store.to_begin()))
        self.store.begin(shard_id)

    @precondition(lambda self: self.stolen)
    @rule()
    def hear_of_lost_shards(self) -> None:
        self.manager.lost(self.stolen)
        self.drop(self.stolen)
        self.stolen.clear()

    @abstractmethod
    def drop(self, shard_ids: set[str]) -> None:
        """Lose what the shell keeps of shards that are not its own any more."""

    # Storing

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
    def a_run_that_is_done_has_stored_all_it_has_handed_out(self) -> None:
        if self.last is None or not self.manager.is_done:
            return
        stored = self.store.load()
        for shard_id in self.manager.owned - self.stolen:
            state = self.manager.shard(shard_id)
            assert state is not None
            assert stored[shard_id].base == state.tracker.last_emitted
            assert all(record.sequence > stored[shard_id].base for record in self.stream.unfinished(shard_id))

    def teardown(self) -> None:
        """Close every shard and work everything off: nothing may hang, nothing may be lost."""
        if not hasattr(self, "manager"):
            return
        self.operator_pause = OperatorPause()
        self.manager.pause_by_operator(self.operator_pause)
        if self.last is not None:
            self.work_off_until(lambda: self.manager.is_done and not self.manager.to_acquire())
            assert self.manager.is_done
            self.restart(behind=0)
        self.stream.close_all()
        self.work_off_until(lambda: self.store.over() == set(self.stream.shards))
        assert self.store.over() == set(self.stream.shards)
        assert not any(self.stream.unfinished(shard_id) for shard_id in self.stream.shards)
        self.manager.listed([shard.shard for shard in self.stream.shards.values()], self.store.load())
        assert {status.phase for status in self.manager.status()} == {ShardPhase.OVER}

    def work_off_until(self, is_reached: Callable[[], bool]) -> None:
        everything = sum(len(shard.records) for shard in self.stream.shards.values())
        for _ in range(60 + 30 * everything):
            self.now += 100.0
            self.manager.blame.resume()
            self.hear_of_lost_shards()
            self.list_and_acquire(behind=0)
            self.work_off()
            self.commit()
            if is_reached():
                break

    @abstractmethod
    def work_off(self) -> None:
        """Deliver what can be delivered now, and finish everything that is out."""


def bounds_after(last: SequenceNumber) -> RunBounds:
    """Bound every shard behind that record, wherever it is."""
    return RunBounds.of(Position.after(last), {}, began_at=0.0, margin_seconds=0.0)
