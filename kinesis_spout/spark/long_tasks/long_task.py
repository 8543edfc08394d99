"""The driver's side of a long task: one Spark job with one task, which is handed slices until it is given up.

The task connects to the driver, again if Spark starts another attempt of it. The micro-batch of an attempt
that died is not handed out again: the next attempt returns what its notes tell (``tasks.journal``). Without a
next attempt the job has failed, and the notes are read here, or the micro-batch died: as with any other job.
"""

import logging
import secrets
import threading
from dataclasses import dataclass
from time import monotonic
from typing import Final

from kinesis_spout.model.errors import HandlerKilledWorker
from kinesis_spout.processes.keyed_connections import KeyedServer, Machine
from kinesis_spout.processes.message_channel import MessageChannel
from kinesis_spout.spark.long_tasks.held_task import HandedPack, Hello, LongTaskAddress, receive, send
from kinesis_spout.spark.tasks.handler_runner import HandlerJob
from kinesis_spout.spark.tasks.work import WorkResult, WorkSlice

IDLE_SECONDS: Final = 1.0
"""After so long without a micro-batch a task is given up."""
BUSY_SECONDS: Final = 0.25
"""The time for which a micro-batch waits for the one before, or for the end of the task before. Another job
possibly needs another Python worker, which takes longer to start."""
_ENDING_SECONDS: Final = 1.0
"""The job of a task that was given up ends within milliseconds."""
_HELLO_SECONDS: Final = 10.0
_KEY_BYTES: Final = 32

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class _Attempt:
    """An attempt of the task that is connected."""

    channel: MessageChannel
    number: int


