"""One child: the process of a component in another language, with its pipes and the end of its standard error.

It has its own process group, so that all processes it started end with it, and an interrupt at the terminal
does not reach it. Its standard input and output are non-blocking at our ends; the holder of its lease reads
and writes them (``children``), which can be another process.
"""

import contextlib
import fcntl
import logging
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import IO, Final

import msgspec

from kinesis_spout.model.errors import InvalidConfig

END_SECONDS: Final = 2.0
"""How long a child may take to end, after its input has ended."""

_DEATH_SECONDS: Final = 0.5
"""How long after its output a process may end."""
_TAIL_BYTES: Final = 8 * 1024
_SHOWN_CHARACTERS: Final = 600
"""Of standard error, in the reason of a failure, where there is little room. All that is kept goes to the log."""
_PIPE_BYTES: Final = 1024 * 1024
_SECRETS: Final = ("PYTHON_WORKER_FACTORY_SECRET", "PYTHON_WORKER_FACTORY_SOCK_PATH")
"""What Spark tells its Python workers only."""


_log = logging.getLogger(__name__)


class ChildSettings(msgspec.Struct, frozen=True, kw_only=True):
    command: tuple[str, ...]
    resources: str | None = None
    """What it runs in, for ``find_resources`` on the machine where it is started. None: where its owner runs."""
    environment: dict[str, str] = {}


def check_command(settings: ChildSettings, folder: str | None) -> None:
    """Find the command on this machine. InvalidConfig: there is none; names it, and where it was looked for."""
    program = settings.command[0]
    if os.sep in program:
        place = Path(folder or ".").absolute() / program
        if not os.access(place, os.X_OK) or place.is_dir():
            raise InvalidConfig(f"command {list(settings.command)}: expected an executable file at {place}")
        return
    path = _environment(settings).get("PATH", os.defpath)
    if shutil.which(program, path=path) is None:
        raise InvalidConfig(
            f"command {list(settings.command)}: expected a program {program!r} in the PATH of this machine, "
            f"which is {path}; install it there, or name it by its whole path"
        )


class ChildProcess:
    """A running child. Mutable; one thread calls ``end`` or ``end_at_once``, once."""

    def __init__(self, settings: ChildSettings, folder: str | None = None) -> None:
        """Start it, in a folder; None: where this process runs. InvalidConfig: see ``check_command``."""
        check_command(settings, folder)
        self.pid_folder = tempfile.mkdtemp(prefix="kinesis-spout-pid-")
        try:
            self._process = subprocess.Popen(  # noqa: S603 - the user's own component
                settings.command,
                cwd=folder,
                env=_environment(settings),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                process_group=0,
            )
        except OSError as error:
            shutil.rmtree(self.pid_folder, ignore_errors=True)
            raise InvalidConfig(
                f"command {list(settings.command)}: expected it to start, got {error}"
            ) from error
        stdin, stdout, stderr = self._process.stdin, self._process.stdout, self._process.stderr
        assert stdin is not None
        assert stdout is not None
        assert stderr is not None
        self._stdin, self._stdout = stdin, stdout
        self.stdin, self.stdout = stdin.fileno(), stdout.fileno()
        for pipe in (self.stdin, self.stdout):
            os.set_blocking(pipe, False)
            with contextlib.suppress(OSError, AttributeError):  # not everywhere, and not for everybody
                fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self._tail = b""
        self._drain = threading.Thread(
            target=self._drain_stderr, args=(stderr,), name=f"stderr of {self.pid}", daemon=True
        )
        self._drain.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def is_running(self) -> bool:
        return self._process.poll() is None

    def end(self) -> None:
        self._stdin.close()
        self._ended(END_SECONDS)

    def end_at_once(self) -> str:
        """Kill it soon: it hangs, or its output has ended. Say how it ended, and the end of its standard error."""
        words = self._ended(_DEATH_SECONDS)
        if len(self._tail) > _SHOWN_CHARACTERS:
            _log.warning(
                "the standard error of process %d ends with:\n%s",
                self.pid,
                self._tail.decode(errors="replace"),
            )
        return words

    def _ended(self, wait_seconds: float) -> str:
        by_itself = True
        try:
            self._process.wait(wait_seconds)
        except subprocess.TimeoutExpired:
            by_itself = False
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)  # also what it has started
        self._process.wait()
        self._drain.join(END_SECONDS)
        self._stdin.close()
        self._stdout.close()
        shutil.rmtree(self.pid_folder, ignore_errors=True)
        how = _how_it_ended(self._process.returncode) if by_itself else "it was killed"
        tail = self._tail.decode(errors="replace").strip()
        if not tail:
            return f"{how}; it wrote no standard error"
        return f"{how}; its standard error ends with:\n{tail[-_SHOWN_CHARACTERS:]}"

    def _drain_stderr(self, stderr: IO[bytes]) -> None:
        with stderr:
            while data := os.read(stderr.fileno(), 64 * 1024):
                self._tail = (self._tail + data)[-_TAIL_BYTES:]


def _environment(settings: ChildSettings) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name not in _SECRETS}
    return inherited | settings.environment


def _how_it_ended(code: int) -> str:
    if code >= 0:
        return f"it ended with exit code {code}"
    try:
        return f"it was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"it was ended by signal {-code}"
