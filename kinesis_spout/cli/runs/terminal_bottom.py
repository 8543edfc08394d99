"""A picture at the bottom of a terminal that is redrawn in place, with all else that is printed above it.

Rich's own ``Live`` expects the lines of its last picture where it drew them. A terminal that is made narrower
breaks long lines in two, so this counts the rows that they then take.
"""

import contextlib
import io
import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, TextIO

from rich.console import Console, RenderableType
from rich.control import Control
from rich.segment import ControlType, Segment, Segments
from rich.text import Text

WIDEST: Final = 100
"""Columns: figures far apart are hard to read."""


class TerminalBottom:
    """Mutable. Any thread may print above the picture; what is drawn is under the lock."""

    def __init__(self, terminal: TextIO) -> None:
        self.console: Final = Console(file=terminal)
        self._lock = threading.RLock()
        self._picture: RenderableType | None = None
        self._drawn: list[int] = []
        """The width of each line of the picture that is on the screen."""

    @property
    def width(self) -> int:
        """The widest that a picture can be: a full last column would make some terminals begin a new line."""
        return max(1, min(self.console.width - 1, WIDEST))

    def draw(self, picture: RenderableType) -> None:
        with self.above():
            self._picture = picture

    @contextmanager
    def above(self) -> Iterator[None]:
        """Let what is printed to the console meanwhile, in whole lines, stand above the picture."""
        with self._lock, self._quiet_when_gone(), self.console:  # which writes all of it at once
            self._erase()
            yield
            self._draw()

    @contextmanager
    def _quiet_when_gone(self) -> Iterator[None]:
        """A terminal that was closed shows nothing more, and ends no run."""
        try:
            yield
        except OSError:
            self.console.quiet = True

    @contextmanager
    def taking_all(self) -> Iterator[None]:
        """Print above the picture what is written to the standard streams; at the end let the picture stand."""
        with contextlib.ExitStack() as stack:
            stack.callback(self._leave)
            if sys.stdout.isatty():
                stack.enter_context(contextlib.redirect_stdout(self._proxy(stack, sys.stdout)))
            error = sys.stderr
            proxy = self._proxy(stack, error)
            stack.enter_context(contextlib.redirect_stderr(proxy))
            for handler in logging.getLogger().handlers:  # perhaps of the user's module
                if isinstance(handler, logging.StreamHandler) and handler.stream is error:
                    handler.setStream(proxy)
                    stack.callback(handler.setStream, error)
            yield

    def _proxy(self, stack: contextlib.ExitStack, stream: TextIO) -> "_LinesAbove":
        proxy = _LinesAbove(self, stream)
        stack.callback(proxy.write_partial_lines)
        return proxy

    def _leave(self) -> None:
        with self._lock, self._quiet_when_gone():
            self._picture, self._drawn = None, []
            self.console.show_cursor()

    def _erase(self) -> None:
        width = max(1, self.console.width)
        rows = sum(max(1, -(-length // width)) for length in self._drawn)
        up = ((ControlType.CURSOR_UP, 1), (ControlType.ERASE_IN_LINE, 2))
        # The cursor's own row, too: a terminal shows Ctrl-C there.
        here = (ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 2))
        if self._drawn:
            self.console.print(Control(*here, *up * min(rows, self.console.height - 1)), end="")
        self._drawn = []

    def _draw(self) -> None:
        if self._picture is None:
            return
        lines = self.console.render_lines(
            self._picture, self.console.options.update(width=self.width), pad=False
        )
        room = max(1, self.console.height - 1)
        if len(lines) > room:
            lines = [*lines[: room - 1], [Segment(f"… {len(lines) - room + 1} more lines"[: self.width])]]
        self._drawn = [Segment.get_line_length(line) for line in lines]
        self.console.show_cursor(show=False)
        ended = [segment for line in lines for segment in (*line, Segment.line())]
        self.console.print(Segments(ended), end="", soft_wrap=True)


class _LinesAbove(io.TextIOBase):
    """A standard stream that prints whole lines above the picture. Mutable; any thread may write."""

    def __init__(self, bottom: TerminalBottom, stream: TextIO) -> None:
        self._bottom = bottom
        self._stream = stream
        self._lock = threading.Lock()
        self._partial: dict[int, str] = {}
        """What each thread has written of a line."""

    def write(self, text: str) -> int:
        thread = threading.get_ident()
        with self._lock:
            lines, newline, rest = (self._partial.pop(thread, "") + text).rpartition("\n")
            if rest:
                self._partial[thread] = rest
        if newline:
            self._print(lines)
        return len(text)

    def write_partial_lines(self) -> None:
        with self._lock:
            partial, self._partial = list(self._partial.values()), {}
        for text in partial:
            self._print(text)

    def _print(self, lines: str) -> None:
        with self._bottom.above():
            # As it is, with its colours: the terminal breaks long lines, so that they can be copied whole.
            self._bottom.console.print(Text.from_ansi(lines), soft_wrap=True, highlight=False)

    def isatty(self) -> bool:
        return self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
