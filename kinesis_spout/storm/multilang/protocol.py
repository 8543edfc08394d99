"""The messages of Storm's multilang protocol, both ways, as values.

    host to component   Handshake; to a bolt TupleIn (also heart-beats and ticks); to a spout Next, Ack, Fail,
                        Activate, Deactivate; to both TaskIds
    component to host   Pid; Emit, Ack, Fail, Log, Error, Metrics, Sync

``parse`` makes them of what a decoder of ``frames`` gives; a codec writes them as they are. Fields beyond the
protocol are ignored, as in Storm. Source: https://storm.apache.org/releases/current/Multilang-protocol.html

Output that is no message (a stray ``print``, half a message) is ``InvalidOutput``, most often harmless. Not
so a damaged ``emit``: its tuple is lost, and the component, which does not know, acks what the tuple came
from. So invalid output says whether an emit can be in it: whether it has a word that no other message has. An
anchored emit has two, of which damage at one place leaves one.
"""

import re
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from kinesis_spout.model.errors import KinesisSpoutError

DEFAULT_STREAM: Final = "default"
HEARTBEAT_STREAM: Final = "__heartbeat"
TICK_COMPONENT: Final = "__system"
TICK_STREAM: Final = "__tick"
SYSTEM_TASK: Final = -1


class NotOfTheProtocol(KinesisSpoutError, ValueError):  # noqa: N818 - the names of our errors say what happened
    """A decoded frame that is no message of the multilang protocol. Says what was expected, and what was got."""

    def __init__(self, expected: str, got: object = ...) -> None:
        super().__init__(expected if got is ... else f"{expected}, got {_shown(got)}")
        self.expected = expected
        """Only what was expected: the same for all errors of one kind."""
        self.is_about_tuples = type(got) is dict and _is_about_tuples(got)
        """It is, or can be, an emit, ack or fail that cannot be read: to ignore it would lose a tuple."""


class Handshake(msgspec.Struct, frozen=True, kw_only=True):
    """The first message to a component. It answers with ``Pid``."""

    conf: dict[str, Any]
    context: dict[str, Any]
    """The place of the component: ``taskid``, ``componentid``, ``task->component`` and more."""
    pid_dir: str = msgspec.field(name="pidDir")
    """A folder. The component makes an empty file there, named by its process id."""


class TupleIn(msgspec.Struct, frozen=True, kw_only=True):
    """A tuple for a bolt to process; also a heart-beat (answered with ``Sync``) and a tick."""

    id: str
    """Text, also where its characters are a number."""
    component: str | None = msgspec.field(name="comp", default=None)
    stream: str = DEFAULT_STREAM
    task: int = SYSTEM_TASK
    values: list[Any] = msgspec.field(name="tuple")

    @property
    def is_heartbeat(self) -> bool:
        return self.stream == HEARTBEAT_STREAM and self.task == SYSTEM_TASK

    @property
    def is_tick(self) -> bool:
        return self.stream == TICK_STREAM and self.component == TICK_COMPONENT


def heartbeat(tuple_id: str) -> TupleIn:
    return TupleIn(id=tuple_id, component=None, stream=HEARTBEAT_STREAM, task=SYSTEM_TASK, values=[])


def tick(tuple_id: str, every_seconds: int) -> TupleIn:
    return TupleIn(
        id=tuple_id, component=TICK_COMPONENT, stream=TICK_STREAM, task=SYSTEM_TASK, values=[every_seconds]
    )


class TaskIds(tuple[int, ...]):
    """The tasks that an ``Emit`` went to: the answer to one that asked for it. On the wire it is a bare array."""

    __slots__ = ()


class _Command(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="command"):
    pass


class Next(_Command, frozen=True, tag="next"):
    """Ask a spout for its next tuple. Like each command to a spout it is answered up to a ``Sync``."""


class Activate(_Command, frozen=True, tag="activate"):
    """Tell a spout that it may emit."""


class Deactivate(_Command, frozen=True, tag="deactivate"):
    """Tell a spout that it is not asked for tuples for a while."""


class Ack(_Command, frozen=True, tag="ack"):
    """From a bolt: this tuple is done. To a spout: the whole tree of its tuple is done."""

    id: Any
    """A bolt's is the text it was given; a spout's whatever JSON value it emitted."""


class Fail(_Command, frozen=True, tag="fail"):
    """From a bolt: this tuple failed. To a spout: something in the tree of its tuple failed or timed out."""

    id: Any


class Emit(_Command, frozen=True, tag="emit"):
    values: list[Any] = msgspec.field(name="tuple")
    id: Any = None
    """A spout's message id: any JSON value. None: not tracked."""
    stream: str | None = None
    """None: the default stream."""
    anchors: list[str] = []
    """Ids of the tuples that this one comes from; bolts only. ``parse`` makes a list of one bare id."""
    task: int | None = None
    """The task to send it to directly. None: the groupings decide."""
    need_task_ids: bool | None = True
    """False: no ``TaskIds`` in answer. A direct emit gets none either."""

    @property
    def wants_task_ids(self) -> bool:
        return self.task is None and self.need_task_ids is not False


