"""Injects faults into a world, alone and combined, until there were enough; then waits until all is finished.

Faults come in lanes that run side by side, each with draws of its own from the seed: what is done next in a lane
does not depend on what the other lanes do. For a part of the time one fault at a time is injected, into a world
that has recovered from the one before; for the rest all lanes run.
"""

import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

from tests.fault.suite.consumers.supervised import SupervisedConsumer
from tests.fault.suite.faults import (
    CONSUMER_FAULTS,
    DISK_FULL,
    ENDS,
    FAN_OUT_FAULTS,
    KINESIS_FAULTS,
    SINK_FAULTS,
    SPARK_FAULTS,
    STREAM_FAULTS,
    ZOOKEEPER_FAULTS,
    ConsumerFault,
    End,
    Fault,
    WorldFault,
    drawn,
)
from tests.fault.suite.judgement.evidence import Event
from tests.fault.suite.world import World

_TICK_SECONDS: Final = 0.05
_SAMPLE_SECONDS: Final = 2.0
_CALM_SECONDS: Final = 1.0
"""How long the world is whole before a fault is injected alone."""
_START_SECONDS: Final = 300.0
"""Of all, of which those on Spark start a JVM each."""
_FRESH_SHARE: Final = 0.6
_AGAIN_SECONDS: Final = 1.0
"""After so long a kind that is missing, and could not be done, is tried again."""
_EXTRA_SECONDS: Final = 120.0
"""For so long it waits for kinds of faults that have not happened yet."""


@dataclass(slots=True, kw_only=True)
class Lane:
    """One row of faults, one after the other. Mutable."""

    name: str
    faults: Sequence[Fault]
    gap_seconds: tuple[float, float]
    random: Random
    only_alone: bool = False
    """Whether it has no part in what comes together."""
    happened: set[str] = field(default_factory=set)
    due: float = 0.0
    under_way: tuple[Event, End, float] | None = None
    """With the monotonic time at which it ends."""

    def draw(self, missing: Collection[str]) -> Fault:
        """Draw what is done next: rather what is missing, or has not happened in this lane, than anything."""
        fresh = [fault for fault in self.faults if fault.kind in missing] or [
            fault for fault in self.faults if fault.kind not in self.happened
        ]
        prefers_fresh = self.random.random() < _FRESH_SHARE
        return drawn(fresh if fresh and prefers_fresh else self.faults, self.random)


@dataclass(slots=True, kw_only=True)
class Outcome:
    events: list[Event] = field(default_factory=list)
    by_kind: Counter[str] = field(default_factory=Counter)
    """With 0 for each kind that might have happened, and did not."""
    fault_seconds: float = 0.0
    settle_seconds: float | None = None
    """From the last fault until everything was finished; None: it was not, and then"""
    unfinished: list[str] = field(default_factory=list)
    """who owned what was not."""
    cut_short: list[str] = field(default_factory=list)
    """What kept the run from going on: no consumers, or no records."""


