"""What a component says beside its tuples: log lines, metrics, and what is no message at all."""

import logging
from collections import Counter
from dataclasses import dataclass
from typing import Any, Final

from kinesis_spout.clock import Clock
from kinesis_spout.life_lines import Pace
from kinesis_spout.multilang.junk import Junk
from kinesis_spout.multilang.messages import Log, Metrics, log_level

_LEVELS: Final = (logging.DEBUG, logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)
"""By Storm's levels: trace, debug, info, warn, error. Python has no trace."""
_log = logging.getLogger("kinesis_spout.multilang.component")


@dataclass(slots=True)
class ShellMetric:
    """What a component has said of one metric. Mutable."""

    count: int = 0
    """How often."""
    last: Any = None
    """Its last value."""


class Remarks:
    """Collects them for one task, whichever process its child is at the time. Mutable."""

    def __init__(self, who: str, clock: Clock) -> None:
        self._who = who
        self._clock = clock
        self._pace: dict[str, Pace] = {}
        self.pid = 0
        """Whom the log lines are from."""
        self.metrics: dict[str, ShellMetric] = {}
        """By name."""
        self.counts: Counter[str] = Counter()
        """How often something happened that is no tuple: ``junk``, ``restarts``, and what ``shell_bolt`` adds."""

    def log(self, message: Log) -> None:
        """Log a line of the component at its level, with the component's name and process."""
        _log.log(_LEVELS[log_level(message)], "%s (pid %d): %s", self._who, self.pid, message.msg)

    def metric(self, message: Metrics) -> None:
        """Count and keep the value of a metric."""
        metric = self.metrics.setdefault(message.name, ShellMetric())
        metric.count += 1
        metric.last = message.params

    def junk(self, junk: Junk) -> None:
        """Count it. Show the first of each kind, and then at most one a minute, in the log."""
        self.counts["junk"] += 1
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
            self.counts["junk"],
            junk.reason,
            junk.text,
        )