class Log(_Command, frozen=True, tag="log"):
    msg: Any
    level: Any = 2
    """0 trace, 1 debug, 2 info, 3 warn, 4 error."""


class Error(_Command, frozen=True, tag="error"):
    msg: Any


class Metrics(_Command, frozen=True, tag="metrics"):
    name: str
    params: Any = None


class Sync(_Command, frozen=True, tag="sync"):
    """A spout's end of an answer; a bolt's answer to a heart-beat."""


class Pid(msgspec.Struct, frozen=True, kw_only=True):
    pid: int


FromHost = Handshake | TupleIn | TaskIds | Next | Activate | Deactivate | Ack | Fail
Message = FromHost | Emit | Log | Error | Metrics | Sync | Pid

_BY_COMMAND: Final[dict[str, type[_Command]]] = {
    str(kind.__struct_config__.tag): kind
    for kind in (Next, Activate, Deactivate, Ack, Fail, Emit, Log, Error, Metrics, Sync)
}
_BY_KEY: Final[dict[str, type[msgspec.Struct]]] = {"tuple": TupleIn, "pid": Pid, "pidDir": Handshake}


def parse(raw: object) -> Message:
    """Make a message of a decoded frame. NotOfTheProtocol: it is no message.

    Deviations from the protocol are accepted where Storm's host accepts them: one bare
    anchor, nulls for what is absent, task 0 for "no direct task", a log level that does not exist.
    """
    if type(raw) is dict:
        kind = _BY_COMMAND.get(str(raw["command"])) if "command" in raw else _kind_by_key(raw)
        if kind is None:
            raise NotOfTheProtocol(_EXPECTED, raw)
        if kind is Emit:
            raw = _with_emit_forms(raw)
        try:
            return msgspec.convert(raw, kind)  # type: ignore[return-value]  # each kind is one of Message
        except msgspec.ValidationError as error:
            raise NotOfTheProtocol(f"{kind.__name__.lower()}: {error}", raw) from error
    if type(raw) is list and all(type(task) is int for task in raw):
        return TaskIds(raw)
    raise NotOfTheProtocol(_EXPECTED, raw)


def log_level(message: Log) -> int:
    """The level of a log line, 0 (trace) to 4 (error). One that does not exist counts as 2, as in Storm."""
    level = message.level
    return level if type(level) is int and level in _LOG_LEVELS else 2


_LOG_LEVELS: Final = range(5)
_ABOUT_TUPLES: Final = frozenset({"emit", "ack", "fail"})
_OF_EMIT: Final = frozenset({"emit", "tuple", "anchors"})
"""These reveal a damaged emit."""
_COMMANDS: Final = ", ".join(_BY_COMMAND)
_EXPECTED: Final = (
    f"expected a command ({_COMMANDS}), a tuple, a pid, a hand-shake (with pidDir), or an array of task ids"
)
_SHOWN_CHARACTERS: Final = 300


def _is_about_tuples(raw: dict[str, Any]) -> bool:
    words = [*raw, *raw.values()]  # damage to MessagePack makes keys of values, and values of keys
    return str(raw.get("command")) in _ABOUT_TUPLES or any(
        type(word) is str and word in _OF_EMIT for word in words
    )


def _kind_by_key(raw: dict[str, Any]) -> type[msgspec.Struct] | None:
    return next((kind for key, kind in _BY_KEY.items() if key in raw), None)


def _with_emit_forms(raw: dict[str, Any]) -> dict[str, Any]:
    anchors = raw.get("anchors", _ABSENT)
    if type(anchors) is not list and anchors is not _ABSENT:
        raw = {**raw, "anchors": [] if anchors is None else [anchors]}
    return {**raw, "task": None} if raw.get("task") == 0 else raw


_ABSENT: Final = object()


def _shown(raw: object) -> str:
    text = repr(raw)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]} …"


MAX_SHOWN_CHARACTERS: Final = 2000
"""The most that is shown of one piece of invalid output; the rest is counted."""

_WORD_OF_EMIT: Final = re.compile(rb'"emit"|"anchors"|[\xa4\x04]emit|[\xa7\x07]anchors')
"""As JSON writes them, and as MessagePack does: as its shortest text, as longer text or as bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InvalidOutput:
    """Bytes of a component that are no message, made readable."""

    text: str
    """The bytes as text; those that are not UTF-8 are replaced. At most ``MAX_SHOWN_CHARACTERS`` of it."""
    reason: str
    """The reason why it is none: what was expected."""
    may_be_emit: bool = False
    """It can have been an emit, whose tuple is lost with it."""


def invalid_output(data: bytes, reason: str) -> InvalidOutput:
    text = data[: 4 * MAX_SHOWN_CHARACTERS].decode(errors="replace")
    if len(text) > MAX_SHOWN_CHARACTERS or len(data) > 4 * MAX_SHOWN_CHARACTERS:
        text = f"{text[:MAX_SHOWN_CHARACTERS]} … ({len(data)} bytes in all)"
    may_be_emit = _WORD_OF_EMIT.search(data) is not None
    return InvalidOutput(text=text, reason=reason, may_be_emit=may_be_emit)
