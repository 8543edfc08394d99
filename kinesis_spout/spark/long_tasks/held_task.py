"""The executor's side of a long task: it connects to the driver, and is handed slices until it is given up.

A message is a pickle, on a connection whose both ends have proven that they know a key
(``processes.keyed_connections``). The task says hello; then the driver sends the slices of one micro-batch at
a time, and the task answers with their outcomes. The task ends when the driver closes the connection, or sends
nothing for long.
"""

import logging
import pickle
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from pyspark import TaskContext

from kinesis_spout.processes.keyed_connections import Machine, connect
from kinesis_spout.processes.message_channel import MessageChannel
from kinesis_spout.processes.worker_log import print_log_lines
from kinesis_spout.spark.tasks.handler_runner import RunSlices
from kinesis_spout.spark.tasks.work import WorkSlice

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LongTaskAddress:
    """The place where a driver hands out slices, and to which task; travels to the executors."""

    machine: Machine
    key: bytes = field(repr=False)
    task: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """The first message of a task."""

    task: str
    attempt: int
    """Spark's; from 1 on, an earlier one has died."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedPack:
    """A message of the driver. Answered by a list of ``WorkResult``, one for each slice."""

    number: int
    """The micro-batch's number; its notes have it."""
    pack: list[WorkSlice]
    recovers: bool = False
    """An earlier attempt had this pack when it died: its notes are read, and no handler is called."""


class HeldTask:
    """The work of a long task. Picklable.

    It yields one line if the driver cannot be reached, and nothing otherwise. ``silent_seconds``: after so
    long without slices the driver is gone.
    """

    def __init__(self, run_slices: RunSlices, address: LongTaskAddress, *, silent_seconds: float) -> None:
        self._run_slices = run_slices
        self._address = address
        self._silent_seconds = silent_seconds

    def __call__(self, partition: Iterable[object]) -> Iterator[str]:
        # Spark keeps a Python worker for further tasks only if it has read its input to the end.
        deque(partition, maxlen=0)
        context = TaskContext.get()
        assert context is not None
        print_log_lines()
        try:
            channel = connect(self._address.machine, self._address.key)
        except OSError as error:
            yield f"{self._address.machine.host}:{self._address.machine.port} cannot be reached: {error!r}"
            return
        channel.set_timeout(self._silent_seconds)
        with channel:
            self._say(channel, Hello(task=self._address.task, attempt=context.attemptNumber()))
            while (handed := self._next_pack(channel)) is not None:
                act = self._run_slices.recover if handed.recovers else self._run_slices.run
                if self._say(channel, list(act(handed.pack, handed.number))):
                    self._run_slices.drop_notes(handed.number)

    def _say(self, channel: MessageChannel, message: object) -> bool:
        try:
            send(channel, message)
        except OSError as error:
            # The driver that waits for outcomes that did not arrive reads the notes.
            _log.info("the driver cannot be told: %r", error)
            return False
        return True

    def _next_pack(self, channel: MessageChannel) -> HandedPack | None:
        """None: the driver has given the task up, or is gone."""
        try:
            handed: HandedPack = receive(channel)
        except OSError as error:
            _log.info("the driver hands nothing over any more: %r", error)
            return None
        return handed


def send(channel: MessageChannel, message: object) -> None:
    channel.send(pickle.dumps(message, pickle.HIGHEST_PROTOCOL))


def receive(channel: MessageChannel) -> Any:
    """Wait for a message. Raises OSError."""
    return pickle.loads(channel.receive())  # noqa: S301 - both ends know the key
