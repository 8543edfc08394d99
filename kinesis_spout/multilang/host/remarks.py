"""What a component says beside its tuples: log lines, metrics, and what is no message at all."""

import logging
from collections.abc import Callable
from typing import Any, Final

from kinesis_spout.clock import Clock
from kinesis_spout.logs.life_lines import Pace
from kinesis_spout.multilang.junk import Junk
from kinesis_spout.multilang.messages import Log, Metrics, log_level

_LEVELS: Final = (logging.DEBUG, logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)
"""By Storm's levels: trace, debug, info, warn, error. Python has no trace."""
_log = logging.getLogger("kinesis_spout.multilang.component")


Report = Callable[[str, Any], None]
"""Takes a metric: its name and a value."""


class Remarks:
    """Passes them on for one task, whichever process its child is at the time. Mutable.

    Args:
        who: the task, in log lines.
        clock: for the pace of log lines.
        report: takes the component's metrics, and how often something happened that is no tuple: ``shell.junk``,
            ``shell.restarts``, and what ``ShellBolt`` and ``ShellSpout`` name.
    """

    def __init__(self, who: str, clock: Clock, report: Report) -> None:
        self._who = who
        self._clock = clock
        self._report = report
        self._junk = 0
        self._pace: dict[str, Pace] = {}
        self.pid = 0
        """Whom the log lines are from."""

    def log(self, message: Log) -> None:
        """Log a line of the component at its level, with the component's name and process."""
        _log.log(_LEVELS[log_level(message)], "%s (pid %d): %s", self._who, self.pid, message.msg)

    def metric(self, message: Metrics) -> None:
        """Pass on the value of a metric."""
        self._report(message.name, message.params)

    def count(self, what: str, times: int = 1) -> None:
        """Pass on that something happened."""
        self._report(f"shell.{what}", times)

    def junk(self, junk: Junk) -> None:
        """Count it. Show the first of each kind, and then at most one a minute, in the log."""
        self._junk += 1
        self.count("junk")
        pace = self._pace.get(junk.reason)
        if pace is None:
            pace = self._pace[junk.reason] = Pace()
            pace.may_tell(self._clock.monotonic())
        elif not pace.may_tell(self._clock.monotonic()):
            return
        _log.warning(
            "%s (pid %d) wrote what is no message to its standard output, %d times so far; it is put aside: "
            "%s, got: %s",
            self._who,
            self.pid,
            self._junk,
            junk.reason,
            junk.text,
        )
