"""Limits the lines of one kind in the log per minute, and counts what is left out."""

from kinesis_spout.model.logs.life_lines import SUMMARY_SECONDS


class Allowance:
    """So many a minute, counted from the first. Mutable; monotonic times.

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
        """Whether the last one was the first that was left out."""
        return self._left == -1

    def take_left_out(self) -> int:
        """Return how many were left out since the last call."""
        left_out, self._left_out = self._left_out, 0
        return left_out
