"""A topology with a windowed bolt whose failures a test decides, in this process.

A record is a list of items; each is a tuple of its own: a key, a number that no other item has, and its time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from kinesis_spout.storm import (
    BasicBolt,
    Count,
    FailedException,
    Seconds,
    Spout,
    Topology,
    TopologyBuilder,
    Tuple,
    Window,
    WindowedBolt,
)
from kinesis_spout.storm.local import LocalResult, LocalTopology
from kinesis_spout.storm.running.clocks import BatchTicks
from kinesis_spout.testing import ManualClock

RAISES: set[int] = set()
"""A window with one of these numbers makes ``execute_window`` raise. Here, as each task of a bolt is a copy."""
FAILS: set[int] = set()
"""A window with one of these fails in the bolt after."""

Item = tuple[str, int, float]
Executed = tuple[tuple[int, ...], float, float]
"""The numbers in a window, its start and its end."""


class Records(Spout):
    def declare_output_fields(self) -> list[str]:
        return ["items"]

    def next_tuple(self) -> None:
        raise AssertionError("a local run asks no spout")


class Items(BasicBolt):
    def declare_output_fields(self) -> list[str]:
        return ["key", "number", "time"]

    def process(self, tup: Tuple) -> None:
        for item in tup["items"]:
            self.emit(item)


class Numbers(WindowedBolt):
    """Emits the numbers of each window."""

    def __init__(
        self,
        length: Count | Seconds,
        slide: Count | Seconds | None = None,
        *,
        lateness_seconds: float = 0.0,
        tick_seconds: float | None = None,
    ) -> None:
        self.length = length
        self.slide = slide
        self.lateness_seconds = lateness_seconds
        self.tick_seconds = tick_seconds

    def declare_output_fields(self) -> list[str]:
        return ["key", "numbers", "start", "end"]

    def execute_window(self, key: Any, window: Window) -> None:
        numbers = tuple(values["number"] for values in window.tuples)
        if RAISES.intersection(numbers):
            raise FailedException("raised")
        self.emit([key, numbers, window.start, window.end])


class ByEventTime(Numbers):
    def time_of(self, tup: Tuple) -> float:
        time: float = tup["time"]
        return time


class After(BasicBolt):
    """Fails windows."""

    def process(self, tup: Tuple) -> None:
        if FAILS.intersection(tup["numbers"]):
            raise FailedException("failed after the window")


def forget_failures() -> None:
    """Have no window fail: what one test decided must not reach the next."""
    RAISES.clear()
    FAILS.clear()


def windowed(
    bolt: WindowedBolt, fields: Sequence[str] = ("key",), *, is_far: bool = False, **options: Any
) -> Topology:
    """Give the topology, and forget failures of before; ``is_far``: with an exchange after the windows."""
    forget_failures()
    builder = TopologyBuilder()
    builder.set_spout("records", Records())
    builder.set_bolt("items", Items()).shuffle_grouping("records")
    builder.set_bolt("windows", bolt, 2).fields_grouping("items", fields)
    after = builder.set_bolt("after", After(), 2)
    if is_far:
        after.fields_grouping("windows", ["key"])
    else:
        after.shuffle_grouping("windows")
    return builder.build("windowed", **options)


class Local(LocalTopology):
    """Runs in this process; a test says whether it is behind. Mutable."""

    read_to: float | None = None
    """Up to when the stream was read, where records wait on it, as in a backlog."""

    def _ticks_now(self, spout: str) -> BatchTicks:
        ticks = super()._ticks_now(spout)
        return ticks if self.read_to is None else replace(ticks, read_to=self.read_to)


class Started:
    """A windowed topology that runs. Mutable."""

    EPOCH: ClassVar[float] = 1_000.0

    def __init__(self, bolt: WindowedBolt, **settings: Any) -> None:
        self.clock = ManualClock(self.EPOCH)
        self._settings = settings
        self.local = self._local(bolt)

    def _local(self, bolt: WindowedBolt) -> Local:
        programs = windowed(bolt, **self._settings)._programs(4)
        return Local(programs, self.clock.monotonic, self.clock.time)

    def run(self, *items: Item) -> LocalResult:
        """Run a micro-batch of records of one item each."""
        return self.local.run([([item],) for item in items])

    def falls_behind(self) -> None:
        """From now on records wait on the stream."""
        self.local.read_to = self.clock.time()

    def catches_up(self) -> None:
        """No record waits any more."""
        self.local.read_to = None

    def restart(self, changed: WindowedBolt | None = None) -> None:
        """Go on with new bolts on the same state, as after a crash, or after a deployment with another one."""
        self.local.close()
        if changed is not None:
            states, self.local = self.local._states, self._local(changed)
            self.local._states = states

    @property
    def kept(self) -> Mapping[Any, Any]:
        """What is in the state, by key."""
        return self.local.state.get("windows", {})

    @property
    def failed(self) -> list[tuple[int, ...]]:
        """The numbers of the windows whose results failed, and are emitted again."""
        return sorted(numbers for _, numbers, *_ in self.local.failed_results.get("windows", []))


def executed(result: LocalResult) -> dict[str, list[Executed]]:
    """Give the windows that a micro-batch executed, by key, in order."""
    found: dict[str, list[Executed]] = {}
    for key, numbers, start, end in result.emitted.get("windows", {}).get("default", []):
        found.setdefault(key, []).append((numbers, start, end))
    return found


def numbers_of(result: LocalResult) -> dict[str, list[tuple[int, ...]]]:
    """Give only the numbers of these windows."""
    return {key: [numbers for numbers, _, _ in windows] for key, windows in executed(result).items()}


def failed_numbers(result: LocalResult) -> list[int]:
    """Give the numbers of the items whose records failed."""
    return [number for values, _ in result.failed for _, number, _ in values[0]]
