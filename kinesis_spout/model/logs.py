"""The log lines of all doors: their words, each kind of failure once, and a limit of lines a minute.

Nothing here sees a record.
"""

import logging
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from kinesis_spout.model.clock import moment
from kinesis_spout.model.handler import RaisedAt
from shard_state import Position, Shard, StartPositions

SUMMARY_SECONDS: Final = 60.0
"""The least time between two summaries of what happens all the time."""

_MOST_NAMED: Final = 8

MAX_KINDS: Final = 100
"""The number of kinds that are distinguished; further ones are counted together."""

OTHERS: Final = "others"
NO_EXCEPTION: Final = "no exception"
"""The kind of failures by a text, a verdict, a time-out or the death of a worker."""

_log = logging.getLogger(__name__)


def counted(count: int, noun: str) -> str:
    """Write a count: "1 record", "2,000 records"."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def shards(count: int) -> str:
    """Write a number of shards."""
    return f"{count} shard{'' if count == 1 else 's'}"


def named(shard_ids: Collection[str]) -> str:
    """Name shards; of many only the first, and how many more there are."""
    ordered = sorted(shard_ids)
    more = f" and {len(ordered) - _MOST_NAMED} more" if len(ordered) > _MOST_NAMED else ""
    return ", ".join(ordered[:_MOST_NAMED]) + more


def of_stream(shard_ids: Collection[str], stream: str) -> str:
    """Write how many shards of a stream, and which."""
    return f"{shards(len(shard_ids))} of {stream}: {named(shard_ids)}"


def readable(position: Position) -> str:
    """Write a position, a time in readable form."""
    if position.timestamp is None:
        return str(position)
    return f"{position.type.value}({moment(position.timestamp)})"


def readable_start(start: StartPositions) -> str:
    """Write where reading begins; of many positions per shard only their number."""
    if not start.shards:
        return readable(start.default)
    if len(start.shards) > _MOST_NAMED:
        return f"{readable(start.default)}, {shards(len(start.shards))} from positions of their own"
    named = (f"{shard_id} from {readable(position)}" for shard_id, position in start.shards.items())
    return f"{readable(start.default)}, {', '.join(named)}"


def package_version() -> str:
    """Return the version; "unknown" if the package was not installed, as from a zip on an executor."""
    try:
        return version("kinesis-spout")
    except PackageNotFoundError:
        return "unknown"


class Reshards:
    """Finds the splits and merges between one list of shards and the next. Mutable."""

    def __init__(self) -> None:
        self._known: set[str] | None = None

    def listed(self, listed: Iterable[Shard], stream: str) -> list[str]:
        """Take a list; returns a line for each split and merge in it, except for those of the first list."""
        every = list(listed)
        known, self._known = self._known, {shard.shard_id for shard in every} | (self._known or set())
        if known is None:
            return []
        children: defaultdict[tuple[str, ...], list[str]] = defaultdict(list)
        for shard in every:
            if shard.shard_id not in known and shard.parents:
                children[tuple(sorted(shard.parents))].append(shard.shard_id)
        return [
            f"{'split' if len(parents) == 1 else 'merge'} of {stream}: {', '.join(parents)} -> {named(born)}"
            for parents, born in children.items()
        ]


class LogPace:
    """Says when the next summary may be logged. Mutable; monotonic times."""

    def __init__(self) -> None:
        self._due_at: float | None = None

    def may_tell(self, now: float) -> bool:
        """Return whether a minute has passed since the last True, or since the first call."""
        if self._due_at is None:
            self._due_at = now + SUMMARY_SECONDS
        if now < self._due_at:
            return False
        self._due_at = now + SUMMARY_SECONDS
        return True


class Allowance:
    """A number a minute, counted from the first. Mutable; monotonic times.

    Args:
        most: lines in a minute.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._left = 0
        self._anew_at = 0.0
        self._left_out = 0

    def takes_one(self, now: float) -> bool:
        """Take one more; returns whether it is allowed."""
        if now >= self._anew_at:
            self._left, self._anew_at = self.most, now + SUMMARY_SECONDS
        self._left -= 1
        if self._left >= 0:
            return True
        self._left_out += 1
        return False

    @property
    def is_just_used_up(self) -> bool:
        """True if the last one was the first that was left out."""
        return self._left == -1

    def take_left_out(self) -> int:
        """Return how many were left out since the last call."""
        left_out, self._left_out = self._left_out, 0
        return left_out


@dataclass(frozen=True, slots=True)
class FirstFailure:
    """The argument of the log line for a new kind of failure. Its text leaves out the exception's."""

    raised: RaisedAt
    error_text: str
    """The exception's type and text, which may quote a record: for the terminal of the handler's owner."""

    def __str__(self) -> str:
        return f"{self.raised.kind}; later failures of this kind are only counted\n{self.raised.traceback}"


class FailureKinds:
    """Counts of failed deliveries, by the exception's type and the line that raised it. Mutable; not thread-safe.

    The log gets the first traceback of each kind. Neither has the texts of exceptions, which may quote a
    record: those are in the dead letters, and on the terminal of ``kinesis-spout run``.
    """

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def add(self, raised: RaisedAt | None, count: int = 1, *, error_text: str = "") -> None:
        """Count failures from one place; None: they were not raised."""
        if raised is None:
            self._counts[NO_EXCEPTION] += count
            return
        kind = raised.kind
        if kind not in self._counts and len(self._counts) >= MAX_KINDS:
            kind = OTHERS
        is_new = kind not in self._counts
        self._counts[kind] += count
        if is_new and kind != OTHERS:
            _log.warning("a handler failed with %s", FirstFailure(raised, error_text))

    @property
    def counts(self) -> dict[str, int]:
        """Return how often each kind came, the most frequent first."""
        return dict(self._counts.most_common())
