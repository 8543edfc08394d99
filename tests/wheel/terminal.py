"""A program on a terminal of its own: what a person sees of it, types to it, and stops with Ctrl-C."""

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

DEADLINE_SECONDS = 500.0
"""For what takes 20 s where nothing else runs: a Spark script starts Java and up to eight Pythons."""
_ROWS, _COLUMNS = 50, 200
_COLOURS_AND_MOVES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Program:
    """A context manager; at its end nothing lives that the program started and did not set apart."""

    def __init__(
        self, command: Sequence[str | Path], *, folder: Path, environment: Mapping[str, str]
    ) -> None:
        self._screen, its_end = pty.openpty()
        fcntl.ioctl(its_end, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, _COLUMNS, 0, 0))
        self._name = " ".join(map(str, command))
        self._seen = bytearray()
        self._process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=its_end,
            stdout=its_end,
            stderr=its_end,
            start_new_session=True,
        )
        os.close(its_end)
        self._watcher = threading.Thread(target=self._watch)
        self._watcher.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pid in self._living():
            with suppress(ProcessLookupError):  # it has ended meanwhile
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
        self._watcher.join()
        os.close(self._screen)

    @property
    def output(self) -> str:
        """All that was written to the terminal so far."""
        text = bytes(self._seen).decode(errors="replace").replace("\r\n", "\n")
        return _COLOURS_AND_MOVES.sub("", text)

    def shows(self, text: str) -> Self:
        """Wait until the text is on the terminal."""
        return self.until(lambda: text in self.output, repr(text))

    def until(self, condition: Callable[[], bool], what: str) -> Self:
        """Wait until the condition holds, which the program brings about while it runs."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not condition():
            ended = self._process.poll()
            if ended is not None and not condition():
                self._watcher.join(DEADLINE_SECONDS)
                pytest.fail(f"{self._name} ended with {ended} before {what}:\n{self.output}")
            if time.monotonic() > deadline:
                pytest.fail(f"{self._name}: waited {DEADLINE_SECONDS} s for {what}:\n{self.output}")
            time.sleep(0.02)
        return self

    def type(self, text: str) -> None:
        os.write(self._screen, text.encode())

    def ctrl_c(self) -> None:
        """Interrupt it and what it started, as a terminal does."""
        os.killpg(self._process.pid, signal.SIGINT)

    def terminate(self) -> None:
        """Ask it alone to end, as `docker stop` does."""
        self._process.terminate()

    def ends(self, exit_code: int | None = 0) -> str:
        """Wait for its end, and that of all that it started; give the output. None takes any exit code."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while living := self._living():
            if time.monotonic() > deadline:
                pytest.fail(f"{self._name}: {living} still live after {DEADLINE_SECONDS} s:\n{self.output}")
            time.sleep(0.1)
        ended = self._process.wait()
        self._watcher.join(DEADLINE_SECONDS)
        if exit_code is not None and ended != exit_code:
            pytest.fail(f"{self._name} ended with {ended}:\n{self.output}")
        return self.output

    def _watch(self) -> None:
        while True:
            try:
                piece = os.read(self._screen, 65_536)
            except OSError:  # EIO: nobody has the other end any more
                return
            if not piece:
                return
            self._seen += piece

    def _living(self) -> list[int]:
        """The processes of the program's session that have not ended."""
        self._process.poll()
        listed = subprocess.run(
            ["ps", "-axo", "pid=,sess=,stat="], capture_output=True, text=True, check=True
        ).stdout
        rows = (line.split() for line in listed.splitlines())
        return [
            int(pid)
            for pid, session, state in rows
            if session == str(self._process.pid) and not state.startswith("Z")
        ]
