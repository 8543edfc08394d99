"""Processes of one application whose every call to the outside is counted, so that any one of them meets a fault.

Calls are those to ZooKeeper, to Kinesis, to the dead letter sink and of the handler. All is in memory, on one
thread and a manual clock: two runs with the same faults make the same calls. The world knows the truth over all
processes, and checks each delivery and each stored checkpoint against it.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from kinesis_spout import Reject
from kinesis_spout.kinesis.aggregated_record import UserRecord
from kinesis_spout.model.record import DeadLetter, Record
from kinesis_spout.testing import (
    InMemoryDeadLetterSink,
    InMemoryZooKeeper,
    ManualClock,
)
from shard_state import Checkpoint, Order, SequenceNumber
from shard_state.checkpoint.hole_map import within
from tests.model.call_faults import Crashed, Fault, error_of, faults_of
from tests.model.counted_processes import SESSION_SECONDS, CountedStream, OpenDoor, Process

RETRY_LIMIT: Final = 2
_FAILURES: Final = {"fails-once": 1, "fails-twice": 2}
"""In how many first attempts a record of such a kind fails."""
_STEP_SECONDS: Final = 0.1
_HANG_SECONDS: Final = 15.0
"""Longer than a shard is awaited before it is taken: the time for a hand-over, and a session time-out."""
_MOST_STEPS: Final = 1_500
"""The time in which everything must be finished: 150 s, after whatever happens."""


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """What is in the stream, and what happens to it."""

    order: Order
    first: Sequence["str | tuple[str, ...]"]
    """Of the first shard: what each record does, and its key. Several together are in one aggregated record."""
    second: Sequence["str | tuple[str, ...]"]
    merges: bool = False
    """Whether both shards are merged; else the first one is split."""
    later: Sequence["str | tuple[str, ...]"]
    """Of each child."""
    reshards_after: int = 4
    """Calls of the handler."""
    joins_after: int | None = None
    """Calls of the handler, after which a second process starts."""


@dataclass
class Fate:
    """What has become of a record, over all processes."""

    record: Record
    acked: bool = False
    successes: int = 0
    """How often a handler returned."""


@dataclass
class Ownership:
    """A process's time with a shard."""

    checkpoint: Checkpoint
    """As it was acquired."""
    failed: dict[SequenceNumber, int] = field(default_factory=dict)
    """How many deliveries have failed since."""

    def has_stored(self, sequence: SequenceNumber) -> bool:
        return sequence <= self.checkpoint.base or within(self.checkpoint.holes, sequence)

    def next_attempt(self, sequence: SequenceNumber) -> int:
        """Of one that was given up, and not buried, the last delivery is made again."""
        stored = min(RETRY_LIMIT, dict(self.checkpoint.attempts).get(sequence, 0))
        return stored + self.failed.get(sequence, 0) + 1


class _WatchedZooKeeper(InMemoryZooKeeper):
    """Shows the world each checkpoint before it is stored."""

    world: "CountedWorld"

    def put(self, shard_id: str, data: bytes) -> None:
        before = self.decode(shard_id) if shard_id in self.shards else None
        self.world.check_write(shard_id, before, Checkpoint.decode(data))
        super().put(shard_id, data)

    def owner_lost(self, shard_id: str) -> None:
        self.world.taken_from_the_living += 1
        super().owner_lost(shard_id)


