"""Speaking with a child for as long as it is leased: messages out, messages in, and when it has failed.

The states are ``conversation``'s. Input is read and parsed here; reports and invalid output are dealt
with here, so that the caller hears of tuples only.
"""

from dataclasses import dataclass, replace
from typing import Any, Final

from kinesis_spout.model.clock import Clock
from kinesis_spout.storm.hosting.component_reports import ComponentFailed, ComponentReports
from kinesis_spout.storm.hosting.pipes import ChildPipes, PipesHere
from kinesis_spout.storm.hosting.processes.child_process import ChildSettings
from kinesis_spout.storm.hosting.processes.children import ChildKey, Lease, NotYet, OwnChildren
from kinesis_spout.storm.hosting.processes.hosted_children import HostedChildren
from kinesis_spout.storm.multilang.conversation import FAILED, Table, TalkEvent, TalkState, said
from kinesis_spout.storm.multilang.frames import Codec
from kinesis_spout.storm.multilang.protocol import (
    Ack,
    Emit,
    Error,
    Fail,
    Handshake,
    InvalidOutput,
    Log,
    Message,
    Metrics,
    NotOfTheProtocol,
    Pid,
    TaskIds,
    invalid_output,
    parse,
)

MAX_INVALID: Final = 1_000
"""After more pieces of invalid output in a row the child is taken not to speak multilang."""

_OFTEN: Final[dict[type, TalkEvent]] = {Ack: TalkEvent.ACK, Emit: TalkEvent.EMIT, Fail: TalkEvent.FAIL}
_REPORTS: Final = frozenset({Log, Error, Metrics, Pid})
_NO_ARRAYS: Final = "expected a command; an array (task ids) is what only hosts send"
_CLOSED_SECONDS: Final = 1.0
"""The time for which a child that has closed its input may still write output."""


