"""Prints our log lines, with time and level, in processes in which nothing configures logging.

Those are the Python processes that Spark starts for a reader, a writer and the tasks, and our own.
Their output is where Spark prints. Logging that is set up is never touched: once the root logger has
handlers, also later, the lines go there and are no longer printed here.
"""

import logging
import sys
import time
from typing import Final

from kinesis_spout.settings.setting_messages import Spell, respelled

LINE_FORMAT: Final = "%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s: %(message)s"
LINE_TIME_FORMAT: Final = "%Y-%m-%dT%H:%M:%S"


def print_log_lines(*, level: str = "WARNING", spell: Spell | None = None) -> None:
    """Print what is logged from now on; called again it changes nothing.

    ``level`` is the least that is logged; ``spell`` how the lines call settings: see
    ``settings.setting_messages``.
    """
    ours = logging.getLogger("kinesis_spout")
    if logging.getLogger().handlers or any(isinstance(handler, _Lines) for handler in ours.handlers):
        return
    if ours.level == logging.NOTSET and level != "WARNING":
        ours.setLevel(level)
    ours.addHandler(_Lines(spell))


class _Lines(logging.Handler):
    """Writes to the current standard error. Thread-safe, as handlers are."""

    def __init__(self, spell: Spell | None) -> None:
        super().__init__()
        self._spell = spell
        formatter = logging.Formatter(LINE_FORMAT, LINE_TIME_FORMAT)
        formatter.converter = time.gmtime
        self.setFormatter(formatter)

    def emit(self, record: logging.LogRecord) -> None:
        if logging.getLogger().handlers:
            return
        try:
            line = self.format(record)
            sys.stderr.write((respelled(line, self._spell) if self._spell else line) + "\n")
            sys.stderr.flush()
        except Exception:  # noqa: BLE001 - as every handler of logging does: see its handleError
            self.handleError(record)
