"""Conducts the demo once everything is there: a driver that is killed, the one after it, and the recount."""

import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final, Self

import msgspec

from examples.demo.consumers.settings import ConsumerSettings, dead_letter_directory, status_file
from examples.demo.display import Display, Snapshot
from examples.demo.processes.consumer_process import ConsumerProcess
from examples.demo.producer import Producer
from examples.demo_topology.driver import DriverStatus
from examples.demo_topology.outcome import Kill
from examples.demo_topology.sentences import number_of
from examples.demo_topology.troubled_topology import COUNT, killed_file, troubled_topology
from kinesis_spout import KinesisSpoutError
from kinesis_spout.dead_letters import JsonLinesSink

HELD_AT: Final = 0.6
"""The share of the sentences that is put before the driver is killed: the next one gets some fresh ones, too."""
_KILL_AT: Final = 0.3
"""The share that is acked before."""
_MORE: Final = 0.05
"""The share that is put in addition, where a kill would hit a driver that has nothing to do."""
_LOOK_SECONDS: Final = 0.05


class Conductor:
    """Runs the drivers. Mutable. A context manager: nothing outlives it.

    Args:
        settings: of the drivers.
        sentences: how many there will be.
        producer: started, and ended by its owner.
        start_driver: starts one, given which it is, from 1.
        display: is shown everything.
        deadline: monotonic.
    """

    def __init__(
        self,
        *,
        settings: ConsumerSettings,
        sentences: int,
        producer: Producer,
        start_driver: Callable[[int], ConsumerProcess],
        display: Display,
        deadline: float,
    ) -> None:
        self._directory = Path(settings.directory)
        self._settings = settings
        self._sentences = sentences
        self._producer = producer
        self._start_driver = start_driver
        self._display = display
        self._deadline = deadline
        self._phase = "starting Spark"
        self._driver: ConsumerProcess | None = None
        self._letters = JsonLinesSink(dead_letter_directory(self._directory))
        self._worker_told = False
        self.kill: Kill | None = None

    def run(self) -> None:
        """Go on until every sentence has its end.

        Raises:
            KinesisSpoutError: a driver or the producer failed, or it took too long.
        """
        self._start(1)
        self._until(lambda: self._may_kill(self.status(1)), f"{_KILL_AT:.0%} of the sentences are counted")
        killed_at = self._kill()
        self._producer.allow(self._sentences)
        self._start(2)
        self._until(lambda: self.status(2).acked > 0, "the second driver has counted a sentence")
        assert self.kill is not None, "it was"
        self.kill = replace(self.kill, resumed_seconds=round(time.monotonic() - killed_at, 1))
        self._display.event(f"the counting goes on {self.kill.resumed_seconds} s after the kill")
        self._until(lambda: self._producer.finished, "every sentence is on the stream")
        self._display.event("every sentence is on the stream: the driver finishes them, and stops in order")
        assert self._driver is not None, "it was started"
        self._driver.stop()
        self._show()

    def status(self, run: int) -> DriverStatus:
        """Give what a driver last said of itself."""
        try:
            said = status_file(self._directory, run).read_bytes()
        except FileNotFoundError:
            return DriverStatus()
        return msgspec.json.decode(said, type=DriverStatus)

    def dead_lettered(self) -> set[int]:
        """Name the sentences that were given up."""
        return {number_of(letter.data) for letter in self._letters.read()}

    def killed_worker(self) -> int | None:
        """Give the process id of the Python worker that was killed; None until then."""
        file = killed_file(self._directory)
        return int(file.read_text() or 0) if file.exists() else None

    def stored_counts(self) -> dict[str, int]:
        """Read the state as it is stored."""
        return troubled_topology(self._settings).read_state(COUNT)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._driver is not None:
            self._driver.kill(())

    def _start(self, run: int) -> None:
        self._driver = self._start_driver(run)
        again = "" if run == 1 else " again"
        self._display.event(f"starting the driver{again} (pid {self._driver.pid}): Spark needs some seconds")

    def _may_kill(self, status: DriverStatus) -> bool:
        if status.acked < self._sentences * _KILL_AT or not status.commits or self.killed_worker() is None:
            return False
        if self._producer.is_held and self._producer.produced <= status.acked + len(self.dead_lettered()):
            self._producer.allow(min(self._sentences, self._producer.produced + self._more))
            return False
        return bool(status.in_flight)

    @property
    def _more(self) -> int:
        return max(1, int(self._sentences * _MORE))

    def _kill(self) -> float:
        assert self._driver is not None, "it was started"
        pid = self._driver.pid
        self._driver.kill(())
        killed_at = time.monotonic()
        if self._driver.exit_status != -signal.SIGKILL:
            raise KinesisSpoutError(
                f"expected the driver {pid} to be killed, it ended with status {self._driver.exit_status}"
            )
        unfinished = self._producer.produced - self.status(1).stored - len(self.dead_lettered())
        words = sum(self.stored_counts().values())
        self.kill = Kill(pid=pid, unfinished=max(0, unfinished), committed_words=words)
        self._display.event(
            f"killed the driver (pid {pid}): {words:,} words are stored; up to {self.kill.unfinished:,} sentences "
            "are not done, or not stored as done, and come again"
        )
        self._phase = "resuming"
        return killed_at

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        while not condition():
            if time.monotonic() >= self._deadline:
                raise KinesisSpoutError(
                    f"expected that {what} before the time-out, they were not; a slow machine needs a longer "
                    "--timeout"
                )
            time.sleep(_LOOK_SECONDS)
            self._producer.check()
            assert self._driver is not None, "it was started"
            self._driver.check()
            self._show()

    def _show(self) -> None:
        assert self._driver is not None, "it was started"
        status, before = self.status(self._driver.run), self.status(self._driver.run - 1)
        worker = self.killed_worker()
        if worker and not self._worker_told:
            self._worker_told = True
            self._display.event(f"killed a Python worker (pid {worker}) after it had counted a word")
        if status.acked:
            self._phase = "counting" if not self._producer.finished else "finishing"
        self._display.update(
            Snapshot(
                phase=self._phase,
                records=self._sentences,
                produced=self._producer.produced,
                acked=before.stored + status.acked,  # What was acked and not stored is acked again.
                dead_lettered=len(self.dead_lettered()),
                retries=before.retried + status.retried,
                open_shards=self._producer.open_shards,
                owned={"the driver": len(status.owned)},
            )
        )
