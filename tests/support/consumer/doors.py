"""Both record doors behind one face, stepped on one thread by a manual clock: what a test can ask of each.

The fixture ``doors`` makes worlds of Storm's verbs, then of micro-batches on executors that are this thread.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol, cast

import pytest

from kinesis_spout.consumer.handle import Handle
from kinesis_spout.consumer.ports import Ports
from kinesis_spout.model.record import DeadLetter, Record
from kinesis_spout.settings import SpoutConfig
from kinesis_spout.spark.driver.query import OneOf, SpoutQuery
from kinesis_spout.spark.tasks.work import WorkResult, WorkSlice
from kinesis_spout.testing import (
    InMemoryDeadLetterSink,
    InMemoryStream,
    InMemoryZooKeeper,
    ManualClock,
    SteppedSpout,
    in_memory_ports,
)
from shard_state import Checkpoint, Order
from tests.model.stepped_doors import SteppedEngine, executors_are_here
from tests.unit.spark.driver.world import InProcessRunner, StreamClient, task_settings

FIRST, SECOND = "shardId-000000000000", "shardId-000000000001"
LONG_SECONDS: Final = 60.0
_STEP_SECONDS: Final = 0.05

Handler = Callable[[Record], object]


class Reader(Protocol):
    """A consumer of one door. Mutable."""

    handle: Handle
    """The spout, or the query."""

    @property
    def is_done(self) -> bool:
        """Whether the run has come up to its end."""

    def step(self) -> bool:
        """Do what is due; tells whether a record was handled."""

    def crash(self) -> None:
        """End as a killed process does: nothing more is stored."""

    def close(self) -> None:
        """Stop as a user does."""


class PlainReader:
    def __init__(self, ports: Ports, handler: Handler, settings: Mapping[str, Any]) -> None:
        self.handle = self._spout = SteppedSpout(ports=ports, **settings).open()
        self._handler = handler

    @property
    def is_done(self) -> bool:
        return self._spout.is_done

    def step(self) -> bool:
        emitted = self._spout.next_tuple()
        if emitted is None:
            return False
        try:
            self._handler(emitted.values)
        except Exception as error:  # noqa: BLE001 - whatever a handler raises fails its record
            self._spout.fail(emitted.message_id, error)
        else:
            self._spout.ack(emitted.message_id)
        return True

    def crash(self) -> None:
        self._spout.crash()

    def close(self) -> None:
        self._spout.close()


class MicroBatchReader:
    def __init__(
        self, ports: Ports, handler: Handler, settings: Mapping[str, Any], stream: InMemoryStream
    ) -> None:
        config = SpoutConfig.of(**settings)
        self._engine = SteppedEngine(
            config, ports, _Runner(config, handler, stream, ports), records_per_fetch=10_000
        )
        self.handle = SpoutQuery(config, OneOf(config.stream, self._engine), "stepped")
        self._handled = 0

    @property
    def is_done(self) -> bool:
        return self._engine.is_done

    def step(self) -> bool:
        before = self.handle.counters.delivered
        self._engine.poll()
        self._engine.work()
        return self.handle.counters.delivered > before

    def crash(self) -> None:
        self._engine.crash()

    def close(self) -> None:
        self._engine.close()


class _Runner(InProcessRunner):
    """Has its executors keep to the clock of the test."""

    def __init__(self, config: SpoutConfig, handler: Handler, stream: InMemoryStream, ports: Ports) -> None:
        settings = task_settings(
            StreamClient(stream), order=Order(config.order), fail_on_data_loss=config.fail_on_data_loss
        )
        super().__init__(settings, handler)
        self._clock = ports.clock

    def run(self, tag: str, packs: Sequence[Sequence[WorkSlice]]) -> list[WorkResult]:
        with executors_are_here(self._clock):
            return super().run(tag, packs)


class DoorWorld:
    """A stream, a ZooKeeper and a sink in memory, and readers on them, of one door. Mutable.

    Time passes in ``run``, and where a test moves the clock.
    """

    def __init__(self, door: str, shards: int = 1) -> None:
        self.door = door
        self.clock = ManualClock()
        self.stream = InMemoryStream("orders", shards=shards, clock=self.clock)
        self.zookeeper = InMemoryZooKeeper()
        self.dead_letters = InMemoryDeadLetterSink()
        self.handled: list[tuple[str, int]] = []
        """What handlers were given: payload and attempt."""
        self.outcomes: dict[str, list[Exception | None]] = {}
        """What to raise, by payload, at the first, second... delivery; None acks, and so does the rest."""
        self.meanwhile: Callable[[str], object] = lambda _: None
        """What happens while a record is handled, by its payload."""
        self.readers: list[Reader] = []

    def put(self, *payloads: str, key: str = "key") -> list[Record]:
        records = [self.stream.put(payload.encode(), key) for payload in payloads]
        self.last = records[-1]
        return records

    def put_in_both(self, prefix: str = "r") -> tuple[set[str], set[str]]:
        """Put 20 records into both shards; gives what each has."""
        records = [self.put(f"{prefix}{number}", key=f"key-{number}")[0] for number in range(20)]
        first = {record.data.decode() for record in records if record.shard_id == FIRST}
        return first, {record.data.decode() for record in records} - first

    def start(self, **settings: Any) -> Reader:
        """Start a reader, whose handler does what ``outcomes`` says."""
        chosen = {
            "stream": "orders",
            "app": "billing",
            "initial_position": "trim_horizon",
            "retry_jitter": 0.0,
            "max_spared_seconds": 0,
            **settings,
        }
        ports = in_memory_ports(self.stream, self.zookeeper, self.dead_letters)
        reader: Reader
        if self.door == "plain":
            reader = cast("Reader", PlainReader(ports, self._handle, chosen))
        else:
            reader = cast("Reader", MicroBatchReader(ports, self._handle, chosen, self.stream))
        self.readers.append(reader)
        return reader

    def _handle(self, record: Record) -> None:
        payload = record.data.decode()
        self.handled.append((payload, record.attempt))
        outcomes = self.outcomes.get(payload)
        error = outcomes.pop(0) if outcomes else None
        self.meanwhile(payload)
        if error is not None:
            raise error

    def run(self, reader: Reader, seconds: float = LONG_SECONDS) -> list[str]:
        """Let it work until its run is done, or for so many seconds; gives the payloads that it handled."""
        first, until = len(self.handled), self.clock.monotonic() + seconds
        while not reader.is_done and self.clock.monotonic() < until:
            if not reader.step():
                self.clock.advance(_STEP_SECONDS)
        return [payload for payload, _ in self.handled[first:]]

    def attempts(self, payload: str) -> list[int]:
        return [attempt for each, attempt in self.handled if each == payload]

    @property
    def letters(self) -> list[DeadLetter]:
        return self.dead_letters.letters

    def stored(self, shard_id: str = FIRST) -> Checkpoint:
        return self.zookeeper.decode(shard_id)

    def close(self) -> None:
        for reader in self.readers:
            reader.close()


@pytest.fixture(params=["plain", "micro-batch"])
def doors(request: pytest.FixtureRequest) -> Iterator[Callable[..., DoorWorld]]:
    """Make worlds of one door after the other."""
    made: list[DoorWorld] = []

    def make(shards: int = 1) -> DoorWorld:
        made.append(DoorWorld(request.param, shards))
        return made[-1]

    yield make
    for world in made:
        world.close()


@pytest.fixture
def world(doors: Callable[..., DoorWorld]) -> DoorWorld:
    """Make one with a stream of one shard."""
    return doors()
