"""A stream, a ZooKeeper and a sink in memory, and spouts on them, for the tests of the plain-Python door."""

import hashlib
import itertools
import time
from collections.abc import Callable
from math import inf
from typing import Any

from kinesis_spout.consumer.consumer import Consumer
from kinesis_spout.consumer.ports import OpenGetter, Ports
from kinesis_spout.kinesis import ReadSettings
from kinesis_spout.model.record import DeadLetter, Record
from kinesis_spout.plain.buffered_shards import BufferedShards
from kinesis_spout.plain.listener import FailReason, SpoutListener
from kinesis_spout.plain.record_spout import RecordSpout
from kinesis_spout.plain.stream_tuples import Emitted
from kinesis_spout.ports import ShardGetter
from kinesis_spout.testing import (
    InMemoryDeadLetterSink,
    InMemoryShardGetter,
    InMemoryShardLister,
    InMemoryStream,
    InMemoryZooKeeper,
    ManualClock,
    SteppedSpout,
    in_memory_ports,
)
from shard_state import Checkpoint, Position
from tests.support.waiting import DEADLINE_SECONDS

FIRST, SECOND = "shardId-000000000000", "shardId-000000000001"
NEVER = 1e9


class World:
    """Time passes only when a test lets it: ``take``, ``settle`` and ``until`` move it on while they wait."""

    def __init__(self, shards: int = 1) -> None:
        self.clock = ManualClock()
        self.stream = InMemoryStream("orders", shards=shards, clock=self.clock)
        self.zookeeper = InMemoryZooKeeper()
        self.dead_letters = InMemoryDeadLetterSink()
        self.fail_on_data_loss = True
        self.ports_closed = 0
        self.open_getter: OpenGetter | None = None
        """What the shards of new spouts are read with, if not as in memory."""
        self._members = itertools.count(1)
        self._spouts: list[RecordSpout] = []

    def ports(self) -> Ports:
        process = self.zookeeper.process(f"member-{next(self._members)}")

        def open_getter(shard_id: str, position: Position) -> ShardGetter:
            return InMemoryShardGetter(
                self.stream,
                shard_id,
                position,
                settings=ReadSettings(fail_on_data_loss=self.fail_on_data_loss),
            )

        def close() -> None:
            self.ports_closed += 1

        return Ports(
            lister=InMemoryShardLister(self.stream),
            open_getter=self.open_getter or open_getter,
            store=process.store,
            coordinator=process.coordinator,
            group=process.group,
            dead_letters=self.dead_letters,
            clock=self.clock,
            close=close,
        )

    def new_spout(
        self,
        *,
        scheme: str | Callable[[Record], Any] = "text",
        listener: SpoutListener | None = None,
        **settings: Any,
    ) -> RecordSpout:
        chosen: dict[str, Any] = {
            "stream": "orders",
            "app": "billing",
            "initial_position": "trim_horizon",
            "retry_backoff_seconds": 1.0,
            "max_spared_seconds": 0,
            "retry_jitter": 0.0,
            "commit_interval_seconds": 0.02,
            "shard_list_interval_seconds": 0.05,
            **settings,
        }
        spout = RecordSpout(ports=self.ports(), scheme=scheme, listener=listener, **chosen)
        self._spouts.append(spout)
        return spout

    def spout(self, **settings: Any) -> RecordSpout:
        return self.new_spout(**settings).open()

    def put(self, *payloads: str, key: str | None = "key") -> list[str]:
        """Put records; gives their message ids."""
        return [self.stream.put(payload.encode(), key).message_id for payload in payloads]

    def put_in(self, shard_id: str, *payloads: str) -> list[str]:
        """Put records into that very shard."""
        shard = next(shard for shard in self.stream.list_shards() if shard.shard_id == shard_id)
        keys = (f"key-{number}" for number in itertools.count())
        key = next(key for key in keys if shard.hash_range[0] <= _hash_key(key) <= shard.hash_range[1])
        return self.put(*payloads, key=key)

    def take(self, spout: RecordSpout, count: int) -> list[Emitted]:
        """Take exactly so many tuples, waiting for them."""
        taken: list[Emitted] = []

        def enough() -> bool:
            emitted = spout.next_tuple()
            while emitted is not None:
                taken.append(emitted)
                if len(taken) == count:
                    return True
                emitted = spout.next_tuple()
            return False

        self.until(enough, lambda: f"{count} tuples, got {taken}")
        return taken

    def settle(self, spout: RecordSpout, count: int, *, seconds: float = 5.0) -> list[Emitted]:
        """Take and ack so many tuples, and make sure that none comes for so many seconds (of this world)."""
        taken: list[Emitted] = []
        quiet_since = self.clock.monotonic()

        def quiet() -> bool:
            nonlocal quiet_since
            while (emitted := spout.next_tuple()) is not None:
                taken.append(emitted)
                assert len(taken) <= count, f"expected {count} tuples, got {taken}"
                assert spout.ack(emitted.message_id)
                quiet_since = self.clock.monotonic()
            return len(taken) == count and self.clock.monotonic() - quiet_since > seconds

        self.until(quiet, lambda: f"{count} tuples and then silence, got {taken}")
        return taken

    def until(
        self, condition: Callable[[], bool], what: Callable[[], str] | str, *, step_seconds: float = 0.05
    ) -> None:
        """Let the time of this world pass, a step each few milliseconds, until the condition holds."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not condition():
            if time.monotonic() > deadline:
                text = what if isinstance(what, str) else what()
                raise AssertionError(f"waited {DEADLINE_SECONDS:g} s in vain for {text}")
            self.clock.advance(step_seconds)
            time.sleep(0.005)

    def stored(self, shard_id: str = FIRST) -> Checkpoint:
        with self.zookeeper.lock:
            return self.zookeeper.decode(shard_id)

    def until_stored(self, message_id: str) -> None:
        """Wait until the checkpoint is that very record."""
        shard_id, _, sequence = message_id.rpartition(":")
        self.until(
            lambda: str(self.stored(shard_id).base) == sequence,
            lambda: f"checkpoint {message_id}, got {self.stored(shard_id)}",
        )

    def letters(self, count: int) -> list[DeadLetter]:
        self.until(lambda: len(self.dead_letters.letters) >= count, f"{count} dead letters")
        assert len(self.dead_letters.letters) == count
        return self.dead_letters.letters

    def crash(self, spout: RecordSpout) -> None:
        """End a spout as a killed process ends: nothing more is stored."""
        consumer, shards = opened(spout)
        spout._closed = True
        with consumer.lock:
            shards.stop()
        consumer.close(commit=False)
        spout._prefetcher.close()

    def close(self) -> None:
        for spout in self._spouts:
            spout.close()


class SteppedWorld:
    """A stream, a ZooKeeper and a sink in memory, and spouts on them that have no thread.

    Time passes in ``takes`` and ``handles``, and where a test moves the clock. Mutable.

    Args:
        shards: of the stream.
        settings: of each spout, unless a test gives others.
    """

    def __init__(self, shards: int = 1, **settings: Any) -> None:
        self.clock = ManualClock()
        self.stream = InMemoryStream("orders", shards=shards, clock=self.clock)
        self.zookeeper = InMemoryZooKeeper()
        self.dead_letters = InMemoryDeadLetterSink()
        self.settings: dict[str, Any] = {
            "stream": "orders",
            "app": "billing",
            "initial_position": "trim_horizon",
            "max_spared_seconds": 0,
            **settings,
        }

    def new_spout(self, **settings: Any) -> SteppedSpout:
        chosen = self.settings | settings
        read = ReadSettings(
            fail_on_data_loss=chosen.get("fail_on_data_loss", True), tracing=chosen.get("tracing", False)
        )
        ports = in_memory_ports(self.stream, self.zookeeper, self.dead_letters, settings=read)
        return SteppedSpout(ports=ports, **chosen)

    def spout(self, **settings: Any) -> SteppedSpout:
        return self.new_spout(**settings).open()

    def put(self, *payloads: str, key: str | None = None) -> None:
        """Put records, each under its own payload as key unless one is given."""
        for payload in payloads:
            self.stream.put(payload.encode(), key or payload)

    def takes(self, spout: SteppedSpout, most: float = inf, *, seconds: float = 3.0) -> list[Emitted]:
        """What comes in so many seconds of the clock, acked by nobody."""
        taken: list[Emitted] = []
        until = self.clock.monotonic() + seconds
        while self.clock.monotonic() < until and len(taken) < most:
            emitted = spout.next_tuple()
            if emitted is None:
                self.clock.advance(0.05)
            else:
                taken.append(emitted)
        return taken

    def handles(self, spout: SteppedSpout, *, seconds: float = 5.0) -> list[Any]:
        """What comes, and is acked, in so many seconds of the clock."""
        handled = []
        until = self.clock.monotonic() + seconds
        while self.clock.monotonic() < until:
            emitted = spout.next_tuple()
            if emitted is None:
                self.clock.advance(0.05)
            else:
                handled.append(emitted.values)
                assert spout.ack(emitted.message_id)
        return handled

    def runs(self, **settings: Any) -> list[Any]:
        """What a process handles that starts, and is stopped cleanly."""
        with self.spout(**settings) as spout:
            return self.handles(spout)

    @property
    def given_up(self) -> list[str]:
        return [letter.data.decode() for letter in self.dead_letters.letters]


class Diary(SpoutListener):
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.lines: list[tuple[Any, ...]] = []

    def emitted(self, message_id: str, attempt: int) -> None:
        self.lines.append(("emitted", message_id, attempt))

    def acked(self, message_id: str) -> None:
        self.lines.append(("acked", message_id))

    def failed(self, message_id: str, reason: FailReason, error: str, retry_in: float | None) -> None:
        self.lines.append(("failed", message_id, reason, error, retry_in))

    def exhausted(self, message_id: str, attempts: int, error: str) -> None:
        self.lines.append(("exhausted", message_id, attempts, error))


def opened(spout: RecordSpout) -> tuple[Consumer, BufferedShards]:
    """Give the consumer of its only stream, and what is read."""
    (tuples,) = spout._opened().current.values()
    return tuples.consumer, tuples.shards


def values_of(tuples: list[Emitted]) -> list[Any]:
    return [emitted.values for emitted in tuples]


def _hash_key(partition_key: str) -> int:
    return int.from_bytes(hashlib.md5(partition_key.encode(), usedforsecurity=False).digest(), "big")