class Director:
    """Mutable. ``run`` once.

    Args:
        show: is told, a few times a second, how many events there were and what goes on.
    """

    def __init__(self, world: World, show: Callable[["Director"], None]) -> None:
        self.world = world
        self.outcome = Outcome()
        self.phase = "starting"
        self._show = show
        plan = world.plan
        self._lanes = [
            self._lane(f"consumer {number}", CONSUMER_FAULTS, (2.0, 7.0))
            for number in range(1, plan.consumers + plan.on_spark + 1)
        ]
        if plan.reads_by_fan_out:
            self._lanes.append(self._lane("fan-out", FAN_OUT_FAULTS, (1.0, 3.0)))
        if plan.on_spark:
            self._lanes.append(self._lane("Spark", SPARK_FAULTS, (3.0, 9.0)))
        self._lanes += [
            self._lane("ZooKeeper", self._zookeeper_faults(), (8.0, 20.0)),
            self._lane("Kinesis", KINESIS_FAULTS, (0.2, 1.0)),
            self._lane("sink", SINK_FAULTS, (1.0, 5.0)),
            # So that enough of these are met by nothing else: what fail-over takes is said of them.
            self._lane("ends", ENDS, (2.0, 6.0), only_alone=True),
            self._lane("stream", STREAM_FAULTS, (3.0, 9.0)),
        ]
        self.outcome.by_kind.update({fault.kind: 0 for lane in self._lanes for fault in lane.faults})
        self._whole_since: float | None = None
        self._sample_at = 0.0
        self._begun = 0.0
        self._enough_at = 0.0
        """Until when there were not enough faults, in seconds of ``elapsed``."""

    def run(self) -> Outcome:
        world = self.world
        for consumer in world.consumers:
            consumer.start()
        if self._await(lambda: world.is_complete, _START_SECONDS):
            self._have_faults()
            self._settle()
        else:
            self.outcome.cut_short = [
                f"not every consumer was a member {_START_SECONDS:g} s after the start",
                *world.absent(),
            ]
        self.phase = "stopping"
        for consumer in world.consumers:
            self._tick()
            consumer.end()
        return self.outcome

    def _have_faults(self) -> None:
        world = self.world
        with world.prober, world.producer:
            self._begun = time.monotonic()
            for lane in self._lanes:
                lane.due = self._begun + lane.random.uniform(*lane.gap_seconds)
            while self._goes_on():
                self._inject()
                self._tick()
            self._end_all()
            self.outcome.fault_seconds = self.elapsed
        if world.producer.error:
            self.outcome.cut_short = [f"nothing more could be put: {world.producer.error!r}"]

    def _goes_on(self) -> bool:
        plan, producer = self.world.plan, self.world.producer
        if producer.error or self._has_done_enough():
            return False
        return self.elapsed < plan.seconds or len(producer.ledger) < plan.least_records

    def _settle(self) -> None:
        world, plan = self.world, self.world.plan
        self.phase = "settling"
        ended = time.monotonic()
        if self._await(lambda: world.is_settled, plan.settle_seconds):
            self.outcome.settle_seconds = time.monotonic() - ended
        else:
            self.outcome.unfinished = world.unfinished_shards()
            for consumer in world.consumers:
                consumer.ask_for_stacks()

    @property
    def events(self) -> int:
        return self.outcome.by_kind.total()

    @property
    def elapsed(self) -> float:
        """Seconds since the first fault might have come."""
        return time.monotonic() - self._begun if self._begun else 0.0

    def _lane(
        self, name: str, faults: Sequence[Fault], gap: tuple[float, float], *, only_alone: bool = False
    ) -> Lane:
        plan = self.world.plan
        shortest, longest = gap
        return Lane(
            name=name,
            faults=faults,
            gap_seconds=(plan.pace * shortest, plan.pace * longest),
            random=Random(f"{plan.seed}/{name}"),
            only_alone=only_alone,
        )

    def _has_done_enough(self) -> bool:
        if self.events < self.world.plan.events:
            self._enough_at = self.elapsed
            return False
        return not self._missing() or self.elapsed > self._enough_at + _EXTRA_SECONDS

    def _missing(self) -> set[str]:
        """Name the kinds that are left to be done, alone, once there were enough faults."""
        plan = self.world.plan
        if not plan.every_kind or self.events < plan.events:
            return set()
        return {kind for kind, count in self.outcome.by_kind.items() if not count}

    def _zookeeper_faults(self) -> list[WorldFault]:
        has_disk = self.world.disk is not None
        return [fault for fault in ZOOKEEPER_FAULTS if has_disk or fault.kind != DISK_FULL]

    def _inject(self) -> None:
        now = time.monotonic()
        for lane in self._lanes:
            if lane.under_way is not None and now >= lane.under_way[2]:
                self._end(lane)
        plan = self.world.plan
        missing = self._missing()
        alone = self.elapsed % (plan.alone_seconds + plan.combined_seconds) < plan.alone_seconds
        self.phase = "one fault at a time" if alone else "faults combined"
        lanes = self._lanes
        if missing:
            alone, self.phase = True, f"left: {', '.join(sorted(missing))}"
            lanes = [lane for lane in lanes if any(fault.kind in missing for fault in lane.faults)]
        for lane in sorted(lanes, key=lambda lane: lane.due):
            is_due = lane.under_way is None and now >= lane.due
            may_begin = self._is_calm(now) if alone else not lane.only_alone
            if not (is_due and may_begin):
                continue
            if self._begin(lane, now, missing, alone=alone):
                self._whole_since = None
            elif missing:
                lane.due = now + _AGAIN_SECONDS

    def _is_calm(self, now: float) -> bool:
        if any(lane.under_way for lane in self._lanes) or not self.world.is_whole:
            self._whole_since = None
            return False
        self._whole_since = self._whole_since or now
        return now - self._whole_since >= _CALM_SECONDS

    def _begin(self, lane: Lane, now: float, missing: Collection[str], *, alone: bool) -> bool:
        fault = lane.draw(missing)
        who, how_long = lane.random.random(), lane.random.random()
        lane.due = now + lane.random.uniform(*lane.gap_seconds)
        random = Random(lane.random.random())  # what it draws itself moves nothing in the lane
        event = Event(kind=fault.kind, target=lane.name, begin=time.time(), alone=alone)
        if isinstance(fault, WorldFault):
            end = fault.begin(self.world, random)
            shortest, longest = fault.seconds
        else:
            consumer = self._chosen(who, fault)
            if consumer is None:
                return False
            pid = consumer.pid
            event.target = consumer.name
            event.life = consumer.life
            event.shards = tuple(self.world.history.owned_by(pid) if pid else ())
            end = fault.begin(consumer, random)
            shortest, longest = (each * self.world.plan.session_seconds for each in fault.sessions)
        if end is None:
            return False
        lane.under_way = event, end, now + shortest + how_long * (longest - shortest)
        return True

    def _chosen(self, who: float, fault: ConsumerFault) -> SupervisedConsumer | None:
        """Choose a consumer that runs and that no fault is under way for."""
        busy = {lane.under_way[0].target for lane in self._lanes if lane.under_way}
        free = [each for each in self.world.consumers if each.pid and each.name not in busy]
        # One on Spark is let start first: that takes so long that it would never come to anything.
        free = [each for each in free if each.is_open or not each.on_spark]
        if fault.on_spark:
            free = [each for each in free if each.on_spark]
        if fault.of_the_leader:
            leader = self.world.history.leader_pid()
            free = [each for each in free if each.pid == leader]
        return free[int(who * len(free))] if free else None

    def _end(self, lane: Lane) -> None:
        assert lane.under_way is not None
        event, end, _ = lane.under_way
        lane.under_way = None
        if end():
            event.end = time.time()
            self.outcome.events.append(event)
            self.outcome.by_kind[event.kind] += 1
            lane.happened.add(event.kind)

    def _end_all(self) -> None:
        for lane in self._lanes:
            if lane.under_way is not None:
                self._end(lane)
        for consumer in self.world.consumers:
            consumer.set_clock(0.0)

    def _await(self, condition: Callable[[], bool], seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                return False
            self._tick()
        return True

    def _tick(self) -> None:
        now = time.monotonic()
        self.world.look()
        if now >= self._sample_at:
            self._sample_at = now + _SAMPLE_SECONDS
            self.world.sample()
        self._show(self)
        time.sleep(_TICK_SECONDS)
