"""A terminal in the place of a standard stream, and what a person would see on it."""

import io
import re
import sys
from typing import Literal

import pytest
from rich.console import Console


class FakeTerminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Screen(FakeTerminal):
    """Shows what was written on rows, with the few control sequences that the live view needs.

    Like most terminals it breaks a line that is longer than itself, also one that was written when it was wider.
    """

    _PART = re.compile(r"\x1b\[\?25[hl]|\x1b\[([0-9;]*)([AKm])|\r|\n|[^\x1b\r\n]+")

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.columns = columns
        self.rows = [""]
        self._at = 0
        self._column = 0

    def write(self, text: str) -> int:
        for part in self._PART.finditer(text):
            argument, control = part.groups()
            if control == "A":
                self._at = max(0, self._at - int(argument or 1))
            elif control == "K":
                assert argument == "2"
                self.rows[self._at] = ""
            elif part[0] == "\r":
                self._column = 0
            elif part[0] == "\n":
                self._down()
            elif not part[0].startswith("\x1b"):
                self._put(part[0])
        return len(text)

    def _down(self) -> None:
        self._at, self._column = self._at + 1, 0
        if self._at == len(self.rows):
            self.rows.append("")

    def _put(self, text: str) -> None:
        for character in text:
            if self._column == self.columns:
                self._down()
            row = self.rows[self._at].ljust(self._column)
            self.rows[self._at] = row[: self._column] + character + row[self._column + 1 :]
            self._column += 1

    def resize(self, columns: int) -> None:
        assert not any([self._column, *self.rows[self._at + 1 :]])
        del self.rows[self._at + 1 :]
        self.columns = columns
        self.rows = [
            row[start : start + columns] for row in self.rows for start in range(0, max(1, len(row)), columns)
        ]
        self._at = len(self.rows) - 1

    @property
    def lines(self) -> list[str]:
        """The rows without the spaces at their ends, and without empty ones at the end."""
        return "\n".join(row.rstrip() for row in self.rows).rstrip("\n").split("\n")


def a_terminal(
    monkeypatch: pytest.MonkeyPatch,
    stream: Literal["stdout", "stderr"],
    *,
    columns: int = 80,
    kind: str = "dumb",
) -> FakeTerminal:
    terminal = FakeTerminal()
    monkeypatch.setenv("TERM", kind)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys, stream, terminal)
    return terminal


def a_screen(monkeypatch: pytest.MonkeyPatch, *, columns: int = 80, rows: int = 24) -> Screen:
    """A terminal in the place of both standard streams."""
    screen = Screen(columns)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("LINES", str(rows))
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setattr(sys, "stderr", screen)
    return screen


def resize(screen: Screen, console: Console, columns: int) -> None:
    console.width = columns
    screen.resize(columns)
