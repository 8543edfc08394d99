"""Processes of one application whose every call to the outside is counted, so that any one of them meets a fault.

Calls are those to ZooKeeper, to Kinesis, to the dead letter sink and of the handler. All is in memory, on one
thread and a manual clock: two runs with the same faults make the same calls. The world knows the truth over all
processes, and checks each delivery and each stored checkpoint against it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from typing import Any, Final, cast

from kinesis_spout import Reject
from kinesis_spout.consumer.ports import Ports
from kinesis_spout.dead_letter import DeadLetter
from kinesis_spout.errors import DeadLetterError, KinesisSpoutError, StoreUnavailable, Unavailable
from kinesis_spout.ports import DeadLetterSink, Page, ShardGetter
from kinesis_spout.record import Record
from kinesis_spout.testing import (
    InMemoryDeadLetterSink,
    InMemoryShardGetter,
    InMemoryShardLister,
    InMemoryStream,
    InMemoryZooKeeper,
    ManualClock,
)
from shard_state import Checkpoint, Order, Position, SequenceNumber
from shard_state.restored import within

SESSION_SECONDS: Final = 6.0
RETRY_LIMIT: Final = 2
_STEP_SECONDS: Final = 0.1
_MOST_STEPS: Final = 1_500
"""The time in which everything must be finished: 150 s, after whatever happens."""


class Fault(Enum):
    """What a call meets."""

    REFUSED = auto()
    """It does nothing, and raises an error that may pass."""
    ANSWER_LOST = auto()
    """It takes effect, and raises such an error."""
    ITERATORS_EXPIRED = auto()
    """Before it all iterators expire."""
    CRASHES_BEFORE = auto()
    """Its process is killed before it."""
    CRASHES_AFTER = auto()
    """Its process is killed when it has taken effect."""
    PAUSES = auto()
    """Its process sleeps before it for longer than its session lives, while others go on."""

    @property
    def costs_ownership(self) -> bool:
        """Whether the process loses its shards, so that what it had not stored is handled again."""
        return self in (Fault.CRASHES_BEFORE, Fault.CRASHES_AFTER, Fault.PAUSES)


_UNCOUNTED: Final = frozenset({"take_lost", "leads", "take_part"})
"""What a port answers without asking anybody."""
_NEVER_RAISES: Final = frozenset(
    {"handler", "coordinator.release", "coordinator.close", "group.close", "dead_letters.close"}
)
_CHANGES: Final = frozenset(
    {
        "store.open",
        "store.commit",
        "coordinator.join",
        "coordinator.say",
        "coordinator.acquire",
        "group.assign",
        "dead_letters.write",
    }
)


def faults_of(call: str) -> list[Fault]:
    """Name the faults that a call may meet, as its port says."""
    faults = [Fault.CRASHES_BEFORE, Fault.CRASHES_AFTER, Fault.PAUSES]
    if call not in _NEVER_RAISES:
        faults.append(Fault.REFUSED)
    if call in _CHANGES:
        faults.append(Fault.ANSWER_LOST)
    if call == "kinesis.get_records":
        faults.append(Fault.ITERATORS_EXPIRED)
    return faults


def _error_of(call: str) -> KinesisSpoutError:
    if call.startswith("kinesis."):
        return Unavailable(f"InternalFailure of {call} (injected)")
    if call.startswith("dead_letters."):
        return DeadLetterError(f"{call} failed (injected)")
    return StoreUnavailable(f"{call} was not answered (injected)")


class Crashed(BaseException):
    """The process is dead: nothing of it runs any more."""


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """What is in the stream, and what happens to it."""

    order: Order
    first: Sequence[str]
    """Of the first shard: what each record does, and its key."""
    second: Sequence[str]
    merges: bool = False
    """Whether both shards are merged; else the first one is split."""
    later: Sequence[str]
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
        return dict(self.checkpoint.attempts).get(sequence, 0) + self.failed.get(sequence, 0) + 1


class Door(ABC):
    """One consumer of a process, driven step by step."""

    @abstractmethod
    def step(self) -> None:
        """Do what is due."""

    @abstractmethod
    def close(self) -> None:
        """Stop as a user does."""


OpenDoor = Callable[["Process"], Door]


class Process:
    """One process: it starts a consumer, and lives until that is closed or the process crashes. Mutable."""

    def __init__(self, world: "CountedWorld", name: str) -> None:
        self.world = world
        self.name = name
        self.is_dead = False
        self.expires_at: float | None = None
        """When the session of a dead one ends."""
        self.is_asleep = False
        self.coordinator = (inner := world.zookeeper.process(name)).coordinator
        sink = _Counted(world, "dead_letters", world.dead_letters)
        self.ports = Ports(
            lister=InMemoryShardLister(world.stream),
            open_getter=self._open_getter,
            store=_counted(world, "store", inner.store),
            coordinator=_counted(world, "coordinator", inner.coordinator),
            group=_counted(world, "group", inner.group),
            dead_letters=cast("DeadLetterSink", sink),
            clock=world.clock,
        )
        self.door: Door | None = None

    def _open_getter(self, shard_id: str, position: Position) -> ShardGetter:
        return InMemoryShardGetter(self.world.stream, shard_id, position)

    @property
    def runs(self) -> bool:
        return self.door is not None and not self.is_dead

    def start(self, open_door: OpenDoor) -> None:
        def opens() -> None:
            self.door = open_door(self)

        if not self._does(opens):
            self.door = None

    def step(self) -> None:
        assert self.door is not None
        self._does(self.door.step, may_fail=False)

    def close(self) -> None:
        """Stop. What cannot be stored at the end comes again."""
        assert self.door is not None
        self._does(self.door.close)
        self.door = None

    def die(self) -> None:
        self.is_dead = True
        self.expires_at = self.world.clock.monotonic() + SESSION_SECONDS

    def check_alive(self) -> None:
        if self.is_dead:
            raise Crashed(self.name)

    def _does(self, act: Callable[[], None], *, may_fail: bool = True) -> bool:
        before, self.world.current = self.world.current, self
        try:
            act()
        except Crashed:
            assert self.is_dead
            return False
        except KinesisSpoutError as error:
            if not self.is_dead and not (may_fail and error.retriable):
                raise
            return False
        finally:
            self.world.current = before
        return True


class _Counted:
    """A port whose calls are counted."""

    def __init__(self, world: "CountedWorld", name: str, port: object) -> None:
        self._world = world
        self._name = name
        self._port = port
        self._assigned: object = None

    def __getattr__(self, attribute: str) -> Any:
        value = getattr(self._port, attribute)
        if not callable(value) or attribute in _UNCOUNTED or self._knows(attribute):
            return value
        return partial(self._world.call, f"{self._name}.{attribute}", value)

    def _knows(self, attribute: str) -> bool:
        """Tell whether the answer is known: the assignment is asked for when it has changed only."""
        if attribute != "assignment":
            return False
        before, self._assigned = self._assigned, self._world.zookeeper.assignment
        return before == self._assigned


def _counted(world: "CountedWorld", name: str, port: object) -> Any:
    return _Counted(world, name, port)


class _CountedStream(InMemoryStream):
    """Kinesis, whose calls are counted, whoever makes them."""

    world: "CountedWorld"

    def summary(self) -> Any:
        return self.world.call("kinesis.summary", super().summary)

    def list_shards(self) -> Any:
        return self.world.call("kinesis.list_shards", super().list_shards)

    def shard_iterator(self, shard_id: str, position: Position) -> str:
        return cast(
            "str", self.world.call("kinesis.shard_iterator", super().shard_iterator, shard_id, position)
        )

    def get_records(self, iterator: str, limit: int) -> tuple[Page, str | None]:
        return cast(
            "tuple[Page, str | None]",
            self.world.call("kinesis.get_records", super().get_records, iterator, limit),
        )


class _WatchedZooKeeper(InMemoryZooKeeper):
    """Shows the world each checkpoint before it is stored."""

    world: "CountedWorld"

    def put(self, shard_id: str, data: bytes) -> None:
        before = self.decode(shard_id) if shard_id in self.shards else None
        self.world.check_write(shard_id, before, Checkpoint.decode(data))
        super().put(shard_id, data)


class CountedWorld:
    """A stream, a ZooKeeper, a sink, and the processes of one application. Mutable.

    Args:
        scenario: what is in the stream, and what happens to it.
        open_door: starts a consumer.
        faults: what each call meets, by its number from 0.
    """

    def __init__(self, scenario: Scenario, open_door: OpenDoor, faults: Mapping[int, Fault]) -> None:
        self.scenario = scenario
        self.open_door = open_door
        self._faults = faults
        self.calls: list[str] = []
        """The name of each call, in order."""
        self.met: dict[int, str] = {}
        """Which calls met a fault."""
        self.current: Process | None = None
        self.clock = ManualClock()
        self.stream = _CountedStream("orders", shards=2, clock=self.clock)
        self.stream.world = self
        self.zookeeper = _WatchedZooKeeper()
        self.zookeeper.world = self
        self.dead_letters = InMemoryDeadLetterSink()
        self.processes: list[Process] = []
        self.fates: dict[SequenceNumber, Fate] = {}
        self.ownerships: dict[tuple[str, str], Ownership] = {}
        """The last one of each process and shard."""
        self.handled = 0
        self.repeats_allowed = 0
        """How many successes were not stored when their process lost its shards."""
        self.violations: list[str] = []
        self.resharded = False
        for shard, texts in enumerate((scenario.first, scenario.second)):
            self._put(f"shardId-{shard:012}", texts)

    def _put(self, shard_id: str, texts: Sequence[str]) -> None:
        log = self.stream._logs[shard_id]
        for text in texts:
            name = text.rpartition(" ")[2]
            keys = (f"{name}-{number}" for number in range(1_000))
            record = self.stream.put(
                text.encode(), next(key for key in keys if self.stream._log_for(key) is log)
            )
            self.fates[record.sequence] = Fate(record)

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
        if self.scenario.merges:
            children = [self.stream.merge(one, other)]
        else:
            children = list(self.stream.split(one))
        for child in children:
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
        if fault is None:
            return function(*args, **kwargs)
        assert fault in faults_of(name), (fault, name)
        self.met[number] = name
        if fault is Fault.REFUSED:
            raise _error_of(name)
        if fault is Fault.ANSWER_LOST:
            function(*args, **kwargs)
            raise _error_of(name)
        if fault is Fault.ITERATORS_EXPIRED:
            self.stream.expire_iterators()
            return function(*args, **kwargs)
        if fault is Fault.PAUSES:
            return self._pause(process, name, partial(function, *args, **kwargs))
        if fault is Fault.CRASHES_AFTER:
            with suppress(Exception):  # nobody is there to see it
                function(*args, **kwargs)
        self._allow_repeats(process)
        process.die()
        raise Crashed(process.name)

    def _pause(self, process: Process, name: str, call: Callable[[], Any]) -> Any:
        """Let others go on while a process sleeps; it hears of its lost session when it wakes, or a little later."""
        self._allow_repeats(process)
        process.is_asleep = True
        self.zookeeper.end_session(process.name)
        self.zookeeper.tell()
        before, self.current = self.current, None
        until = self.clock.monotonic() + SESSION_SECONDS
        while self.clock.monotonic() < until:
            self._step()
        self.current = before
        process.is_asleep = False
        if name != "store.commit":
            process.coordinator.lose_all()
            return call()
        try:
            return call()
        finally:
            process.coordinator.lose_all()

    # The truth

    def handle(self, record: Record) -> None:
        """Be the handler of every process."""
        self.handled += 1
        fate = self.fates[record.sequence]
        kind = record.data.decode().split()[0]
        if kind == "rejects":
            raise Reject("rejected")
        if kind == "fails" or (kind == "fails-once" and record.attempt == 1):
            raise ValueError(kind)
        fate.successes += 1
        assert self.current is not None
        owner = self.zookeeper.owners.get(record.shard_id)
        if owner is None or owner.member != self.current.name:
            self.repeats_allowed += 1  # its process does not know yet that the shard is another's

    def delivers(self, record: Record) -> None:
        """Check a delivery that the current process is about to make."""
        assert self.current is not None
        own = self.ownerships[self.current.name, record.shard_id]
        shard_id, sequence = record.shard_id, record.sequence
        for parent in self.stream._logs[shard_id].shard.parents:
            self._check(
                self.zookeeper.decode(parent).is_shard_end, f"{shard_id} is read before {parent} is over"
            )
        self._check(not own.has_stored(sequence), f"{sequence} was stored as finished, and comes again")
        expected = own.next_attempt(sequence)
        self._check(
            record.attempt == expected <= 1 + RETRY_LIMIT, f"{sequence}: {record.attempt=}, {expected=}"
        )
        for failed in own.failed:
            earlier = self.fates[failed].record
            in_the_way = self.scenario.order is Order.SHARD or (
                self.scenario.order is Order.KEY and earlier.partition_key == record.partition_key
            )
            if in_the_way and failed < sequence:
                self._check(
                    self.is_finished(failed), f"{sequence} overtakes {failed}, which waits for a retry"
                )

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
        if before is not None:
            self._check(
                after.base >= before.base, f"the checkpoint of {shard_id} goes back: {before}, {after}"
            )
            self._check(after.epoch >= before.epoch, f"an old epoch writes to {shard_id}: {before}, {after}")
        if after.epoch > (0 if before is None else before.epoch):
            if owner is not None:
                self.ownerships[owner.member, shard_id] = Ownership(after)
        elif after.epoch:
            own = None if owner is None else self.ownerships.get((owner.member, shard_id))
            is_owner = own is not None and own.checkpoint.epoch == after.epoch
            self._check(is_owner, f"{shard_id} is written to by who does not own it: {after}")
        for record in self.stream.records(shard_id):
            if record.sequence <= after.base or within(after.holes, record.sequence):
                self._check(
                    self.is_finished(record.sequence), f"{record.sequence} is stored as finished: {after}"
                )
        self._check(all(count <= RETRY_LIMIT for _, count in after.attempts), f"too many attempts: {after}")

    def _check(self, holds: bool, what: str) -> None:  # noqa: FBT001 - reads like an assertion
        """Note a violation: whoever called may catch an error that is raised here."""
        if not holds:
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
        return stored.is_shard_end if log.shard.closed else stored.base.number >= log.last

    def _check_end(self) -> None:
        assert set(self.met) == set(self._faults), "every fault happens, or the run proves nothing"
        repeats = sum(max(0, fate.successes - 1) for fate in self.fates.values())
        assert repeats <= self.repeats_allowed
        loses = any(fault.costs_ownership for fault in self._faults.values())
        for sequence, fate in self.fates.items():
            letters = self.letters_of(sequence)
            kind = fate.record.data.decode().split()[0]
            assert bool(letters) == (kind in ("fails", "rejects"))
            assert all(letter.attempts == (1 if kind == "rejects" else 1 + RETRY_LIMIT) for letter in letters)
            assert loses or len(letters) <= 1 + list(self._faults.values()).count(Fault.ANSWER_LOST)
        for member in self.zookeeper.owners.values():
            assert next(each for each in self.processes if each.name == member.member).is_dead