class CountedWorld:
    """A stream, a ZooKeeper, a sink, and the processes of one application. Mutable.

    Args:
        scenario: what is in the stream, and what happens to it.
        open_door: starts a consumer.
        faults: what each call meets, by its number from 0.
        chance: says what a call meets that has no such fault, by the call's name; None: nothing.
    """

    def __init__(
        self,
        scenario: Scenario,
        open_door: OpenDoor,
        faults: Mapping[int, Fault],
        chance: Callable[[str], Fault | None] | None = None,
    ) -> None:
        self.scenario = scenario
        self.open_door = open_door
        self._faults = faults
        self._chance = chance
        self.by_chance: Counter[Fault] = Counter()
        """What calls have met that had no fault by their number."""
        self.calls: list[str] = []
        """The name of each call, in order."""
        self.met: dict[int, str] = {}
        """Which calls met a fault."""
        self.current: Process | None = None
        self.clock = ManualClock()
        self.stream = CountedStream("orders", shards=2, clock=self.clock)
        self.stream.world = self
        self.zookeeper = _WatchedZooKeeper()
        self.zookeeper.world = self
        self.dead_letters = InMemoryDeadLetterSink()
        self.processes: list[Process] = []
        self.fates: dict[SequenceNumber, Fate] = {}
        self.ownerships: dict[tuple[str, str], Ownership] = {}
        """The last one of each process and shard."""
        self.parents: dict[str, tuple[str, ...]] = dict.fromkeys(self.stream._logs, ())
        self.handled = 0
        self.taken_from_the_living = 0
        """How often a shard was taken from a member whose session lived."""
        self.repeats_allowed = 0
        """How many successes were not stored when their process lost its shards."""
        self.violations: list[str] = []
        self.resharded = False
        for shard, texts in enumerate((scenario.first, scenario.second)):
            self._put(f"shardId-{shard:012}", texts)

    def _put(self, shard_id: str, texts: Sequence[str | tuple[str, ...]]) -> None:
        for text in texts:
            if isinstance(text, str):
                records = [self.stream.put(text.encode(), self._key(shard_id, text))]
            else:
                inside = [UserRecord(self._key(shard_id, each), each.encode()) for each in text]
                records = self.stream.put_aggregated(inside)
            self.fates.update((record.sequence, Fate(record)) for record in records)

    def _key(self, shard_id: str, text: str) -> str:
        """Give a key that leads to the shard."""
        log, name = self.stream._logs[shard_id], text.rpartition(" ")[2]
        keys = (f"{name}-{number}" for number in range(1_000))
        return next(key for key in keys if self.stream._log_for(key) is log)

    # Running

    def run(self) -> None:
        """Handle everything, stop, and check that all of it is stored."""
        self._start_another()
        self._step_until(self._is_all_finished, "every record is acked or dead-lettered")
        for process in self._running():
            process.close()
        if not self._is_all_stored():
            self._step_until(self._is_all_stored, "the progress is stored")
        for process in self._running():
            process.close()
        assert not self.violations, self.violations
        self._check_end()

    def _step_until(self, done: Callable[[], bool], what: str) -> None:
        for _ in range(_MOST_STEPS):
            if done():
                return
            self._step()
        raise AssertionError(
            f"after {_MOST_STEPS * _STEP_SECONDS:g} s it is not so that {what}: {self.fates}"
        )

    def _step(self) -> None:
        """Let all processes do what is due, and a moment pass."""
        now = self.clock.monotonic()
        for process in self.processes:
            if process.expires_at is not None and process.expires_at <= now:
                process.expires_at = None
                self.zookeeper.expire(process.name)
        wanted = 1
        if self.scenario.joins_after is not None and self.handled >= self.scenario.joins_after:
            wanted = 2
        if len(self._running()) < wanted:
            self._start_another()
        if not self.resharded and self.handled >= self.scenario.reshards_after:
            self._reshard()
        for process in self._running():
            process.step()
        self.clock.advance(_STEP_SECONDS)

    def _running(self) -> list[Process]:
        return [process for process in self.processes if process.runs and not process.is_asleep]

    def _start_another(self) -> None:
        process = Process(self, f"process-{len(self.processes)}")
        self.processes.append(process)
        process.start(self.open_door)

    def _reshard(self) -> None:
        self.resharded = True
        one, other = "shardId-000000000000", "shardId-000000000001"
        children = (self.stream.merge(one, other),) if self.scenario.merges else self.stream.split(one)
        for child in children:
            self.parents[child.shard_id] = child.parents
            self._put(child.shard_id, self.scenario.later)

    # Calls

    def call(self, name: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Make a call of the current process, with what it meets."""
        process = self.current
        assert process is not None, f"{name} is called by no process"
        process.check_alive()
        number = len(self.calls)
        self.calls.append(name)
        fault = self._faults.get(number)
        if fault is not None:
            self.met[number] = name
        elif self._chance is not None and (fault := self._chance(name)) is not None:
            self.by_chance[fault] += 1
        if fault is None:
            return function(*args, **kwargs)
        assert fault in (*faults_of(name), Fault.HANGS), (fault, name)
        if fault is Fault.REFUSED:
            raise error_of(name)
        if fault is Fault.ANSWER_LOST:
            function(*args, **kwargs)
            raise error_of(name)
        if fault is Fault.ITERATORS_EXPIRED:
            self.stream.expire_iterators()
            return function(*args, **kwargs)
        if fault is Fault.PAUSES:
            return self._pause(process, name, partial(function, *args, **kwargs))
        if fault is Fault.HANGS:
            self._allow_repeats(process)
            self._let_others_go_on(process, _HANG_SECONDS)
            return function(*args, **kwargs)
        if fault is Fault.CRASHES_AFTER:
            with suppress(Exception):  # nobody is there to see it
                function(*args, **kwargs)
        self._allow_repeats(process)
        process.die()
        raise Crashed(process.name)

    def _pause(self, process: Process, name: str, call: Callable[[], Any]) -> Any:
        """Let others go on while a process sleeps. It hears of its lost session when it wakes, or a bit later."""
        self._allow_repeats(process)
        self.zookeeper.end_session(process.name)
        self.zookeeper.tell()
        self._let_others_go_on(process, SESSION_SECONDS)
        if name != "store.commit":
            process.coordinator.lose_all()
            return call()
        try:
            return call()
        finally:
            process.coordinator.lose_all()

    def _let_others_go_on(self, process: Process, seconds: float) -> None:
        process.is_asleep = True
        before, self.current = self.current, None
        until = self.clock.monotonic() + seconds
        while self.clock.monotonic() < until:
            self._step()
        self.current = before
        process.is_asleep = False

    # The truth

    def handle(self, record: Record) -> None:
        """Be the handler of every process."""
        self.handled += 1
        fate = self.fates[record.sequence]
        kind = record.data.decode().split()[0]
        if kind == "rejects":
            raise Reject("rejected")
        if kind == "fails" or record.attempt <= _FAILURES.get(kind, 0):
            raise ValueError(kind)
        fate.successes += 1
        assert self.current is not None
        owner = self.zookeeper.owners.get(record.shard_id)
        if owner is None or owner.member != self.current.name:
            self.repeats_allowed += 1  # its process does not know yet that the shard is another's

    def delivers(self, record: Record) -> None:
        """Check a delivery that the current process is about to make."""
        assert self.current is not None
        shard_id, sequence = record.shard_id, record.sequence
        own = self.ownerships[self.current.name, shard_id]
        if not all(self.zookeeper.decode(parent).is_shard_end for parent in self.parents[shard_id]):
            self._violated(f"{shard_id} is read before its parents are over")
        if own.has_stored(sequence):
            self._violated(f"{sequence} was stored as finished, and comes again")
        if not record.attempt == own.next_attempt(sequence) <= 1 + RETRY_LIMIT:
            self._violated(f"delivery {record.attempt} of {sequence}, after {own}")
        for failed in own.failed:
            if failed < sequence and self._must_wait(record, self.fates[failed].record):
                self._violated(f"{sequence} overtakes {failed}, which is to be tried again")

    def _must_wait(self, record: Record, failed: Record) -> bool:
        """Tell whether a record must wait for an earlier one that has failed."""
        order = self.scenario.order
        in_the_way = order is Order.SHARD or (
            order is Order.KEY and failed.partition_key == record.partition_key
        )
        return in_the_way and not self.is_finished(failed.sequence)

    def acked(self, record: Record) -> None:
        """Note that a process takes a record as acked."""
        self.fates[record.sequence].acked = True

    def failed(self, record: Record) -> None:
        """Note that a process takes the delivery of a record as failed."""
        assert self.current is not None
        own = self.ownerships[self.current.name, record.shard_id]
        own.failed[record.sequence] = own.failed.get(record.sequence, 0) + 1

    def is_finished(self, sequence: SequenceNumber) -> bool:
        return self.fates[sequence].acked or bool(self.letters_of(sequence))

    def letters_of(self, sequence: SequenceNumber) -> list[DeadLetter]:
        return [letter for letter in self.dead_letters.letters if letter.sequence_number == str(sequence)]

    def check_write(self, shard_id: str, before: Checkpoint | None, after: Checkpoint) -> None:
        """Check what is about to be stored of a shard."""
        owner = self.zookeeper.owners.get(shard_id)
        if before is not None and (after.base < before.base or after.epoch < before.epoch):
            self._violated(f"the checkpoint of {shard_id} goes back: {before}, {after}")
        if after.epoch > (0 if before is None else before.epoch):
            assert owner is not None
            self.ownerships[owner.member, shard_id] = Ownership(after)
        elif after.epoch:
            own = None if owner is None else self.ownerships.get((owner.member, shard_id))
            if own is None or own.checkpoint.epoch != after.epoch:
                self._violated(f"{shard_id} is written to by who does not own it: {after}")
        for record in self._records(shard_id):
            covered = record.sequence <= after.base or within(after.holes, record.sequence)
            if covered and not self.is_finished(record.sequence):
                self._violated(f"{record.sequence} is stored as finished: {after}")
        if any(count > 1 + RETRY_LIMIT for _, count in after.attempts):
            self._violated(f"too many attempts: {after}")

    def _violated(self, what: str) -> None:
        """Note a violation: whoever called may catch the error."""
        self.violations.append(what)
        raise AssertionError(what)

    def _allow_repeats(self, process: Process) -> None:
        """A process loses its shards: what it handled there, and is not stored, is handled again."""
        for fate in self.fates.values():
            owner = self.zookeeper.owners.get(fate.record.shard_id)
            if owner is not None and owner.member == process.name and fate.successes:
                self.repeats_allowed += not self._is_stored(fate.record)

    # The end

    def _is_stored(self, record: Record) -> bool:
        if record.shard_id not in self.zookeeper.shards:
            return False
        stored = self.zookeeper.decode(record.shard_id)
        return record.sequence <= stored.base or within(stored.holes, record.sequence)

    def _is_all_finished(self) -> bool:
        return self.resharded and all(self.is_finished(sequence) for sequence in self.fates)

    def _is_all_stored(self) -> bool:
        return all(self._is_stored_whole(shard_id) for shard_id in self.stream._logs)

    def _is_stored_whole(self, shard_id: str) -> bool:
        if shard_id not in self.zookeeper.shards:
            return False
        stored, log = self.zookeeper.decode(shard_id), self.stream._logs[shard_id]
        if log.shard.closed:
            return stored.is_shard_end
        return stored.base.number >= log.last and all(map(self._is_stored, self._records(shard_id)))

    def _records(self, shard_id: str) -> list[Record]:
        return [fate.record for fate in self.fates.values() if fate.record.shard_id == shard_id]

    def _check_end(self) -> None:
        assert set(self.met) == set(self._faults), "every fault happens, or the run proves nothing"
        repeats = sum(max(0, fate.successes - 1) for fate in self.fates.values())
        assert repeats <= self.repeats_allowed
        answers_lost = list(self._faults.values()).count(Fault.ANSWER_LOST)
        answers_lost += self.by_chance[Fault.ANSWER_LOST]
        loses = any(fault.costs_ownership for fault in self._faults.values())
        for sequence, fate in self.fates.items():
            letters = self.letters_of(sequence)
            kind = fate.record.data.decode().split()[0]
            assert bool(letters) == (kind in ("fails", "rejects"))
            # What is rejected is rejected again if it comes again, as any later delivery.
            least = 1 if kind == "rejects" else 1 + RETRY_LIMIT
            assert all(least <= letter.attempts <= 1 + RETRY_LIMIT for letter in letters)
            assert loses or len(letters) <= 1 + answers_lost
        for member in self.zookeeper.owners.values():
            assert next(each for each in self.processes if each.name == member.member).is_dead
