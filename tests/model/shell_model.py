"""What the models of both shells of StateManager share: the stream, who owns its shards, and what must hold.

The stream is written to, split and merged; two consumers take shards from each other; the process restarts from
what it stored. Lists may lack the newest shards at any time, the first list after a restart too, although those
are stored: every shard of the first start is, and those that another consumer began. Of some the parents are not
stored, as version 1 left them. A restart may begin a bounded run, which hands out no record behind its bound and
comes to its end by itself. At the end of every run all shards are closed and worked off: every record must be
finished, and every shard over in the store.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from shard_state import (
    BreakerRule,
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

BY_SHARE = BreakerRule(failure_ratio=0.6, window=4, least=2)
BY_ROW = BreakerRule(failure_ratio=1.0, least=1_000, in_a_row=6, doubtful=3, doubt_seconds=20.0)

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
        self.spared: dict[tuple[str, SequenceNumber], int] = {}
        """How many deliveries of a record failed while the breaker was open, under the present ownership."""
        self.suspects: dict[tuple[str, SequenceNumber], int] = {}
        """How many failed while it was closed."""
        self.was_open = False
        self.operator_pause = OperatorPause()
        """What an operator has paused, which is stored."""

    @initialize(
        order=st.sampled_from(Order),
        limit=st.sampled_from((0, 1, 2)),
        shards=st.integers(1, 3),
        splits=st.integers(0, 2),
        lineage_stored=st.booleans(),
        behind=st.integers(0, 2),
        breaker=st.sampled_from((None, BY_SHARE, BY_ROW)),
    )
    def begin(
        self,
        order: Order,
        limit: int,
        shards: int,
        splits: int,
        *,
        lineage_stored: bool,
        behind: int,
        breaker: BreakerRule | None,
    ) -> None:
        self.order = order
        self.breaker = breaker
        self.policy = RetryPolicy(limit=limit, backoff_seconds=4.0, cap_seconds=8.0)
        for _ in range(shards):
            self.stream.open_shard()
        for _ in range(splits):
            self.stream.open_shard((self.stream.open_shards()[-1],))
        self.store.open(lineage_stored=lineage_stored)
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
            breaker=self.breaker,
            bounds=None if self.last is None else bounds_after(self.last),
        )
        self.manager.pause_by_operator(self.operator_pause)
        self.spared.clear()
        self.suspects.clear()
        self.was_open = False
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
        self.spared = {place: count for place, count in self.spared.items() if place[0] != shard_id}
        self.suspects = {place: count for place, count in self.suspects.items() if place[0] != shard_id}
        return checkpoint

    # The breaker

    @precondition(lambda self: self.breaker is not None and self.stream.written < MOST_WRITTEN)
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

    @property
    def spares(self) -> bool:
        """Whether a failure now does not count: in a pause, or in doubt about the handler."""
        doubts = self.manager.breaker.doubts(self.now) and self.policy.limit != 0
        return self.manager.breaker.pause is not None or doubts

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

    @precondition(lambda self: self.manager.breaker.pause is not None)
    @rule()
    def an_operator_resumes(self) -> None:
        assert self.manager.resume()
        assert self.manager.breaker.pause is None
        self.was_open = False
        assert not self.manager.resume()

    def failed(self, shard_id: str, sequence: SequenceNumber, *, spared: bool) -> None:
        """Note that a delivery failed and was decided upon."""
        place, counts = (shard_id, sequence), self.spared if spared else self.suspects
        counts[place] = counts.get(place, 0) + 1

    def forgive(self) -> None:
        """Note what led to it if the breaker has just opened: at most all that failed."""
        is_open = self.manager.breaker.pause is not None
        if is_open and not self.was_open:
            for place, count in self.suspects.items():
                self.spared[place] = self.spared.get(place, 0) + count
            self.suspects.clear()
        self.was_open = is_open

    def check_bound(self, sequence: SequenceNumber) -> None:
        """No record behind its bound is handed out by a bounded run."""
        assert self.last is None or sequence <= self.last

    def see_the_tip(self, shard_id: str) -> None:
        """Nothing is ahead in an open shard: a bounded run ends there."""
        assert self.manager.ends_at_tip(shard_id, 1.0) == (self.last is not None)

    def check_limit(self, shard_id: str, sequence: SequenceNumber, attempt: int) -> None:
        """At most 1 + limit deliveries, and those that failed while nothing was given up (invariant 4)."""
        assert self.policy.limit is not None
        assert attempt - self.spared.get((shard_id, sequence), 0) <= 1 + self.policy.limit

    @precondition(lambda self: self.manager.owned)
    @rule(data=st.data())
    def another_consumer_takes_a_shard(self, data: st.DataObject) -> None:
        shard_id = data.draw(st.sampled_from(sorted(self.manager.owned)))
        self.store.acquire(shard_id, self.manager.fresh_checkpoint(shard_id))
        self.stolen.add(shard_id)

    @precondition(lambda self: self.store.to_begin())
    @rule(data=st.data(), lineage_stored=st.booleans())
    def another_consumer_begins_a_shard(self, data: st.DataObject, *, lineage_stored: bool) -> None:
        """It had a newer list than ours may be."""
        shard_id = data.draw(st.sampled_from(self.store.to_begin()))
        self.store.begin(shard_id, lineage_stored=lineage_stored)

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
            # Where every record kills its worker no probe succeeds, until an operator has them given up.
            self.manager.resume()
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
