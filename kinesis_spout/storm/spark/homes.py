"""Where tasks live that have something on a machine: the driver knows it, and tells whoever asks.

Spark runs a task on any machine, another one in each micro-batch. What a task has on a machine, such as the
process of a shell bolt, stays there: the first machine that asks for a task becomes its home, and whoever runs it
elsewhere is sent there. When a home cannot be reached any more, the machine that says so first is the next one.

Both ends prove that they know a key, which is made anew for each application and travels with Spark's tasks.
"""

import logging
import secrets
import socket
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import msgspec

from kinesis_spout.processes.keyed_connections import KeyedServer, Machine, connect
from kinesis_spout.processes.message_channel import MessageChannel

if TYPE_CHECKING:
    from pyspark import SparkContext

_IDLE_SECONDS: Final = 600.0
"""After so long without a question a connection is ended. Who asks then connects again."""
_ANSWER_SECONDS: Final = 20.0
_MOST_BYTES: Final = 64 * 1024
_KEY_BYTES: Final = 32

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class HomesAddress:
    """Where the driver answers; travels to the executors. No msgspec type: no encoder writes the key by chance."""

    host: str
    port: int
    key: bytes = field(repr=False)


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """Where a task lives, asked by a machine that would be its home."""

    task: str
    """Also tells one run of a topology from another."""
    name: str
    """The task, for the log."""
    asking: Machine
    lost: Machine | None = None
    """A home of the task that the asking machine could not reach."""


class Homes:
    """Answers on the driver. Thread-safe; on daemon threads.

    Args:
        listen_at: the address to listen at.
        host: the one that executors reach it by.
    """

    def __init__(self, listen_at: str, host: str) -> None:
        self._lock = threading.Lock()
        self._homes: dict[str, Machine] = {}
        key = secrets.token_bytes(_KEY_BYTES)
        self._server = KeyedServer(listen_at, key, self._serve, "kinesis-spout-homes")
        self.address = HomesAddress(host=host, port=self._server.port, key=key)

    def answer(self, question: Question) -> Machine:
        with self._lock:
            home = self._homes.get(question.task)
            if home is None:
                home = self._homes[question.task] = question.asking
            elif home == question.lost:
                self._homes[question.task] = question.asking
                _log.warning(
                    "%s: %s:%d, where its process was, cannot be reached any more; a new process starts on %s, "
                    "and what the old one remembered is lost",
                    question.name,
                    home.host,
                    home.port,
                    question.asking.host,
                )
                home = question.asking
            return home

    def close(self) -> None:
        self._server.close()

    def _serve(self, connected: socket.socket) -> None:
        channel = MessageChannel(connected, wait_seconds=_IDLE_SECONDS)
        while True:
            question = _questions.decode(channel.receive(_MOST_BYTES))
            channel.send(_encoder.encode(self.answer(question)))


class HomesClient:
    """Asks the driver. Mutable; one thread's. Connects when it is first needed, and again when that was lost."""

    def __init__(self, address: HomesAddress) -> None:
        self.address = address
        self._connected: socket.socket | None = None

    def ask(self, question: Question) -> Machine:
        """Ask where a task lives. OSError: the driver cannot be reached."""
        is_new = self._connected is None
        try:
            channel = MessageChannel(self._connection(), wait_seconds=_ANSWER_SECONDS)
            channel.send(_encoder.encode(question))
            return _machines.decode(channel.receive(_MOST_BYTES))
        except OSError:
            self.close()
            if is_new:
                raise
        return self.ask(question)

    def host_here(self) -> str:
        """Name this machine by the address by which it reaches the driver. Raises as ``ask``."""
        return str(self._connection().getsockname()[0])

    def close(self) -> None:
        if self._connected is not None:
            self._connected.close()
            self._connected = None

    def _connection(self) -> socket.socket:
        if self._connected is None:
            address = self.address
            try:
                self._connected = connect(Machine(address.host, address.port), address.key)
            except OSError as error:
                raise ConnectionError(
                    f"the driver at {address.host}:{address.port}, which knows on which machine the processes of "
                    f"shell bolts are, cannot be reached ({error!r}): expected spark.driver.host to be an "
                    "address that executors reach, at any port"
                ) from error
        return self._connected


def homes_of(context: "SparkContext") -> Homes | None:
    """Give the homes of an application; None where all of it is one machine."""
    master = context.master or ""
    if master == "local" or master.startswith("local["):
        return None
    with _lock:
        if context.applicationId not in _of_application:
            for earlier in _of_application.values():
                earlier.close()
            _of_application.clear()
            conf = context.getConf()
            host = conf.get("spark.driver.host")
            assert host is not None  # Spark sets it
            listen_at = conf.get("spark.driver.bindAddress") or host
            # Spark writes IPv6 addresses as URLs have them.
            _of_application[context.applicationId] = Homes(listen_at.strip("[]"), host.strip("[]"))
        return _of_application[context.applicationId]


_encoder: Final = msgspec.msgpack.Encoder()
_questions: Final = msgspec.msgpack.Decoder(Question)
_machines: Final = msgspec.msgpack.Decoder(Machine)
_lock: Final = threading.Lock()
_of_application: Final[dict[str, Homes]] = {}
