"""How many lines of one kind the log may have in a minute; what is left out is counted."""

from kinesis_spout.model.logs.life_lines import SUMMARY_SECONDS


class Allowance:
    """So many a minute, counted from the first. Mutable; times are a clock's monotonic ones.

    Args:
        most: lines in a minute.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._left = 0
        self._anew_at = 0.0
        self._left_out = 0

    def takes_one(self, now: float) -> bool:
        """Take one more; tell whether it was there."""
        if now >= self._anew_at:
            self._left, self._anew_at = self.most, now + SUMMARY_SECONDS
        self._left -= 1
        if self._left >= 0:
            return True
        self._left_out += 1
        return False

    @property
    def is_just_used_up(self) -> bool:
        """Whether the last one was the first that was not there."""
        return self._left == -1

    def take_left_out(self) -> int:
        """Tell how many were not there since this was asked last."""
        left_out, self._left_out = self._left_out, 0
        return left_out
