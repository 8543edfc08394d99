"""One consumer at one moment: what ``consumer_watch`` gives to probes and monitors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from kinesis_spout.consumer.counters import Counters, GivenUpKind
from kinesis_spout.model.distribution import Counted
from shard_state import SequenceNumber, ShardPhase, ShardStatus

OWNED: Final = frozenset({ShardPhase.READING, ShardPhase.AT_END, ShardPhase.AT_BOUND})


class ShardLook(NamedTuple):
    """One shard at one moment. A tuple, as a thousand are made each second."""

    status: ShardStatus
    lag_millis: int | None
    """As its last page said; None while it was not read."""
    has_records: bool
    """Records of it were read that are not handed out, or not finished."""
    reading_seconds: float
    """For how long the read of it that is under way lasts; 0 if none is."""
    still_seconds: float
    """For how long it has had work, and nothing of it was delivered, finished or stored."""
    allowed_seconds: float
    """For how long it may be still."""
    unfinished_seconds: float
    """For how long its checkpoint has not moved although records behind it are unfinished; 0 if none is."""
    read_error: str | None
    """The error of reading it that is being retried."""

    @property
    def is_owned(self) -> bool:
        return self.status.phase in OWNED

    @property
    def is_stalled(self) -> bool:
        return self.still_seconds >= self.allowed_seconds

    @property
    def reason(self) -> str:
        """Its work in words, if it has not moved."""
        status, behind = self.status, self.lag_millis or 0
        parts = [
            f"{status.in_flight:,} in flight" * bool(status.in_flight),
            "a slice of it is under way" * status.slices_out,
            f"{status.waiting:,} retries waiting" * bool(status.waiting),
            f"{status.exhausted:,} dead letters not stored" * bool(status.exhausted),
            "records read and not handed out" * (self.has_records and not status.slices_out),
            f"{behind / 1000:.1f} s behind the tip" * bool(behind),
            f"a read has lasted {self.reading_seconds:.0f} s" * (self.reading_seconds >= 1),
            self.read_error or "",
        ]
        return f"has not moved for {self.still_seconds:.0f} s: " + ", ".join(filter(None, parts))


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """Tells whether one consumer can go on by itself."""

    app: str
    stream: str
    fatal: str | None
    """The error that has ended it."""
    unturned_seconds: float
    """For how long its loop has not turned; 0 where it has none, or has ended."""


class Retrying(NamedTuple):
    """A failed record that waits for its next delivery."""

    shard_id: str
    sequence: SequenceNumber
    attempts: int
    """Deliveries so far."""
    due_in_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerLook:
    """One consumer at one moment. Times are monotonic unless they say otherwise."""

    now: float
    time: float
    """Seconds since the epoch, at ``now``."""
    app: str
    stream: str
    member: str
    door: str
    is_standby: bool
    counters: Counters
    failures: Mapping[str, int]
    given_up: Mapping[GivenUpKind, int]
    attempts: Counted
    ages: Counted
    handling: Counted
    commits: Counted
    committed_at: float | None
    progressed_at: float | None
    """When a record was finished last, to a second; None: none was yet."""
    uncommitted: int
    unstored_seconds: float
    """For how long finished records have not been stored; 0 if all are."""
    is_over: bool
    """The run has come up to its end, every shard is over, or it was closed."""
    shards: Sequence[ShardLook]
    buffered_bytes: int
    pause: str | None
    """A description of a handler that is at fault; None while it is not."""
    paused_by_operator: str | None
    retried_error: str | None
    fatal: str | None
    is_certain: bool
    """ZooKeeper has answered lately, so nobody else owns the shards."""
    is_placed: bool
    """The newest assignment has this member."""
    leads: bool
    assigned: Mapping[str, int]
    """The number of shards of each living member, by the newest assignment."""
    assignment_epoch: int
    delivered_per_second: float
    acked_per_second: float
    commit_interval_seconds: float
    hung_seconds: float
    """For how long a call of the housekeeper has kept everything else of it waiting (assignments, commits); 0 if
    that is less than ``stalled_after_seconds``."""
    late_seconds: float = 0.0
    """For how long it could not be looked at again, as another thread has kept its lock."""

    @property
    def owned(self) -> list[ShardLook]:
        return [shard for shard in self.shards if shard.is_owned]

    @property
    def stalled(self) -> list[ShardLook]:
        """Shards that stand still; none while the whole application is paused."""
        if self.pause is not None:
            return []
        return [shard for shard in self.shards if shard.is_stalled]

    @property
    def lag_millis(self) -> int | None:
        """The lag of the shard that is furthest behind; None before the first page of any."""
        return max((shard.lag_millis for shard in self.owned if shard.lag_millis is not None), default=None)
