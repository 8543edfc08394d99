"""Windowed bolts against windows that are worked out from all that was ever accepted.

Records have several items of several keys; windows raise, or their results fail in the bolt after, fused or behind
an exchange, until that is mended; records that failed come again or do not; workers are replaced between
micro-batches. With "exactly_once" a record that fails leaves no trace, with "at_least_once" its other items stay.
The oracle forgets nothing and keeps nothing ready: it goes through the history of a key from its beginning, each
time.
"""

import math
from collections import defaultdict
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from kinesis_spout.storm import Count, Seconds
from tests.support.storm.windowed_topology import (
    FAILS,
    RAISES,
    ByEventTime,
    Executed,
    Item,
    Numbers,
    Started,
    executed,
)

pytestmark = pytest.mark.no_second_run

KEYS = "abc"
Record = list[Item]


@dataclass
class History:
    """What one key has accepted."""

    numbers: list[int] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    closed: float = float("-inf")
    """By time: the end of the last window that no tuple can come to any more."""
    arrived: float = 0.0
    tries: int = 0
    """Of the first window that is due, by ticks, which all failed."""
    not_before: float = float("-inf")


@dataclass
class Oracle:
    """All histories."""

    length: Count | Seconds
    slide: float
    lateness: float
    idle: float = 0
    """For how long a key must have got nothing, so that a tick closes its windows."""
    histories: dict[str, History] = field(default_factory=lambda: defaultdict(History))
    executed: dict[str, list[Executed]] = field(default_factory=lambda: defaultdict(list))
    """In this micro-batch."""
    waiting: list[tuple[tuple[int, ...], int, float]] = field(default_factory=list)
    """Of results that failed: the numbers, how often, and when they are emitted again."""

    def take(self, key: str, number: int, time: float, now: float) -> bool:
        """Take an item; tells whether its record fails. Nothing is changed if its own bolt fails it."""
        history = self.histories[key]
        if isinstance(self.length, Count):
            return self.take_by_count(key, number, time)
        if time // self.slide * self.slide + self.length.seconds <= history.closed:
            return True
        until = max(history.closed, time - self.lateness)
        due = self.windows(history, until)
        if any(RAISES.intersection(numbers) for numbers, _, _ in due):
            return True
        history.numbers.append(number)
        history.times.append(time)
        history.closed, history.arrived = until, now
        if due:
            history.tries, history.not_before = 0, float("-inf")
        self.executed[key] += due
        return False

    def take_by_count(self, key: str, number: int, time: float) -> bool:
        history = self.histories[key]
        assert isinstance(self.length, Count)
        numbers, times = [*history.numbers, number], [*history.times, time]
        beyond = len(numbers) - self.length.tuples
        completes = beyond >= 0 and beyond % self.slide == 0
        window = tuple(numbers[-self.length.tuples :])
        if completes and RAISES.intersection(window):
            return True
        history.numbers, history.times = numbers, times
        if completes:
            self.executed[key].append((window, times[-self.length.tuples], time))
        return False

    def windows(self, history: History, until: float) -> list[Executed]:
        """Give the windows that end after those that are closed, up to a time."""
        assert isinstance(self.length, Seconds)
        if not history.times:
            return []
        length = self.length.seconds
        start = (min(history.times) - length) // self.slide * self.slide
        found = []
        while start + length <= until and start <= max(history.times):
            numbers = tuple(
                number
                for number, time in zip(history.numbers, history.times, strict=True)
                if start <= time < start + length
            )
            if numbers and start + length > history.closed:
                found.append((numbers, float(start), float(start + length)))
            start += self.slide
        return found

    def tick(self, now: float) -> None:
        assert isinstance(self.length, Seconds)
        for key, history in list(self.histories.items()):
            ends = [time // self.slide * self.slide + self.length.seconds for time in history.times]
            if all(end <= history.closed for end in ends):
                if history.arrived <= now - self.lateness - self.length.seconds:
                    del self.histories[key]
                continue
            if history.arrived > now - self.idle or history.not_before > now:
                continue
            for window in self.windows(history, now - self.lateness):
                if RAISES.intersection(window[0]):
                    history.tries += 1
                    history.not_before = now + rest(history.tries)
                    break
                self.executed[key].append(window)
                history.closed, history.tries, history.not_before = window[2], 0, now

    def emit_results(self, now: float) -> None:
        """Emit those of this micro-batch, and those that are due again."""
        tried = [(numbers, 0) for windows in self.executed.values() for numbers, _, _ in windows]
        tried += [(numbers, tries) for numbers, tries, due_at in self.waiting if due_at <= now]
        self.waiting = [each for each in self.waiting if each[2] > now] + [
            (numbers, tries + 1, now + rest(tries + 1))
            for numbers, tries in tried
            if FAILS.intersection(numbers)
        ]


def rest(tries: int) -> int:
    return min(1 << (tries - 1), 300)


class WindowedBolts(RuleBasedStateMachine):
    @initialize(
        by_time=st.booleans(),
        length=st.integers(1, 6),
        slide=st.integers(1, 6),
        lateness=st.integers(0, 4),
        event_time=st.booleans(),
        ticks=st.sampled_from([None, 0, math.inf]),
        is_far=st.booleans(),
        is_exact=st.booleans(),
    )
    def starts(  # noqa: PLR0917 - one argument for each choice
        self,
        by_time: bool,  # noqa: FBT001
        length: int,
        slide: int,
        lateness: int,
        event_time: bool,  # noqa: FBT001
        ticks: float | None,
        is_far: bool,  # noqa: FBT001
        is_exact: bool,  # noqa: FBT001
    ) -> None:
        slide = min(slide, length)
        self.event_time = event_time
        self.every = {None: 1.0, 0: 0.0, math.inf: math.inf}[ticks] if by_time else math.inf
        """Seconds between two ticks; by default one, as the slides are short."""
        self.ticked_at = 0.0
        make = ByEventTime if event_time else Numbers
        if by_time:
            bolt = make(Seconds(length), Seconds(slide), lateness_seconds=lateness, tick_seconds=ticks)
            idle = lateness + length if event_time and ticks is None else lateness
            self.oracle = Oracle(Seconds(length), slide, lateness, idle)
        else:
            bolt = make(Count(length), Count(slide))
            self.oracle = Oracle(Count(length), slide, 0)
        self.is_exact = is_exact
        guarantee = "exactly_once" if is_exact else "at_least_once"
        self.topology = Started(bolt, is_far=is_far, state_guarantee=guarantee)
        self.next_number = 0
        self.waiting: list[Record] = []
        """Records that failed."""

    def items(self, drawn: list[tuple[str, int]]) -> Record:
        items = []
        for key, time in drawn:
            items.append((key, self.next_number, Started.EPOCH + time))
            self.next_number += 1
        return items

    @rule(
        drawn=st.lists(
            st.lists(st.tuples(st.sampled_from(KEYS), st.integers(-3, 30)), min_size=1, max_size=3),
            max_size=6,
        ),
        retried=st.integers(0, 3),
    )
    def a_micro_batch_runs(self, drawn: list[list[tuple[str, int]]], retried: int) -> None:
        batch = [*self.waiting[:retried], *map(self.items, drawn)]
        elapsed = self.topology.clock.monotonic()
        self.is_tick_due = elapsed - self.ticked_at >= self.every
        if self.is_tick_due:
            self.ticked_at = elapsed
        del self.waiting[:retried]
        failed = self.foreseen(batch)
        result = self.topology.local.run([(record,) for record in batch])
        assert [values[0] for values, _ in result.failed] == [batch[at] for at in failed]
        assert are_among(executed(result), self.oracle.executed)
        assert self.topology.failed == sorted(numbers for numbers, _, _ in self.oracle.waiting)
        self.waiting += [batch[at] for at in failed]

    def foreseen(self, batch: list[Record]) -> list[int]:
        """Take in a micro-batch, record by record; gives those that fail."""
        failed = []
        self.oracle.executed.clear()
        for at, record in enumerate(batch):
            before = deepcopy(self.oracle)
            if [key for key, number, time in record if self.takes(self.oracle, key, number, time)]:
                self.oracle = before if self.is_exact else self.oracle
                failed.append(at)
        if self.is_tick_due:
            self.oracle.tick(self.topology.clock.time())
        self.oracle.emit_results(self.topology.clock.time())
        return failed

    def takes(self, oracle: Oracle, key: str, number: int, time: float) -> bool:
        now = self.topology.clock.time()
        return oracle.take(key, number, time if self.event_time else now, now)

    @rule(seconds=st.integers(1, 9))
    def time_passes(self, seconds: int) -> None:
        self.topology.clock.advance(seconds)

    @rule()
    def workers_are_replaced(self) -> None:
        self.topology.restart()
        self.ticked_at = self.topology.clock.monotonic()

    @precondition(lambda self: self.next_number)
    @rule(data=st.data(), raises=st.booleans())
    def a_number_makes_windows_fail(self, data: st.DataObject, raises: bool) -> None:  # noqa: FBT001
        number = data.draw(st.integers(0, self.next_number + 3))
        (RAISES if raises else FAILS).add(number)

    @rule()
    def what_fails_is_mended(self) -> None:
        RAISES.clear()
        FAILS.clear()


def are_among(executed: Mapping[str, list[Executed]], standing: Mapping[str, list[Executed]]) -> bool:
    """Tell whether all windows that stand were executed, in their order; others may have been, in vain."""
    return all(
        all(window in left for window in windows)
        for key, windows in standing.items()
        for left in [iter(executed.get(key, []))]
    )


TestWindowedBolts = WindowedBolts.TestCase
TestWindowedBolts.settings = settings(max_examples=200, stateful_step_count=25, deadline=None)
