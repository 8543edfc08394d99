"""A clock for tests of shell components that hang: nobody waits for a time-out, and no time-out is short."""

from pathlib import Path
from typing import Final

import pytest

from kinesis_spout.model.clock import SystemClock
from kinesis_spout.storm.hosting import shell_settings
from tests.support.storm.shell_components.protocol import HANG_MARK

LEAP_SECONDS: Final = 31.0
_LOOKS: Final = 6
"""Whoever looks at the clock so often has meanwhile read what the component said before."""


class HangClock(SystemClock):
    """The machine's clock, but that it leaps when a component says that it hangs: by making the file ``mark``.

    So what a component does in time it may do as slowly as a busy machine has it. Mutable.
    """

    def __init__(self, mark: Path) -> None:
        self.mark = mark
        self.leaps = 1
        """So often it leaps while the file is there."""
        self._looks = 0
        self._leapt_seconds = 0.0

    def monotonic(self) -> float:
        self._looks = self._looks + 1 if self.mark.exists() else 0
        if self._looks % _LOOKS == 0 and 0 < self._looks <= _LOOKS * self.leaps:
            self._leapt_seconds += LEAP_SECONDS
        return super().monotonic() + self._leapt_seconds


@pytest.fixture
def hang_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HangClock:
    """Give the clock of all shell components that this process has from now on."""
    clock = HangClock(tmp_path / "hangs")
    monkeypatch.setenv(HANG_MARK, str(clock.mark))
    monkeypatch.setattr(shell_settings, "SystemClock", lambda: clock)
    return clock
