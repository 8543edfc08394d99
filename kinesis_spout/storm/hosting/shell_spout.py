"""``ShellSpout``: a spout that is a component in another language."""

import os
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from math import inf
from typing import Any, Final, NamedTuple

from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.storm.components.given import SpoutOutputCollector, TaskContext
from kinesis_spout.storm.components.spout import Spout
from kinesis_spout.storm.components.tuples import OutputFields
from kinesis_spout.storm.hosting.processes.children import NotYet
from kinesis_spout.storm.hosting.shell_settings import DEFAULT_TIMEOUT_SECONDS, ShellSettings
from kinesis_spout.storm.hosting.talk import ChildFailed, ShellComponent, Talk
from kinesis_spout.storm.multilang.conversation import SPOUT, TalkState
from kinesis_spout.storm.multilang.frames import UnsendableValue
from kinesis_spout.storm.multilang.protocol import (
    DEFAULT_STREAM,
    Ack,
    Activate,
    Deactivate,
    Emit,
    Fail,
    Message,
    Next,
    TaskIds,
)

_LOOK_SECONDS: Final = 0.5


class SpoutMessage(NamedTuple):
    """The id under which we track a tuple of a shell spout. Hashable, whatever the component uses as an id."""

    process: int
    """The number of the process, among the spout's, that emitted it, from 1."""
    ack: bytes
    """The message that acks it, as the serializer writes it."""


