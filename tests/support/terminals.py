"""A terminal in the place of a standard stream."""

import io
import sys
from typing import Literal

import pytest


class FakeTerminal(io.StringIO):
    def isatty(self) -> bool:
        return True


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
