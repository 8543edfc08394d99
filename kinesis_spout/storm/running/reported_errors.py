"""The errors of one task: each is counted, and the log tells of as many as somebody can read."""

import logging
from collections.abc import Callable
from typing import Final

from kinesis_spout.model.handler import failure_of
from kinesis_spout.model.logs.allowance import Allowance
from kinesis_spout.storm.running.component_counts import ComponentCounts

MOST_LINES: Final = 10
"""Errors of a task in the log, a minute."""

_log: Final = logging.getLogger(__name__)


class ReportedErrors:
    """Takes what a task reports, and what it raised. Mutable; for one thread.

    Args:
        who: the task, in log lines.
        counts: where its errors are counted; all of them.
        clock: monotonic, for the pace of log lines.
    """

    def __init__(self, who: str, counts: ComponentCounts, clock: Callable[[], float]) -> None:
        self._who = who
        self._counts = counts
        self._clock = clock
        self._lines = Allowance(MOST_LINES)

    def report(self, error: BaseException) -> None:
        """Count an error, and tell the log of it."""
        self.count(failure_of(error).error_text)
        self.log(self._counts.last_error)

    def count(self, text: str) -> None:
        """Count an error that somebody is told of in another way."""
        self._counts.errors += 1
        self._counts.last_error = text

    def log(self, text: str) -> None:
        """Log a line, unless there were too many in this minute; the next one then says how many were left out."""
        if self._lines.takes_one(self._clock()):
            left_out = self._lines.take_left_out()
            more = f" ({left_out} errors before it were left out of the log)" if left_out else ""
            _log.warning("%s: %s%s", self._who, text, more)
        elif self._lines.is_just_used_up:
            _log.warning(
                "%s has more than %d errors a minute; the others are only counted", self._who, MOST_LINES
            )
