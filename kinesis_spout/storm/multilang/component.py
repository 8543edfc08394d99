"""The common part of bolts and spouts: the hand-shake, what they say, and how they end."""

import logging
import os
import sys
import traceback
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.storm.multilang.channel import Channel, HostGone, take_standard_pipes
from kinesis_spout.storm.multilang.frames import CODECS, Codec, writable_text
from kinesis_spout.storm.multilang.protocol import (
    Emit,
    Error,
    Handshake,
    Log,
    Message,
    Metrics,
    NotOfTheProtocol,
    Pid,
)

SERIALIZER_VARIABLE: Final = "MULTILANG_SERIALIZER"
"""The environment variable that names the serializer, unless ``run`` gets one."""

TRACE, DEBUG, INFO, WARN, ERROR = range(5)

_MAX_LINES: Final = 1_000


class CannotContinue(Exception):  # noqa: N818 - the name says what happens
    """Raise it in a method when the component cannot continue. The host gets the message; the process ends."""


class HostLog(logging.Handler):
    """A handler of ``logging`` that sends lines to the host's log. Mutable; thread-safe.

    Any thread can log, but only the component's own thread talks to the host, and a spout talks only when it
    is asked. So lines wait here until the component sends them. When there are too many, the oldest are
    dropped, and counted.
    """

    def __init__(self, level: int = logging.NOTSET) -> None:
        super().__init__(level)
        self._lines: deque[Log] = deque()
        self._dropped = 0

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = Log(msg=writable_text(self.format(record)), level=_host_level(record.levelno))
        except Exception:  # noqa: BLE001 - what `logging` asks of every handler
            self.handleError(record)
            return
        if len(self._lines) >= _MAX_LINES:
            self._lines.popleft()
            self._dropped += 1
        self._lines.append(line)

    def taken(self) -> list[Log]:
        if not self._lines:
            return []
        self.acquire()
        try:
            lines, dropped = list(self._lines), self._dropped
            self._lines.clear()
            self._dropped = 0
        finally:
            self.release()
        if dropped:
            lines.insert(
                0, Log(msg=f"{dropped} lines of the log were dropped here: too many waited", level=WARN)
            )
        return lines


def _host_level(level: int) -> int:
    by_level = ((logging.ERROR, ERROR), (logging.WARNING, WARN), (logging.INFO, INFO), (logging.DEBUG, DEBUG))
    return next((ours for least, ours in by_level if level >= least), TRACE)


