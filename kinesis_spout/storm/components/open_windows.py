"""The windows of one key that were not executed yet: what is in them, and which of them are due. Knows no clock.

**By count.** A window is due with the tuple that fills it up to its length. Then its first tuples leave, as many
as the slide is long.

**By time.** A window is ``[start, start + length)``; its start is a multiple of the slide, counted from the epoch.
A key's *mark* says up to where its windows are closed: those that end there or before. A tuple moves the mark
to its time, less the lateness, but never back. A window is due when the mark comes to its end. A tuple is late
if all windows that it belongs to are closed. A window without tuples is never due.

Only tuples are kept, each once, however many windows it is in.

**Another length or slide** can come with a new deployment, while tuples are kept. By count they fill as many
windows as they can. By time the mark moves back before windows that would have been closed unseen. So every tuple
that is kept is in one of the new windows at least.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from kinesis_spout.model.errors import InvalidConfig, StateUnreadable

MICROSECONDS: Final = 1_000_000
"""In a second. Times are whole microseconds, so that no rounding puts a tuple outside its window."""


@dataclass(frozen=True, slots=True)
class Count:
    """A length or a slide in tuples of one key."""

    tuples: int

    def __post_init__(self) -> None:
        if isinstance(self.tuples, bool) or not isinstance(self.tuples, int) or self.tuples < 1:
            raise InvalidConfig(f"expected Count of 1 tuple or more, got {self.tuples!r}")

    @property
    def units(self) -> int:
        """Tuples."""
        return self.tuples


@dataclass(frozen=True, slots=True)
class Seconds:
    """A length or a slide in time."""

    seconds: float

    def __post_init__(self) -> None:
        is_number = isinstance(self.seconds, (int, float)) and not isinstance(self.seconds, bool)
        if not is_number or not math.isfinite(self.seconds) or self.units < 1:
            raise InvalidConfig(f"expected Seconds of a microsecond or more, got {self.seconds!r}")

    @property
    def units(self) -> int:
        """Microseconds."""
        return round(self.seconds * MICROSECONDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A window of one key, complete."""

    tuples: Sequence[Mapping[str, Any]] = field(repr=False)
    """The values of its tuples by their fields' names, in the order in which the tuples came. They must not be
    changed: the next window can have the same ones."""
    start: float
    """Seconds since the epoch: where a window by time begins; of one by count the time of its first tuple."""
    end: float
    """For a window by time the moment after it; for one by count the time of its last tuple."""


_FORMAT: Final = 1
_NEVER: Final = float("inf")

_LONGEST_REST: Final = 300
_MOST_DOUBLINGS: Final = 9


def rest_seconds(tries: int) -> int:
    """Say how long a window or a result that failed waits after this many tries: 1, 2, 4 ... up to 300."""
    return min(1 << min(tries - 1, _MOST_DOUBLINGS), _LONGEST_REST)


Row = tuple[int, tuple[str, ...], tuple[Any, ...]]
"""A tuple that is kept: its time in microseconds, its fields, its values."""


@dataclass(slots=True)
class OpenWindows:
    """The tuples that are kept of a key. Mutable. Pickled into the state, by the name of ``restored_windows``."""

    rows: list[Row] = field(default_factory=list)
    """The tuples that an open window has, in the order in which they came."""
    mark: float = -_NEVER
    """By time: windows that end here or before are closed."""
    next_end: float = _NEVER
    """By time: where the first open window with a tuple ends."""
    arrived: int = 0
    """By time: when the last tuple came, in processing time."""
    tries: int = 0
    """By time: how often a tick has executed the first window that is due in vain."""
    not_before: int = 0
    """When a tick tries that again."""
    are_taken_over: bool = field(default=False, compare=False)
    """True if they fit the current length and slide. Not stored: a deployment can have changed these."""

    def __reduce__(self) -> tuple[Any, ...]:
        return restored_windows, (
            _FORMAT,
            *(self.rows, self.mark, self.next_end, self.arrived),
            *((self.tries, self.not_before) if self.tries else ()),
        )


def restored_windows(form: int, *values: Any) -> OpenWindows:
    """Read what was stored.

    Raises:
        StateUnreadable: a newer version of this code has stored it.
    """
    if form != _FORMAT:
        raise StateUnreadable(
            f"expected windows of format {_FORMAT} in the state, got format {form!r}: a newer kinesis-spout has "
            "stored them; upgrade this one"
        )
    return OpenWindows(*values)


@dataclass(frozen=True, slots=True)
class CountWindows:
    """Windows of a number of tuples."""

    length: int
    slide: int

    def take_over(self, kept: OpenWindows) -> None:
        del kept  # The next tuple completes what is full.

    def not_before(self, kept: OpenWindows, time: int) -> int:
        del kept
        return time

    def is_late(self, kept: OpenWindows, time: int) -> bool:
        del kept, time
        return False

    def due(self, kept: OpenWindows, row: Row) -> list[Window]:
        """The window that a tuple completes; several, if longer ones have kept more tuples."""
        if len(kept.rows) + 1 < self.length:
            return []
        rows = [*kept.rows, row]
        starts = range(0, len(rows) - self.length + 1, self.slide)
        full = [rows[start : start + self.length] for start in starts]
        return [_window(each, each[0][0], each[-1][0]) for each in full]

    def add(self, kept: OpenWindows, row: Row) -> None:
        kept.rows.append(row)
        executed = (len(kept.rows) - self.length) // self.slide + 1
        if executed > 0:
            del kept.rows[: executed * self.slide]


