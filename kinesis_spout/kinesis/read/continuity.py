"""Notices gaps in the reading of a shard, although Kinesis does not say that it has trimmed what should come next.

For a sequence number that retention has trimmed GetShardIterator gives an iterator without an error, which
reads from the oldest record left, at times after empty pages that are as far behind the tip as the stream
keeps records. So wherever reading begins anew (a restart, an iterator that expired, a page near the end of
retention), the record before the position is asked for too. If it comes, nothing behind it was trimmed. If it
does not, ``since`` counts: nothing behind the position arrived earlier, so nothing is missing while the
stream keeps records that old. If neither proves it, records can be missing: that is a data loss.
"""

from collections.abc import Callable
from typing import Final

from kinesis_spout.kinesis.read.read_settings import MAX_RECORDS
from kinesis_spout.model.errors import DataLoss
from shard_state import Position, SequenceNumber

CLOCK_SKEW_SECONDS: Final = 300.0
"""The most that a clock can be ahead of the service: AWS refuses signatures made later than that."""
_LEAST_RETENTION_SECONDS: Final = 24 * 3600.0
"""AWS: no stream keeps its records for less."""
_UNCERTAIN_SECONDS: Final = 2 * CLOCK_SKEW_SECONDS
"""Two clocks say when something arrived and what is trimmed now."""


def nothing_promised_is_lost(position: Position, now: float) -> bool:
    """Return whether nothing is lost with a shard that is gone, which was to be read from a position.

    ``now`` is in seconds since the epoch. Retention takes a shard when all its records are too old: those that
    arrived lately are not among them.
    """
    since = position.timestamp if position.since is None else position.since
    if position.sequence_number is not None or since is None:
        return False
    return now - since + _UNCERTAIN_SECONDS < _LEAST_RETENTION_SECONDS


class Continuity:
    """One getter's way through a shard. Mutable."""

    def __init__(self, position: Position, *, is_unproven: bool = False) -> None:
        self.since = position.since
        """Nothing from here on arrived earlier, in seconds since the epoch; None: nobody knows."""
        self._unproven = position if is_unproven else None
        """The position at which reading began anew; None once it is known whether something is missing."""
        self._is_at_horizon = False
        """The position is gone, and nothing came yet."""

    @property
    def is_unproven(self) -> bool:
        return self._unproven is not None

    def begins(self, position: Position) -> Position:
        """Note that reading begins anew. Returns what to ask Kinesis for."""
        can_tell = position.sequence_number is not None or self.since is not None
        self._unproven = position if can_tell else None
        return self.asked(position)

    def asked(self, position: Position) -> Position:
        """Return what is asked for in place of a position."""
        return Position.trim_horizon() if self._is_at_horizon else position.with_its_record

    def limit(self, limit: int) -> int:
        """Return the number of records to ask for: the one before the position is no part of the page."""
        position = self._unproven
        is_more = position is not None and position.with_its_record != position
        return min(MAX_RECORDS, limit + is_more)

    def is_met_by(self, first: SequenceNumber | None) -> bool:
        """Return whether a reply, which begins with ``first``, leaves no question open."""
        if self._unproven is not None and self._unproven.is_met_by(first):
            self._unproven, self._is_at_horizon = None, False
        return self._unproven is None

    def check(
        self,
        first: SequenceNumber | None,
        first_arrival: float | None,
        behind_seconds: float,
        *,
        now: float,
        at_end: bool,
        retention_hours: Callable[[], int | None],
    ) -> bool:
        """Decide upon a reply that does not meet the position.

        Returns:
            True to ask again, as ``begins`` says: the position is gone, and Kinesis seems to search for it.

        Raises:
            DataLoss: records can be missing before it.
        """
        position, since = self._unproven, self.since
        assert position is not None, "only an open question is decided"
        says_nothing = first is None and not at_end and behind_seconds > 0
        if says_nothing and (
            self._is_at_horizon or self._is_kept(now - behind_seconds, now, retention_hours)
        ):
            return False
        if first_arrival is not None and since is not None and first_arrival < since - _UNCERTAIN_SECONDS:
            since = None  # it came from a clock that was wrong
        names_no_record = position.sequence_number is None
        if (since is None and not names_no_record) or (
            since is not None and not self._is_kept(since, now, retention_hours)
        ):
            raise DataLoss(
                "the stream does not keep records for as long as this shard was not read"
                if names_no_record
                else f"reading continues at {first or 'the tip'}, and that record before it is gone"
            )
        self._is_at_horizon = says_nothing
        if not says_nothing:
            self._unproven = None
        return says_nothing

    def has_read(self, last_arrival: float | None, behind_seconds: float, *, seen_at: float) -> None:
        """Note what a reply, asked for at ``seen_at``, says of the records after it."""
        if behind_seconds == 0:
            self.since = seen_at
        elif last_arrival is not None:
            self.since = last_arrival

    def is_given_up(self) -> None:
        self._unproven = self.since = None
        self._is_at_horizon = False

    @staticmethod
    def is_near_horizon(behind_seconds: float) -> bool:
        """Return whether what follows a page may be trimmed before it is read."""
        return behind_seconds > _LEAST_RETENTION_SECONDS - _UNCERTAIN_SECONDS

    @staticmethod
    def _is_kept(arrival: float, now: float, retention_hours: Callable[[], int | None]) -> bool:
        age = now - arrival + _UNCERTAIN_SECONDS
        return age < _LEAST_RETENTION_SECONDS or age < 3600.0 * (retention_hours() or 24)
