"""A bolt that handles the tuples of a key window by window, with windows by count or by time.

Windows outlive micro-batches, so their contents are kept as keyed state (see ``StatefulBolt``): a tuple is
acked once its values are in its window, and both are stored in one transaction. After a restart half-full
windows continue; a record that failed is in none.

**What fails with a window.** If ``execute_window`` raises, the tuple that completed the window fails, and is
not in it; the next tuple of the key completes it. On a tick the window stays open, and a later tick executes
it again. Tuples that ``execute_window`` emits are kept in the state until they are done everywhere, because
the tuples of the window were acked before: see ``storm.running.results``.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final, cast

from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.model.handler import Reject
from kinesis_spout.model.unfinished_work import refuse_unfinished
from kinesis_spout.storm.components.bolt import Bolt, StatefulBolt
from kinesis_spout.storm.components.given import (
    KeyValueState,
    OutputCollector,
    ResultCollector,
    TaskContext,
    TimedState,
)
from kinesis_spout.storm.components.open_windows import (
    MICROSECONDS,
    Count,
    CountWindows,
    OpenWindows,
    Seconds,
    TimeWindows,
    Window,
)
from kinesis_spout.storm.components.tuples import Tuple
from kinesis_spout.storm.multilang.protocol import DEFAULT_STREAM

_TICKS_IN_A_SLIDE: Final = 0.1
_SHORTEST_TICK: Final = 1.0
_LONGEST_TICK: Final = 10.0
"""Seconds. While a stream is idle, each tick is a small job, which takes some 0.1 s of CPU."""


class WindowedBolt(StatefulBolt):
    """Handles windows of tuples: write ``execute_window`` and emit with ``emit``. Its tuples are acked for you.

    Each key has its own windows; a key is the values of the fields that it is subscribed by, with
    ``fields_grouping``. Set the attributes below in your class, or in its ``__init__``.
    """

    length: Count | Seconds
    """``Count(100)``: a window has 100 tuples of a key, never fewer. ``Seconds(60)``: it has all tuples of a key
    whose time is in one minute, one or more; it begins at a multiple of the slide since the epoch."""
    slide: Count | Seconds | None = None
    """The distance between the beginnings of two windows; of the same kind as the length, and at most as long.
    None is as long: each tuple is in one window."""
    lateness_seconds: float = 0.0
    """By time: how long after the end of a window its tuples can still come."""
    tick_seconds: float | None = None
    """By time: how often windows are closed while their keys get no tuple, also while nothing comes at all: those
    that ended ``lateness_seconds`` ago or before, of keys that got no tuple meanwhile. None: each tenth of the
    slide, but from 1 to 10 s; where ``time_of`` is overridden, only those of keys that got no tuple for the length
    and the lateness. ``math.inf``: never."""
    _given: Tuple | tuple[()] = ()

    @abstractmethod
    def execute_window(self, key: Any, window: Window) -> None:
        """Handle a window that is complete. Called once for each, unless it raises.

        An error that it raises fails the tuple that completed the window, and the window stays open. Catch
        errors that a retry will not mend: no later tuple of the key gets past a window that can never be
        executed. On a tick it is tried again after 1, 2, 4 ... seconds, up to 5 minutes, without end. Each
        time an error is reported.

        Its emitted tuples are likewise emitted again until they are done, also after a restart.

        Args:
            key: the value of the field that the tuples are grouped by; of several fields, a tuple of theirs.
            window: its tuples.
        """

    def time_of(self, tup: Tuple) -> float:
        """Say when a tuple happened, in seconds since the epoch. Unless overridden that is processing time.

        Processing time is when the micro-batch of the tuple began, by the driver's clock; it never runs backwards.
        """
        del tup
        return self._processing_time()

    def late(self, tup: Tuple) -> None:
        """Handle a tuple all of whose windows were executed before it came. It is acked for you, too.

        That happens only if ``time_of`` is overridden: in processing time no tuple is late.
        Unless overridden its record is given up, and goes to the dead letters.
        """
        raise Reject(
            f"too late: its time is {self.time_of(tup):.6f}, and the windows of that time were executed before"
        )

    def emit(self, values: Sequence[Any], stream: str = DEFAULT_STREAM) -> None:
        """Emit a tuple: in ``late`` anchored to the late one, in ``execute_window`` kept until it is done."""
        self.collector.emit(values, self._given, stream)

    # Called by the topology

    def prepare(self, conf: Mapping[str, Any], context: TaskContext, collector: OutputCollector) -> None:
        super().prepare(conf, context, collector)
        self._results = cast("ResultCollector", collector).results
        self._windows = windows_of(self, context.component)
        self._is_in_processing_time = _is_in_processing_time(self)
        self._processing_time = context.processing_time
        self._read_to = context.read_to
        self._keys = {
            (source, stream): _key_by(fields)
            for (source, stream, target), (_, fields) in context.groupings.items()
            if target == context.component
        }

    def init_state(self, state: KeyValueState) -> None:
        self._state = cast("TimedState", state)

    def execute(self, tup: Tuple) -> None:
        if tup.is_tick:
            self._tick()
            return
        self._given = tup
        try:
            self._take(tup)
        finally:
            self._given = ()
        if not tup.state:
            self.collector.ack(tup)

    def _take(self, tup: Tuple) -> None:
        """Put a tuple into its windows. Nothing is changed if ``execute_window`` or ``late`` raises."""
        windows = self._windows
        key = self._keys[tup.component, tup.stream](tup)
        kept = self._taken_over(self._state.get(key) or OpenWindows())
        time = self._time(tup)
        if self._is_in_processing_time:
            time = windows.not_before(kept, time)
        row = (time, tup.fields, tuple(tup.values))
        if windows.is_late(kept, time):
            refuse_unfinished(self.late(tup))  # type: ignore[func-returns-value]
            return
        due = windows.due(kept, row)
        if due:
            self._given = ()
            self._results.of(lambda: self._execute(key, *due))
        windows.add(kept, row)
        kept.arrived = round(self._processing_time() * MICROSECONDS)
        if kept.rows:
            self._state.put(key, kept)
        else:
            self._state.delete(key)

    def _execute(self, key: Any, *windows: Window) -> None:
        for window in windows:
            refuse_unfinished(self.execute_window(key, window))

    def _taken_over(self, kept: OpenWindows) -> OpenWindows:
        if not kept.are_taken_over:
            self._windows.take_over(kept)
            kept.are_taken_over = True
        return kept

    def _time(self, tup: Tuple) -> int:
        seconds = self.time_of(tup)
        if not isinstance(seconds, (int, float)) or not math.isfinite(seconds):
            raise InvalidConfig(
                f"expected time_of to give seconds since the epoch, a finite number, got {seconds!r}"
            )
        return round(seconds * MICROSECONDS)

    def _tick(self) -> None:
        windows = self._windows
        if not isinstance(windows, TimeWindows):
            return
        # A tuple that happened long ago can still be on the stream.
        seconds = self._processing_time() if self._is_in_processing_time else self._read_to()
        if seconds == -math.inf:
            return
        now = round(seconds * MICROSECONDS)
        for key in self._state.due_keys(now, lambda kept: windows.due_at(self._taken_over(kept))):
            kept = self._taken_over(self._state.get(key))
            if windows.is_over(kept, now):
                self._state.delete(key)
            else:
                self._close(windows, key, kept, now)

    def _close(self, windows: TimeWindows, key: Any, kept: OpenWindows, now: int) -> None:
        """Execute the windows of a key that are due, until one raises: that waits for another tick."""
        for mark, window in windows.due_by(kept, now):
            after = windows.closed(kept, mark)

            def close(window: Window = window, after: OpenWindows = after) -> None:
                self._execute(key, window)
                self._state.put(key, after)

            if not self._results.attempt(close):
                self._state.put(key, windows.tried(kept, now))
                return
            kept = after


def ticks_every(bolt: Bolt) -> float | None:
    """Say how many seconds are between two ticks of a bolt; None if it has none."""
    every = bolt.tick_seconds
    if every is None and isinstance(bolt, WindowedBolt) and isinstance(bolt.length, Seconds):
        slide = bolt.length if bolt.slide is None else bolt.slide
        every = min(max(_TICKS_IN_A_SLIDE * slide.units / MICROSECONDS, _SHORTEST_TICK), _LONGEST_TICK)
    return None if every == math.inf else every


def _is_in_processing_time(bolt: WindowedBolt) -> bool:
    """True if the bolt keeps our ``time_of``: then no tuple is late, whatever the clocks say."""
    return getattr(bolt.time_of, "__func__", None) is WindowedBolt.time_of


def windows_of(bolt: WindowedBolt, component: str) -> CountWindows | TimeWindows:
    """Read how long a bolt's windows are.

    Raises:
        InvalidConfig: names the component, and what does not go together.
    """
    where = f"bolt {component!r}"
    length = getattr(bolt, "length", None)
    slide = length if bolt.slide is None else bolt.slide
    if not isinstance(length, (Count, Seconds)):
        raise InvalidConfig(
            f"{where}: expected the length of its windows, as in length = Seconds(60), got {length!r}"
        )
    if type(slide) is not type(length) or slide.units > length.units:
        raise InvalidConfig(
            f"{where}: expected a slide that is as long as the windows or shorter, {length!r}, so that every "
            f"tuple is in one; got {slide!r}"
        )
    lateness = bolt.lateness_seconds
    if not (isinstance(lateness, (int, float)) and math.isfinite(lateness) and lateness >= 0):
        raise InvalidConfig(f"{where}: expected lateness_seconds of 0 or more, got {lateness!r}")
    if isinstance(length, Seconds):
        late = round(lateness * MICROSECONDS)
        # By default none is late that needs a little longer to the stream than others do.
        waits = bolt.tick_seconds is None and not _is_in_processing_time(bolt)
        return TimeWindows(length.units, slide.units, late, late + length.units if waits else late)
    if lateness or bolt.tick_seconds is not None:
        raise InvalidConfig(
            f"{where}: expected lateness_seconds and tick_seconds with windows by time only, got {length!r}"
        )
    return CountWindows(length.units, slide.units)


def _key_by(fields: Sequence[str]) -> Callable[[Tuple], Any]:
    """Give what finds the key of a tuple, as ``KeyValueState`` has it."""
    if len(fields) > 1:
        return itemgetter(*fields)
    [field] = fields

    def value(tup: Tuple) -> Any:
        found = tup[field]
        return (found,) if isinstance(found, tuple) else found

    return value
