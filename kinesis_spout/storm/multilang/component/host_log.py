"""A handler of ``logging`` that sends lines to the host's log.

Any thread may log; only the component's own thread talks to the host, and a spout talks only when it is asked. So
lines wait here until the component says them. Of too many the oldest are dropped, and counted.
"""

import logging
from collections import deque
from typing import Final

from kinesis_spout.storm.multilang.messages import Log
from kinesis_spout.storm.multilang.sendable import writable_text

_MAX_LINES: Final = 1_000
_TRACE, _DEBUG, _INFO, _WARN, _ERROR = range(5)


class HostLog(logging.Handler):
    """Keeps what was logged until ``taken``. Mutable; thread-safe."""

    def __init__(self, level: int = logging.NOTSET) -> None:
        super().__init__(level)
        self._lines: deque[Log] = deque()
        self._dropped = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line; ``logging`` calls it under the handler's lock."""
        try:
            line = Log(msg=writable_text(self.format(record)), level=_host_level(record.levelno))
        except Exception:  # noqa: BLE001 - what `logging` asks of every handler
            self.handleError(record)
            return
        if len(self._lines) >= _MAX_LINES:
            self._lines.popleft()
            self._dropped += 1
        self._lines.append(line)

    def taken(self) -> list[Log]:
        """Give the lines that wait, oldest first, and keep them no longer."""
        if not self._lines:
            return []
        self.acquire()
        try:
            lines, dropped = list(self._lines), self._dropped
            self._lines.clear()
            self._dropped = 0
        finally:
            self.release()
        if dropped:
            lines.insert(
                0, Log(msg=f"{dropped} lines of the log were dropped here: too many waited", level=_WARN)
            )
        return lines


def _host_level(level: int) -> int:
    if level >= logging.ERROR:
        return _ERROR
    if level >= logging.WARNING:
        return _WARN
    if level >= logging.INFO:
        return _INFO
    return _DEBUG if level >= logging.DEBUG else _TRACE