class ShellSpout(Spout):
    """Runs a command that speaks Storm's multilang protocol, and asks it for tuples. Storm's class of this name.

    Its process belongs to the driver and ends with it. Every call waits for the component's answer, for
    ``timeout_seconds`` at most; so a component that blocks in ``next`` holds up the acks of all other spouts.

    A process that dies, hangs or breaks the protocol is started again with back-off; meanwhile there are no
    tuples. The new process knows nothing of the old one's tuples: they continue, but it does not learn their
    outcome, which is counted (``counts["unknown_to_process"]``). A spout that must not lose tuples keeps them
    where its next process finds them.

    A component that asks for the tasks of its tuples gets an empty list, as tasks are chosen later. A spout
    cannot emit to a task directly: such a tuple fails at once.

    Args:
        command: program and arguments, such as ``["node", "spout.js"]``.
        fields: the fields of its default stream.
        streams: its streams, if there are others. Either this or ``fields``.
        serializer: ``json``, the protocol's, or ``msgpack``, pystorm's.
        timeout_seconds: of the hand-shake, and of each answer; ``topology.subprocess.timeout.secs``.
        environment: variables over the driver's own.
        resources: the folder that the command runs in, or an archive of it; see ``find_resources``.

    Raises:
        InvalidConfig: a setting is not allowed.
    """

    timeout_seconds = inf  # its component's answers have one of their own

    def __init__(
        self,
        command: Sequence[str],
        *,
        fields: Sequence[str] = (),
        streams: OutputFields | None = None,
        serializer: str = "json",
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
        environment: Mapping[str, str] | None = None,
        resources: str | os.PathLike[str] | None = None,
    ) -> None:
        self._shell = ShellSettings(
            command=command,
            fields=fields,
            streams=streams,
            serializer=serializer,
            timeout_seconds=timeout_seconds,
            environment=environment,
            resources=resources,
        )
        self._component: ShellComponent | None = None
        self._talk: Talk | None = None

    def declare_output_fields(self) -> OutputFields:
        return self._shell.output

    def open(self, conf: Mapping[str, Any], context: TaskContext, collector: SpoutOutputCollector) -> None:
        """The process is started with the first call.

        Raises:
            InvalidConfig: the command, or the folder it runs in, is not on this machine.
        """
        super().open(conf, context, collector)
        self._component = component = self._shell.component(SPOUT, conf, context, collector)
        self._is_active = self._is_proven = False
        self._number = 0
        self._waiting: deque[Message] = deque()
        # Without a close no process is left behind.
        self._close = weakref.finalize(self, component.children.close)

    def next_tuple(self) -> None:
        self._command(Next())

    def activate(self) -> None:
        self._is_active = True
        self._command(Activate())

    def deactivate(self) -> None:
        self._is_active = False
        self._command(Deactivate())

    def ack(self, message_id: Any) -> None:
        self._tell(message_id, Ack)

    def fail(self, message_id: Any, reason: str) -> None:
        """Multilang has no word for the reason."""
        del reason
        self._tell(message_id, Fail)

    def close(self) -> None:
        self._talk = None
        if self._component is not None:
            self._close()

    def _command(self, command: Message) -> None:
        try:
            talk = self._talk or self._begin(command)
            if talk is not None:
                self._ask(talk, command)
                while self._waiting:
                    self._ask(talk, self._waiting.popleft())
        except ChildFailed as error:
            self._discard(error)

    def _tell(self, message_id: SpoutMessage, command: type[Ack] | type[Fail]) -> None:
        if self._talk is None or message_id.process != self._number:
            self._opened.reports.count("unknown_to_process")
            return
        (ack,) = self._opened.codec.decoder().feed(message_id.ack)
        told = command(id=ack["id"])
        if self._talk.state is TalkState.ANSWERING:  # a tuple was decided while it was emitted
            self._waiting.append(told)
        else:
            self._command(told)

    def _begin(self, command: Message) -> Talk | None:
        """None while it backs off."""
        talk = self._opened.lease(0)
        if isinstance(talk, NotYet):
            return None
        self._talk = talk
        self._number = talk.lease.number
        self._is_proven = False
        self._waiting.clear()
        talk.shake_hands()
        if self._is_active and not isinstance(command, Activate):
            self._ask(talk, Activate())
        return talk

    def _ask(self, talk: Talk, command: Message) -> None:
        timeout_seconds = self._shell.timeout_seconds
        talk.say(command)
        talk.expect_answer()
        clock = self._opened.clock
        until = clock.monotonic() + timeout_seconds
        while talk.state is TalkState.ANSWERING:
            for message in talk.hear(min(_LOOK_SECONDS, timeout_seconds)):
                self._take(talk, message)
            talk.check_silence("it did not end its answer with sync")
            if talk.state is TalkState.ANSWERING and clock.monotonic() >= until:
                talk.nonsense(
                    f"it went on talking, and did not end its answer with sync for {timeout_seconds:g} s "
                    "(timeout_seconds)"
                )
        self._is_proven = True

    def _take(self, talk: Talk, message: Message) -> None:
        if isinstance(message, Emit):
            self._emit(talk, message)
            if message.wants_task_ids:
                talk.say(TaskIds(()))
                talk.pipes.push()

    def _emit(self, talk: Talk, message: Emit) -> None:
        message_id = None
        if message.id is not None:
            try:
                message_id = SpoutMessage(self._number, talk.encode(Ack(id=message.id)))
            except UnsendableValue as error:
                talk.nonsense(f"it emitted a tuple with an id that cannot be said back: {error}")
        if message.task is not None:
            self._refuse(
                message,
                InvalidConfig(
                    f"{self._opened.key}: expected a tuple for the subscribers, got one for task {message.task}: "
                    "a spout cannot emit to a task here"
                ),
            )
            return
        try:
            self.collector.emit(message.values, message_id, message.stream or DEFAULT_STREAM)
        except InvalidConfig as error:
            self._refuse(message, error)

    def _refuse(self, message: Emit, error: InvalidConfig) -> None:
        self.collector.report_error(error)
        if message.id is not None:
            self._waiting.append(Fail(id=message.id))

    def _discard(self, error: ChildFailed) -> None:
        talk, self._talk = self._talk, None
        assert talk is not None
        self._opened.discard(talk, error, is_proven=self._is_proven)

    @property
    def _opened(self) -> ShellComponent:
        assert self._component is not None, "open comes first"
        return self._component
