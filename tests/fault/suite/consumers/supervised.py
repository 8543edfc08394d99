"""One consumer as a supervisor has it: a process that is started again whenever it has ended."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.fault.suite.consumers.consumer import EXITED_BY_HANDLER, SinkFault
from tests.fault.suite.consumers.delivery_log import Kind
from tests.fault.suite.judgement.evidence import Sample
from tests.support.zookeeper.proxy import ZooKeeperProxy

REPOSITORY: Final = Path(__file__).parents[4]
_RESTART_SECONDS: Final = 0.3
_STOP_SECONDS: Final = 120.0
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """What a consumer's processes are of: an installed kinesis-spout, with the consumers of its own tests."""

    name: str
    python: str
    folder: Path
    """Where they start: it has the packages ``tests`` and ``examples``."""


PRESENT: Final = Release(name="present", python=sys.executable, folder=REPOSITORY)


@dataclass(slots=True, kw_only=True)
class Ends:
    """How processes ended that nobody told to. Mutable."""

    by_handler: int = 0
    at_start: Counter[str] = field(default_factory=Counter)
    """A start that failed raises at once: whoever starts it tries again."""
    by_themselves: list[str] = field(default_factory=list)
    """After the start: never right."""


class SupervisedConsumer:
    """Mutable. Its processes have lives: ``c1.1``, ``c1.2``, one after the other."""

    def __init__(
        self,
        name: str,
        *,
        on_spark: bool,
        folder: Path,
        zookeeper: ZooKeeperProxy,
        settings: dict[str, Any],
        job: dict[str, Any],
    ) -> None:
        self.name = name
        self.http: str = settings["http"]
        self.on_spark = on_spark
        self.release = PRESENT
        """Of the next process that is started."""
        self.zookeeper = zookeeper
        self.ends = Ends()
        self.pids: dict[str, int] = {}
        self.is_stopped = False
        """By SIGSTOP."""
        self._folder = folder
        self._settings = {**settings, "zookeeper": zookeeper.connect_string}
        self._job = job
        self._clock = folder / f"{name}.clock"
        self._hold = folder / f"{name}.hold"
        self._held = folder / f"{name}.held"
        self._life = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._restart_at = 0.0
        self._expected_end = False
        self._is_over = False
        self._started = False

    @property
    def life(self) -> str:
        return f"{self.name}.{self._life}"

    @property
    def pid(self) -> int | None:
        """Of the process that lives now."""
        alive = self._process is not None and self._process.poll() is None
        return self._process.pid if alive and self._process else None

    @property
    def is_open(self) -> bool:
        """Whether it runs, and has begun to consume."""
        return self.pid is not None and not self.is_stopped and self._has_started()

    @property
    def may_be_asked(self) -> bool:
        """Whether it should answer over HTTP."""
        return self.is_open and not self._expected_end and not self._is_over

    def start(self) -> None:
        self._life += 1
        self._started = False
        self._expected_end = False
        job = {
            **self._job,
            "settings": self._settings,
            "log": str(self._log),
            "clock": str(self._clock),
            "hold": str(self._hold),
            "held": str(self._held),
        }
        module = "spark_consumer" if self.on_spark else "consumer"
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                [self.release.python, "-m", f"tests.fault.suite.consumers.{module}", json.dumps(job)],
                cwd=self.release.folder,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is the director's
            )
        self.pids[self.life] = self._process.pid

    def tend(self) -> None:
        """Start the process again some time after it has ended; note how it ended."""
        if self._is_over or self._process is None or self._process.poll() is None:
            return
        now = time.monotonic()
        if self._restart_at == 0.0:
            self._note_end(self._process)
            self._restart_at = now + _RESTART_SECONDS
        elif now >= self._restart_at:
            self._restart_at = 0.0
            self.start()

    def kill(self) -> None:
        self._expected_end = True
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self.is_stopped = False

    def stop_cleanly(self) -> None:
        """Tell it to end; it is started again once it has."""
        self._expected_end = True
        assert self._process is not None
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()

    def expect_end(self) -> None:
        """Take its next end for what it was told to."""
        self._expected_end = True

    def suspend(self) -> None:
        self._signal(signal.SIGSTOP)
        self.is_stopped = True

    def wake(self) -> None:
        self._signal(signal.SIGCONT)
        self.is_stopped = False

    def signal_parts(self, named: str, number: signal.Signals) -> bool:
        """Send a signal to those processes that Spark has started for it whose command line has this in it.

        False if there is none just now.
        """
        pids = _parts_of(self.pid, named) if self.pid else []
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        return bool(pids)

    def ask_for_stacks(self) -> None:
        """Have it write down where each of its threads is."""
        self._signal(signal.SIGUSR1)

    def set_clock(self, offset_seconds: float) -> None:
        _replace(self._clock, f"{offset_seconds}")

    def hold_next_commit(self) -> None:
        """Have it hold its next commit until others own its shards."""
        self._hold.touch()

    def hold_no_more(self) -> None:
        self._hold.unlink(missing_ok=True)

    @property
    def commits_held(self) -> int:
        """How many commits went on after others had begun to own their shards."""
        return self._held.stat().st_size if self._held.exists() else 0

    def end(self) -> None:
        """End it in order, for good; note it if it does not."""
        if self._process is None:
            return
        self._is_over = True
        self.stop_cleanly()
        try:
            status = self._process.wait(timeout=_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            self.ends.by_themselves.append(f"{self.life} did not stop within {_STOP_SECONDS:g} s")
        else:
            if status:
                self.ends.by_themselves.append(
                    f"{self.life} stopped with status {status}: {self.last_words()}"
                )

    def close(self) -> None:
        """End it now, whatever it does."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)  # Spark has a JVM and its workers
            self._process.wait()
            assert self._process.stdin is not None
            with contextlib.suppress(OSError):
                self._process.stdin.close()

    def sample(self) -> Sample | None:
        pid = self.pid
        if pid is None:
            return None
        try:
            resident = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
            return Sample(
                life=self.life,
                resident_bytes=resident,
                threads=len(list(Path(f"/proc/{pid}/task").iterdir())),
                descriptors=len(list(Path(f"/proc/{pid}/fd").iterdir())),
            )
        except (OSError, IndexError):  # it has just ended
            return None

    def last_words(self) -> str:
        """Give the last line that its process wrote."""
        lines = [line for line in self._output.read_text(errors="replace").splitlines() if line.strip()]
        return lines[-1][:300] if lines else "(it said nothing)"

    @property
    def _log(self) -> Path:
        return self._folder / f"{self.life}.log"

    @property
    def _output(self) -> Path:
        return self._folder / f"{self.life}.out"

    def _has_started(self) -> bool:
        if not self._started and self._log.exists():
            with self._log.open() as log:
                self._started = f"\t{Kind.STARTED}\t" in log.readline()
        return self._started

    def _signal(self, number: signal.Signals) -> None:
        pid = self.pid
        if pid is not None:
            os.kill(pid, number)

    def _note_end(self, process: subprocess.Popen[bytes]) -> None:
        self.is_stopped = False
        assert process.stdin is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        if process.returncode == EXITED_BY_HANDLER:
            self.ends.by_handler += 1
        elif self._expected_end:
            return
        elif not self._has_started():
            self.ends.at_start[self.last_words().partition(":")[0]] += 1
        else:
            self.ends.by_themselves.append(
                f"{self.life} ended with {process.returncode}: {self.last_words()}"
            )


def _parts_of(parent: int, named: str) -> list[int]:
    """Find the processes below one by their command lines: Spark's Python workers have a group of their own."""
    table = subprocess.run(
        ["ps", "-ww", "-eo", "pid=,ppid=,stat=,args="], check=True, capture_output=True, text=True
    )
    rows = [line.split(maxsplit=3) for line in table.stdout.splitlines()]
    living = {int(row[0]): row for row in rows if len(row) == 4 and not row[2].startswith("Z")}
    below, found = {parent}, set[int]()
    while below:
        below = {pid for pid, row in living.items() if int(row[1]) in below}
        found |= below
    return [pid for pid in found if named in living[pid][3]]


def set_sink_fault(file: Path, fault: str | None) -> None:
    """Break the place of the dead letters, or mend it."""
    assert fault in {None, SinkFault.FAILS, SinkFault.HANGS, SinkFault.LOSES_ANSWERS}
    _replace(file, fault or "")


def _replace(file: Path, text: str) -> None:
    """Change a file in one step: others read it meanwhile."""
    written = file.with_suffix(".new")
    written.write_text(text)
    written.replace(file)