class ChildFailed(Exception):  # noqa: N818 - the names of our errors say what happened; it never leaves this room
    """The child has died, hangs, or broke the protocol. It must be discarded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellComponent:
    """The component of one task: who owns its child, how to speak with that, and where it reports to."""

    key: ChildKey
    child: ChildSettings
    children: OwnChildren | HostedChildren
    table: Table
    codec: Codec
    timeout_seconds: float
    """The longest time for the hand-shake, and for its silence."""
    conf: dict[str, Any]
    context: dict[str, Any]
    """These two are sent to it in the hand-shake."""
    reports: ComponentReports
    clock: Clock

    def lease(self, wait_seconds: float) -> "Talk | NotYet":
        """InvalidConfig: its command cannot be started. OSError: the host process cannot be reached."""
        lease = self.children.lease(self.key, self.child, wait_seconds)
        return lease if isinstance(lease, NotYet) else Talk(lease, self)

    def discard(self, talk: "Talk", error: ChildFailed, *, is_proven: bool) -> ComponentFailed:
        """End a child that failed, and report it."""
        words = self.children.discard(talk.lease, is_proven=is_proven)
        failed = ComponentFailed(f"{self.key} (pid {self.reports.pid}) {error}; {words}")
        self.reports.restarted(failed)
        return failed


class Talk:
    """One lease's conversation. Mutable; one thread's."""

    def __init__(self, lease: Lease, component: ShellComponent) -> None:
        self.lease = lease
        self._component = component
        self._table = table = component.table
        # A message that changes nothing for one that is ready need not be looked up.
        self._quiet = frozenset(
            kind for kind, event in _OFTEN.items() if table[TalkState.READY, event] is TalkState.READY
        )
        self._state = TalkState.STARTING if lease.is_fresh else TalkState.READY
        self._decoder = component.codec.decoder()
        self.pipes = ChildPipes(lease.distant or PipesHere(lease.stdin, lease.stdout))
        self._reports = component.reports
        self._clock = component.clock
        self._timeout_seconds = component.timeout_seconds
        self._invalid_in_a_row = 0
        self._last_invalid = ""
        self._is_over = False
        self._what = ""
        self._early: list[Message] = []
        self._deaf_at: float | None = None
        self.heard_at = self._clock.monotonic()
        """When a message came last, or one was expected since."""
        self._reports.pid = lease.pid

    @property
    def state(self) -> TalkState:
        return self._state

    def shake_hands(self) -> None:
        """Shake hands with a fresh child. Messages right behind its answer are for ``hear``.

        ChildFailed: no answer in time, or another one.
        """
        component = self._component
        handshake = Handshake(conf=component.conf, context=component.context, pid_dir=self.lease.pid_folder)
        self.pipes.put(self.encode(handshake))
        self.expect_answer()
        while self._state is TalkState.STARTING:
            self._early = self.hear(self._timeout_seconds)
            self.check_silence("it did not answer the hand-shake")
        component.children.greeted(self.lease)

    def encode(self, message: Message) -> bytes:
        """Write a message as a frame, for ``put``. UnsendableValue: one of its values cannot be sent."""
        return self._component.codec.encode(message, self._component.key.component)

    def say(self, message: Message) -> None:
        if self._state in FAILED:
            return
        self._happened(TalkEvent.TASK_IDS_SENT if isinstance(message, TaskIds) else TalkEvent.COMMAND_SENT)
        self.pipes.put(self.encode(message))

    @property
    def is_inside_a_frame(self) -> bool:
        return self.pipes.is_inside_a_frame or self._decoder.rest() is not None

    def expect_answer(self) -> None:
        self.heard_at = self._clock.monotonic()

    def check_silence(self, what: str) -> None:
        now = self._clock.monotonic()
        if self.pipes.is_input_closed:
            self._deaf_at = self._deaf_at or now
            if now - self._deaf_at >= _CLOSED_SECONDS:
                self._happened(TalkEvent.ENDED, "it has closed its input")
        silent = now - self.heard_at
        if silent >= self._timeout_seconds:
            wrote = (
                f"; it wrote what is no message: {self._last_invalid!r:.300}"
                if self._invalid_in_a_row
                else ""
            )
            self._happened(
                TalkEvent.TIMED_OUT, f"{what} for {self._timeout_seconds:g} s (timeout_seconds){wrote}"
            )

    def nonsense(self, what: str) -> None:
        self._happened(TalkEvent.NONSENSE, what)

    def hear(self, wait_seconds: float) -> list[Message]:
        """Send what waits, read for this long at most; give the messages about tuples.

        ChildFailed: it ended, or broke the protocol. The call before gave what came before that.
        """
        if self._early:
            early, self._early = self._early, []
            return early
        if self._is_over or self._state in FAILED:
            self._happened(TalkEvent.ENDED, "its output has ended")
        data = self.pipes.pull(wait_seconds)
        if data is None:
            self._is_over = True
            rest = self._decoder.rest()
            if rest is not None:
                self._reports.invalid(rest)
            self._happened(TalkEvent.ENDED, "its output has ended")
        return self._messages(data) if data else []

    def _messages(self, data: bytes) -> list[Message]:
        found: list[Message] = []
        quiet = self._quiet
        is_heard = False
        try:
            for raw in self._decoder.feed(data):
                message = self._parsed(raw)
                if message is None:
                    continue
                is_heard = True
                kind = type(message)
                if kind not in quiet or self._state is not TalkState.READY:
                    self._happened(said(message), f"it said what it may not say now: {raw!r:.300}")
                if kind in _REPORTS:
                    self._reports.take(message)
                else:
                    found.append(message)
        except ChildFailed:
            if not found:
                raise
            # Its earlier messages count; the state is final, so that the next call fails.
        if is_heard:
            self._invalid_in_a_row = 0
            self.heard_at = self._clock.monotonic()
        return found

    def _parsed(self, raw: Any) -> Message | None:
        """None: invalid output, which is dealt with."""
        if type(raw) is dict and raw.get("command") == "ack" and type(raw.get("id")) is str:
            return Ack(id=raw["id"])  # the most of all messages
        if type(raw) is InvalidOutput:
            self._put_aside(raw)
            return None
        if type(raw) is list:
            self._put_aside(_undamaged(raw, _NO_ARRAYS))
            return None
        try:
            return parse(raw)
        except NotOfTheProtocol as error:
            if error.is_about_tuples:
                self.nonsense(f"it said of a tuple what cannot be read: {error}")
            self._put_aside(_undamaged(raw, error.expected))
            return None

    def _put_aside(self, invalid: InvalidOutput) -> None:
        if invalid.may_be_emit:
            self.nonsense(
                f"it wrote what may have been an emit, and cannot be read ({invalid.reason}): "
                f"{invalid.text!r:.300}"
            )
        self._happened(TalkEvent.INVALID_OUTPUT)
        self._reports.invalid(invalid)
        self._last_invalid = invalid.text
        self._invalid_in_a_row += 1
        if self._invalid_in_a_row > MAX_INVALID:
            self.nonsense(
                f"it wrote {MAX_INVALID} times what is no message, and none between; the last was "
                f"{invalid.text!r:.300}"
            )

    def _happened(self, event: TalkEvent, what: str = "") -> None:
        if self._state not in FAILED:
            self._state = self._table[self._state, event]
            self._what = what
        if self._state in FAILED:
            raise ChildFailed(f"{self._state.name.lower()}: {self._what}")


def _undamaged(raw: object, expected: str) -> InvalidOutput:
    return replace(invalid_output(repr(raw).encode(errors="replace"), expected), may_be_emit=False)
