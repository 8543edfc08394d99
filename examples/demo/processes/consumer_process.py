"""A consuming process as the demo sees it: to be started, looked at, killed, and stopped."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

import msgspec

from examples.demo.consumers.settings import ConsumerSettings, ConsumerStatus, status_file
from examples.demo.processes.log_tail import log_tail
from kinesis_spout import KinesisSpoutError

_STOP_SECONDS: Final = 45.0
_DEATH_SECONDS: Final = 5.0
"""How long the members of a killed group are waited for. One that nobody reaps counts as a member for ever."""


class ConsumerProcess:
    """A consumer in a session of its own, on Spark with JVM and Python workers. Mutable. A context manager.

    Args:
        module: is run; it takes ``ConsumerSettings.of_command_line``, and stops when its standard input ends.
        settings: what it is told.
        environment: what it needs besides that of this process.
    """

    def __init__(self, module: str, settings: ConsumerSettings, environment: Mapping[str, str]) -> None:
        self._settings = settings
        self._directory = Path(settings.directory)
        self._log = self._directory / f"consumer-{settings.run}.log"
        with self._log.open("wb") as output:
            self._process = subprocess.Popen(  # noqa: S603 - our own command line
                [
                    sys.executable,
                    "-m",
                    module,
                    msgspec.json.encode(settings).decode(),
                ],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self._directory,
                env={**os.environ, **environment},
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The process id, on Spark the driver's, which is also its session's and its group's."""
        return self._process.pid

    @property
    def run(self) -> int:
        """Which start of a consumer this is."""
        return self._settings.run

    @property
    def exit_status(self) -> int | None:
        """How it ended, as ``subprocess`` tells it; None while it runs."""
        return self._process.poll()

    def status(self) -> ConsumerStatus:
        """Give what it last said of itself."""
        try:
            said = status_file(self._directory, self.run).read_bytes()
        except FileNotFoundError:
            return ConsumerStatus()
        return msgspec.json.decode(said, type=ConsumerStatus)

    def check(self) -> None:
        """Raise if it ended by itself.

        Raises:
            KinesisSpoutError: with the end of its log.
        """
        status = self._process.poll()
        if status is not None:
            raise KinesisSpoutError(
                f"expected the consuming process {self.pid} to run, it ended with status {status}.\n"
                f"{log_tail(self._log)}"
            )

    def kill(self, workers: Iterable[int]) -> None:
        """End all of it with SIGKILL: the process, a JVM, and the Python workers with these process ids.

        The workers are named because PySpark gives them a process group of their own. Those that are not,
        PySpark's daemon ends when the JVM is gone.
        """
        for pid in workers:
            # A number may belong to somebody else by now; whoever is in the driver's session is ours.
            with suppress(ProcessLookupError):
                if os.getsid(pid) == self.pid:
                    os.kill(pid, signal.SIGKILL)
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.communicate()

    def stop(self) -> None:
        """Let it finish what is in flight and commit.

        Raises:
            KinesisSpoutError: it failed at that, or did not end in time.
        """
        assert self._process.stdin is not None, "it is started with a pipe"
        self._process.stdin.close()
        try:
            status = self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise KinesisSpoutError(
                f"expected the consuming process {self.pid} to stop within {_STOP_SECONDS:g} s, it did not.\n"
                f"{log_tail(self._log)}"
            ) from error
        if status != 0:
            raise KinesisSpoutError(
                f"expected the consuming process {self.pid} to stop in order, it ended with status {status}.\n"
                f"{log_tail(self._log)}"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self.kill(())
            self._wait_for_the_others()

    def _wait_for_the_others(self) -> None:
        """Wait for the JVM too: while it dies, it may still write where everything is to be removed."""
        deadline = time.monotonic() + _DEATH_SECONDS
        with suppress(
            ProcessLookupError, PermissionError
        ):  # the group is gone; or its number is somebody else's
            while time.monotonic() < deadline:
                os.killpg(self.pid, 0)
                time.sleep(0.02)