class Component(ABC):
    """A bolt or a spout in its own process; use ``Bolt``, ``BasicBolt`` or ``Spout``. Mutable; one thread's.

    ``print`` is safe: from ``run`` on, standard output is standard error.
    """

    conf: dict[str, Any]
    """The topology's configuration, from the hand-shake on."""
    context: dict[str, Any]
    """The place of the component in the topology: ``taskid``, ``task->component`` and more, as Storm sends it."""
    host_log: HostLog
    """From the hand-shake on: a handler for ``logging``, from any thread, whose lines go to the host's log."""
    _channel: Channel | None = None

    # To be overridden

    def initialize(self, conf: dict[str, Any], context: dict[str, Any]) -> None:  # noqa: B027 - a hook
        """Get ready; called once, after the hand-shake. An error ends the process with exit code 1."""

    def close(self) -> None:  # noqa: B027 - a hook
        """Release what is held; called once, when the host has ended the input, or an error ends the process."""

    # To be called

    def run(self, serializer: str | None = None) -> None:
        """Talk to the host over standard input and output, until the host ends the input.

        Args:
            serializer: "json" or "msgpack". Unless given, that of ``MULTILANG_SERIALIZER``, or "json". It
                must be the host's.

        Raises:
            InvalidConfig: there is no such serializer.
            NotOfTheProtocol: the host sent a message that is not of the protocol.
            SystemExit: with code 1, when the component gave up; standard error says why.
        """
        codec = codec_named(serializer)
        try:
            self.converse(Channel(codec, take_standard_pipes()))
        except CannotContinue as reason:
            sys.stderr.write(f"error: {reason}\n")
            raise SystemExit(1) from reason

    def converse(self, channel: Channel) -> None:
        """Talk to the host over a channel, until its end. Raises like ``run``, and ``CannotContinue``."""
        self._channel, self.host_log = channel, HostLog()
        try:
            self._shake_hands(channel)
            try:
                self._initialize()
                while True:
                    self._answer(channel.read())
            finally:
                self.close()
                with suppress(HostGone):
                    channel.flush()
        except HostGone:
            return

    def end_input(self) -> None:
        """Do as if the host had ended the input now; for signal handlers. Before ``run`` it ends the process."""
        if self._channel is None:
            raise SystemExit(0)
        self._channel.end_input()

    @property
    def task_id(self) -> int:
        """The id of this task, from the hand-shake on."""
        return int(self.context["taskid"])

    @property
    def component_id(self) -> str:
        """The name of this component in the topology, from the hand-shake on."""
        named = self.context.get("componentid")
        by_task = self.context.get("task->component") or {}
        return str(named if named is not None else by_task.get(str(self.context.get("taskid")), ""))

    def log(self, message: str, level: int = INFO) -> None:
        """Write a line to the host's log, at once: 0 trace, 1 debug, 2 info, 3 warn, 4 error."""
        self._send(Log(msg=writable_text(message), level=level))
        self._open_channel.flush()

    def error(self, message: str) -> None:
        """Report an error to the host, which shows it. The component continues."""
        self._send(Error(msg=writable_text(message)))

    def metrics(self, name: str, value: Any) -> None:
        """Update the metric of this name, which the host must know."""
        self._send(Metrics(name=name, params=value))

    # For bolts and spouts

    @abstractmethod
    def _answer(self, message: Message) -> None:
        """Do what the host says."""

    def _emit(self, emitted: Emit) -> tuple[int, ...]:
        self._send(emitted)
        if emitted.wants_task_ids:
            return self._open_channel.read_task_ids()
        return () if emitted.task is None or not emitted.need_task_ids else (emitted.task,)

    def _send(self, message: Message) -> None:
        self._open_channel.send(message)

    def _say_logged(self) -> None:
        for line in self.host_log.taken():
            self._send(line)

    @property
    def _open_channel(self) -> Channel:
        if self._channel is None:
            raise RuntimeError("expected a running component, got a call before `run`: there is no host yet")
        return self._channel

    def _shake_hands(self, channel: Channel) -> None:
        message = channel.read()
        if not isinstance(message, Handshake):
            raise NotOfTheProtocol(f"expected the hand-shake first, got {type(message).__name__}")
        self.conf, self.context = message.conf, message.context
        channel.component = self.component_id
        pid = os.getpid()
        Path(message.pid_dir, str(pid)).touch()
        channel.greet(Pid(pid=pid))

    def _initialize(self) -> None:
        try:
            self.initialize(self.conf, self.context)
        except Exception as error:
            self._tell(error)
            self._open_channel.flush()
            raise

    def _tell(self, error: Exception) -> None:
        self._say_logged()
        self.error(str(error) if isinstance(error, CannotContinue) else _raised_text(error))


def codec_named(serializer: str | None) -> Codec:
    """Find a codec by its name, or by the environment's, or JSON. InvalidConfig: there is no such codec."""
    name = serializer or os.environ.get(SERIALIZER_VARIABLE) or "json"
    if name not in CODECS:
        raise InvalidConfig(
            f"serializer: expected {' or '.join(CODECS)}, got {name!r} (an argument, or {SERIALIZER_VARIABLE})"
        )
    return CODECS[name]


def _raised_text(error: BaseException) -> str:
    return "".join(traceback.format_exception(error)).rstrip()


def values_of(values: Sequence[Any]) -> list[Any]:
    """The values of a tuple as a list. TypeError: they are no sequence, or one text."""
    if isinstance(values, (str, bytes)) or not isinstance(values, Sequence):
        raise TypeError(
            f"expected the values of a tuple as a list or tuple, got {type(values).__name__}: put it into a list"
        )
    return list(values)
