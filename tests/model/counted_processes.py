"""A process of an application, whose calls to ZooKeeper, to Kinesis and to the dead letter sink are counted."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from kinesis_spout.consumer.ports import Ports
from kinesis_spout.model.errors import KinesisSpoutError
from kinesis_spout.ports import Page, ShardGetter
from kinesis_spout.testing import InMemoryShardGetter, InMemoryShardLister, InMemoryStream
from shard_state import Position
from tests.model.call_faults import Crashed

if TYPE_CHECKING:
    from tests.model.counted_world import CountedWorld

SESSION_SECONDS: Final = 6.0

_UNCOUNTED: Final = frozenset({"take_lost", "take_freed", "is_certain", "leads", "take_part"})
"""What a port answers without asking anybody."""


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
        self.ports = Ports(
            lister=InMemoryShardLister(world.stream),
            open_getter=self._open_getter,
            store=_counted(world, "store", inner.store),
            coordinator=_counted(world, "coordinator", inner.coordinator),
            group=_counted(world, "group", inner.group),
            dead_letters=_counted(world, "dead_letters", world.dead_letters),
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


class CountedStream(InMemoryStream):
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
