"""Placement of shell processes on machines, by task: the driver knows it, and answers workers.

Spark runs a task on any machine, another one in each micro-batch. The process of a shell bolt's task stays on
one: the first machine that asks for a task gets it, and a worker that runs the task elsewhere sends its
tuples there. When that machine is out of reach, the first worker that reports it gets the process on its own
machine.

Both ends prove that they know a key, which is new for each application and travels with Spark's tasks.
"""

import logging
import secrets
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kinesis_spout.processes.application_server import ApplicationServer, is_local
from kinesis_spout.processes.keyed_connections import KeyedServer, Machine, connect
from kinesis_spout.processes.message_channel import MessageChannel
from kinesis_spout.storm.hosting.processes.host_socket import (
    AskMachine,
    OnMachine,
    receive_answer,
    receive_request,
    send,
)

if TYPE_CHECKING:
    from pyspark import SparkContext

    from kinesis_spout.storm.hosting.processes.children import ChildKey

_ANSWER_SECONDS: Final = 20.0
_KEY_BYTES: Final = 32

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementAddress:
    """The driver's address; travels to the executors. No msgspec type: no encoder writes the key by chance."""

    host: str
    port: int
    key: bytes = field(repr=False)

    def ask(self, question: AskMachine) -> Machine:
        """Ask which machine a child is on. OSError: the driver cannot be reached."""
        with self._connected() as channel:
            send(channel, question)
            answer, _ = receive_answer(channel)
        assert isinstance(answer, OnMachine)
        return answer.machine

    def host_here(self) -> str:
        """Name this machine by the address by which it reaches the driver. Raises as ``ask``."""
        with self._connected() as channel:
            return channel.own_host

    def _connected(self) -> MessageChannel:
        try:
            channel = connect(Machine(self.host, self.port), self.key)
        except OSError as error:
            raise ConnectionError(
                f"the driver at {self.host}:{self.port}, which knows on which machine the processes of shell "
                f"bolts are, cannot be reached ({error!r}): expected spark.driver.host to be an address that "
                "executors reach, at any port"
            ) from error
        channel.set_timeout(_ANSWER_SECONDS)
        return channel


class Placement:
    """Answers on the driver. Thread-safe; on daemon threads. Executors reach it by the address ``host``."""

    def __init__(self, listen_at: str, host: str) -> None:
        self._lock = threading.Lock()
        self._machines: dict[ChildKey, Machine] = {}
        key = secrets.token_bytes(_KEY_BYTES)
        self._server = KeyedServer(listen_at, key, self._serve, "kinesis-spout-placement")
        self.address = PlacementAddress(host=host, port=self._server.port, key=key)

    def answer(self, question: AskMachine) -> Machine:
        key, asking = question.key, question.asking
        with self._lock:
            machine = self._machines.setdefault(key, asking)
            if machine != question.lost:
                return machine
            self._machines[key] = asking
        _log.warning(
            "%s: %s:%d, where its process was, cannot be reached any more; a new process starts on %s, "
            "and what the old one remembered is lost",
            key,
            machine.host,
            machine.port,
            asking.host,
        )
        return asking

    def close(self) -> None:
        self._server.close()

    def _serve(self, channel: MessageChannel) -> None:
        channel.set_timeout(_ANSWER_SECONDS)
        question = receive_request(channel)
        if isinstance(question, AskMachine):
            send(channel, OnMachine(machine=self.answer(question)))


def placement_of(context: "SparkContext") -> Placement | None:
    """None where all of the application is one machine."""
    return None if is_local(context) else _placements.of(context)


_placements: Final = ApplicationServer(Placement)
