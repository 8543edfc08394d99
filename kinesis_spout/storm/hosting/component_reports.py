"""Messages of a component that are about no tuple: log lines, errors, metrics, and invalid output.

A component can say as much as it likes. Reports that are passed on are bounded, in number and in size, and
can always be written: into a log, and as JSON into a query's progress. The others are counted.
"""

import logging
from collections.abc import Callable
from typing import Any, Final

from kinesis_spout.model.clock import Clock
from kinesis_spout.model.errors import KinesisSpoutError
from kinesis_spout.model.logs import Allowance, LogPace
from kinesis_spout.storm.multilang.frames import CODECS, UnsendableValue, writable_text
from kinesis_spout.storm.multilang.protocol import Error, InvalidOutput, Log, Message, Metrics, Pid, log_level

MOST_LINES: Final = 1_000
"""Lines of a task in the log per minute; the same for errors."""
MOST_METRICS: Final = 200

_MOST_CHARACTERS: Final = 10_000
"""The longest line."""
_MOST_NAME_CHARACTERS: Final = 200
_MOST_VALUE_BYTES: Final = 1_000
_MOST_KINDS: Final = 20
"""The most kinds of invalid output, each shown at its own pace."""
_LEVELS: Final = (logging.DEBUG, logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)
"""By Storm's levels: trace, debug, info, warn, error. Python has no trace."""
_log = logging.getLogger("kinesis_spout.storm.multilang.component")


Report = Callable[[str, Any], None]


class ComponentFailed(KinesisSpoutError):  # noqa: N818 - the names of our errors say what happened
    """A component in another language died, hung, or broke the protocol; or reports its own error."""


def show_lines() -> None:
    """Show what components log at INFO where logging is not set up, as Storm's worker log does."""
    if not logging.getLogger().handlers and _log.level == logging.NOTSET:
        _log.setLevel(logging.INFO)


class ComponentReports:
    """Passes them on for one task, whichever process its child is at the time. Mutable.

    ``report`` takes the component's metrics, and how often something happened that is no tuple:
    ``shell.restarts``, ``shell.invalid_output``, ``shell.left_out`` and so on.
    """

    def __init__(
        self, who: str, clock: Clock, report: Report, report_error: Callable[[BaseException], None]
    ) -> None:
        self._who = who
        self._clock = clock
        self._report = report
        self._report_error = report_error
        self._lines = Allowance(MOST_LINES)
        self._errors = Allowance(MOST_LINES)
        self._metrics: set[str] = set()
        self._last_error = ""
        self._invalid = 0
        self._pace: dict[str, LogPace] = {}
        self.pid = 0

    def take(self, message: Message) -> None:
        if isinstance(message, Log):
            self._log(message)
        elif isinstance(message, Error):
            self._error(message)
        elif isinstance(message, Metrics):
            self._metric(message)
        elif isinstance(message, Pid):
            self.pid = message.pid

    def _log(self, message: Log) -> None:
        if self._may_say(self._lines, "lines to the log"):
            text = _readable(message.msg, _MOST_CHARACTERS)
            _log.log(_LEVELS[log_level(message)], "%s (pid %d): %s", self._who, self.pid, text)

    def _error(self, message: Error) -> None:
        self._last_error = text = _readable(message.msg, _MOST_CHARACTERS)
        if self._may_say(self._errors, "errors"):
            self._report_error(ComponentFailed(f"{self._who}: {text}"))

    def reason_of_fail(self) -> str:
        """Say why it fails a tuple: libraries report the error just before. It counts for one fail."""
        error, self._last_error = self._last_error, ""
        return f"{self._who} failed it, and said before: {error}" if error else f"{self._who} failed it"

    def _metric(self, message: Metrics) -> None:
        name = _readable(message.name, _MOST_NAME_CHARACTERS)
        if name not in self._metrics:
            if len(self._metrics) >= MOST_METRICS:
                self.count("left_out")
                return
            self._metrics.add(name)
        self._report(name, _measured(message.params))

    def restarted(self, failed: ComponentFailed) -> None:
        self.count("restarts")
        self._report_error(failed)

    def count(self, what: str, times: int = 1) -> None:
        self._report(f"shell.{what}", times)

    def invalid(self, output: InvalidOutput) -> None:
        """Count it. Log the first of each kind, and then at most one a minute."""
        self._invalid += 1
        self.count("invalid_output")
        kind = output.reason if output.reason in self._pace or len(self._pace) < _MOST_KINDS else ""
        pace = self._pace.get(kind)
        if pace is None:
            pace = self._pace[kind] = LogPace()
            pace.may_tell(self._clock.monotonic())
        elif not pace.may_tell(self._clock.monotonic()):
            return
        _log.warning(
            "%s (pid %d) wrote what is no message to its standard output, %d times so far; it is put aside: "
            "%s, got: %s",
            self._who,
            self.pid,
            self._invalid,
            output.reason,
            output.text,
        )

    def _may_say(self, allowance: Allowance, what: str) -> bool:
        if allowance.takes_one(self._clock.monotonic()):
            return True
        self.count("left_out")
        if allowance.is_just_used_up:
            _log.warning(
                "%s (pid %d) writes more than %d %s a minute; the others are left out",
                self._who,
                self.pid,
                allowance.most,
                what,
            )
        return False


def _readable(value: object, most_characters: int) -> str:
    """A value as text that every log and every file can hold: JSON can have halves of characters."""
    text = str(value)
    if len(text) > most_characters:
        text = f"{text[:most_characters]} … ({len(text)} characters in all)"
    return writable_text(text)


def _measured(value: Any) -> Any:
    """A metric's value, or its text where it cannot be summed or is too long for a progress."""
    is_huge = isinstance(value, int) and value.bit_length() > 64  # noqa: PLR2004 - bits of a number in JSON
    try:
        if not is_huge and len(CODECS["json"].encode([value], "")) <= _MOST_VALUE_BYTES:
            return value
    except UnsendableValue:
        pass
    return _readable(value, _MOST_NAME_CHARACTERS)