@dataclass(frozen=True, slots=True)
class TimeWindows:
    """Windows of a number of microseconds."""

    length: int
    slide: int
    lateness: int
    idle: int
    """For how long a key must have got nothing, so that a tick closes its windows."""

    def take_over(self, kept: OpenWindows) -> None:
        """Take over what windows of another length or slide have kept, so that none of it is lost."""
        if kept.rows:
            first = min(time for time, _, _ in kept.rows)
            kept.mark = min(kept.mark, self._last_end(first) - 1)
            kept.next_end = self._first_end(kept, first)

    def not_before(self, kept: OpenWindows, time: int) -> int:
        """Give the time of a tuple in processing time: not less than its key has seen, so that it is not late."""
        return max(time, int(kept.mark) + self.lateness) if kept.mark > -_NEVER else time

    def is_late(self, kept: OpenWindows, time: int) -> bool:
        """Tell whether all windows are closed that a tuple of this time belongs to."""
        return self._last_end(time) <= kept.mark

    def due(self, kept: OpenWindows, row: Row) -> list[Window]:
        """The windows that a tuple closes, the first one first. It is in none of them."""
        return [window for _, window in self._due(kept, row[0] - self.lateness)]

    def add(self, kept: OpenWindows, row: Row) -> None:
        """Keep a tuple, once the windows that it closes are executed."""
        self.close(kept, row[0] - self.lateness)
        kept.rows.append(row)
        kept.next_end = min(kept.next_end, self._first_end(kept, row[0]))

    def due_by(self, kept: OpenWindows, now: int) -> list[tuple[int, Window]]:
        """The windows that a tick closes, each with the mark that closes it.

        They ended at least the lateness ago, and their key got nothing for at least the idle time.
        """
        return self._due(kept, now - self.lateness) if kept.arrived <= now - self.idle else []

    def due_at(self, kept: OpenWindows) -> float:
        """Say when ``due_by`` gives windows next, if no tuple comes, or ``is_over`` is true."""
        if not kept.rows:
            return kept.arrived + self.lateness + self.length
        return max(kept.arrived + self.idle, kept.next_end + self.lateness, kept.not_before)

    def tried(self, kept: OpenWindows, now: int) -> OpenWindows:
        """Give what is kept after a tick has executed a window in vain."""
        tries = kept.tries + 1
        return replace(kept, tries=tries, not_before=now + rest_seconds(tries) * MICROSECONDS)

    def closed(self, kept: OpenWindows, mark: int) -> OpenWindows:
        """Give what is kept after a tick has executed a window."""
        after = replace(kept)
        self.close(after, mark)
        return after

    def is_over(self, kept: OpenWindows, now: int) -> bool:
        """True if only a mark is kept, for so long that it can be forgotten."""
        return not kept.rows and kept.arrived <= now - self.lateness - self.length

    def close(self, kept: OpenWindows, mark: float) -> None:
        """Move the mark on, and forget the tuples of windows that are closed."""
        if mark <= kept.mark:
            return
        kept.mark = mark
        if mark >= kept.next_end:
            kept.rows = [row for row in kept.rows if not self.is_late(kept, row[0])]
            kept.tries = kept.not_before = 0
            kept.next_end = min((self._first_end(kept, row[0]) for row in kept.rows), default=_NEVER)

    def _due(self, kept: OpenWindows, mark: int) -> list[tuple[int, Window]]:
        if mark < kept.next_end:
            return []
        found: dict[int, list[Row]] = defaultdict(list)
        last_closed = (mark - self.length) // self.slide
        for row in kept.rows:
            for number in range(self._first(kept, row[0]), min(row[0] // self.slide, last_closed) + 1):
                found[number].append(row)
        starts = ((number * self.slide, rows) for number, rows in sorted(found.items()))
        return [(start + self.length, _window(rows, start, start + self.length)) for start, rows in starts]

    def _last_end(self, time: int) -> int:
        return time // self.slide * self.slide + self.length

    def _first_end(self, kept: OpenWindows, time: int) -> int:
        return self._first(kept, time) * self.slide + self.length

    def _first(self, kept: OpenWindows, time: int) -> int:
        """Number the first open window that a time belongs to; all are numbered from the epoch."""
        return int(max(time, kept.mark) - self.length) // self.slide + 1


def _window(rows: Sequence[Row], start: int, end: int) -> Window:
    return Window(
        tuples=[dict(zip(fields, values, strict=True)) for _, fields, values in rows],
        start=start / MICROSECONDS,
        end=end / MICROSECONDS,
    )