class LongTask:
    """Mutable; thread-safe. It is handed one micro-batch at a time, by any thread.

    ``job`` is closed with it. Another thread runs the job and calls ``ended`` after it.
    """

    def __init__(self, tag: str, job: HandlerJob, address: LongTaskAddress) -> None:
        self.tag = tag
        """The tag of its Spark job."""
        self.job = job
        self.address = address
        self._changed = threading.Condition()
        self._connected: _Attempt | None = None
        self._handed = 0
        self._busy_with: str | None = None
        self._waiting = 0
        """The number of micro-batches that wait for that one."""
        self._is_sent = False
        self._given_up_at: float | None = None
        self._has_ended = False
        self._error: Exception | None = None
        self._idle_since = monotonic()

    @property
    def is_over(self) -> bool:
        """Return whether it takes no more micro-batches."""
        with self._changed:
            return self._given_up_at is not None or self._has_ended

    @property
    def is_ending(self) -> bool:
        """Return whether it was given up, has nothing under way, and its job has not ended yet."""
        with self._changed:
            return self._given_up_at is not None and self._busy_with is None and not self._has_ended

    @property
    def is_stuck(self) -> bool:
        """Return whether it has been ending for so long that its machine may be lost.

        Spark notices that after ``spark.network.timeout``, two minutes.
        """
        with self._changed:
            if self._given_up_at is None or not self.is_ending:
                return False
            return monotonic() - max(self._given_up_at, self._idle_since) > _ENDING_SECONDS

    @property
    def is_busy(self) -> bool:
        with self._changed:
            return self._busy_with is not None

    @property
    def handed(self) -> int:
        """The number of micro-batches that it was to get."""
        return self._handed

    def has(self, tag: str) -> bool:
        """Return whether it has this micro-batch under way, or is about to get it."""
        with self._changed:
            return self._busy_with == tag

    def handles(self, tag: str) -> bool:
        """Return whether this micro-batch was sent to it, and is under way."""
        with self._changed:
            return self._busy_with == tag and self._is_sent

    def hand(self, tag: str, pack: list[WorkSlice]) -> list[WorkResult] | None:
        """Hand slices over and wait for their outcomes; None if they were not sent.

        Raises what the job died of if that happened meanwhile, and its notes do not tell the outcomes.
        """
        with self._changed:
            self._waiting += 1
            self._changed.wait_for(lambda: self._busy_with is None, BUSY_SECONDS)
            self._waiting -= 1
            if self._busy_with is not None or self._given_up_at is not None or self._has_ended:
                return None
            self._handed += 1
            self._busy_with, self._is_sent = tag, False
        try:
            return self._outcomes(self._handed, pack)
        finally:
            self._free()

    def _free(self) -> None:
        with self._changed:
            self._busy_with, self._idle_since = None, monotonic()
            has_ended = self._has_ended
            if self._given_up_at is not None or self._waiting:
                self._changed.notify_all()
        if has_ended:
            self.job.close()

    def _outcomes(self, number: int, pack: list[WorkSlice]) -> list[WorkResult] | None:
        was_sent = False
        while (attempt := self._awaited()) is not None:
            try:
                if attempt.channel.is_quiet():
                    handed = HandedPack(number=number, pack=pack, recovers=was_sent)
                    was_sent = self._is_sent = True
                    send(attempt.channel, handed)
                    results: list[WorkResult] = receive(attempt.channel)
                    if handed.recovers:
                        self.give_up()
                    return results
            except OSError as error:
                _log.info("the connection to a long task is lost: %r", error)
            self._drop(attempt)
        if not was_sent:
            return None
        if isinstance(self._error, HandlerKilledWorker):
            return self.job.recovered([pack], [number], self._error)
        raise self._error or HandlerKilledWorker("the Spark job ended without the outcome of its slices")

    def _awaited(self) -> _Attempt | None:
        """Wait for a connection; None if there will be none, or the task was given up before it got the slices."""
        with self._changed:
            while self._connected is None:
                if self._has_ended or (self._given_up_at is not None and not self._is_sent):
                    return None
                self._changed.wait()
            return self._connected

    def _drop(self, attempt: _Attempt) -> None:
        with self._changed:
            if self._connected is attempt:
                self._connected = None
            self._changed.notify_all()

    def give_up(self) -> None:
        """Hand nothing more over: the task ends, after what it has under way."""
        with self._changed:
            self._note_given_up()
            self._changed.notify_all()

    def _note_given_up(self) -> None:
        if self._given_up_at is None:
            self._given_up_at = monotonic()

    def ended(self, error: Exception | None) -> None:
        """The job has ended, by itself or with an error."""
        with self._changed:
            self._has_ended, self._error = True, error
            is_busy = self._busy_with is not None
            if self._connected is not None:
                # A worker can outlive its job. Nobody else waits for it.
                self._connected.channel.shut()
            self._changed.notify_all()
        if not is_busy:
            self.job.close()

    def await_end(self, timeout_seconds: float) -> bool:
        """Wait for the end of its job; whether it has ended."""
        with self._changed:
            return self._changed.wait_for(lambda: self._has_ended, timeout_seconds)

    def serve(self, channel: MessageChannel, attempt: int) -> None:
        """Keep a connection of the task until it is over; gives the task up when it has been idle for long."""
        mine = _Attempt(channel, attempt)
        with self._changed:
            if self._connected is not None and attempt < self._connected.number:
                return
            if self._connected is not None:
                # Nothing is known of the earlier attempt: its machine can be gone.
                self._connected.channel.shut()
            self._connected = mine
            self._idle_since = monotonic()
            self._changed.notify_all()
            while self._connected is mine and not self._has_ended:
                left = IDLE_SECONDS
                if self._busy_with is None:
                    left = self._idle_since + IDLE_SECONDS - monotonic()
                    if left <= 0:
                        self._note_given_up()
                    if self._given_up_at is not None:
                        break
                # It is not woken for every micro-batch: then it looks again.
                self._changed.wait(left)
            if self._connected is mine:
                self._connected = None
                self._changed.notify_all()


class LongTasks:
    """The long tasks of an application: where they connect, and how many there are. Thread-safe.

    Listens at ``listen_at``, at a port of the system's choice; executors reach it by the address ``host``.
    """

    def __init__(self, listen_at: str, host: str) -> None:
        self._lock = threading.Lock()
        self._of: dict[str, LongTask] = {}
        self._key = secrets.token_bytes(_KEY_BYTES)
        self._server = KeyedServer(listen_at, self._key, self._serve, "kinesis-spout-long-tasks")
        self._machine = Machine(host, self._server.port)

    def begin(self, tag: str, job: HandlerJob, *, at_most: int) -> LongTask | None:
        """A new one; None if there are so many already. ``end`` follows."""
        with self._lock:
            if len(self._of) >= at_most:
                return None
            name = secrets.token_hex(8)
            task = LongTask(tag, job, LongTaskAddress(machine=self._machine, key=self._key, task=name))
            self._of[name] = task
            return task

    def end(self, task: LongTask) -> None:
        with self._lock:
            self._of.pop(task.address.task, None)

    def close(self) -> None:
        self._server.close()

    def _serve(self, channel: MessageChannel) -> None:
        channel.set_timeout(_HELLO_SECONDS)
        hello = receive(channel)
        if not isinstance(hello, Hello):
            return
        with self._lock:
            task = self._of.get(hello.task)
        if task is not None:
            channel.set_timeout(None)
            task.serve(channel, hello.attempt)
