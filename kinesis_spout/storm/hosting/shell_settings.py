"""The settings that shell bolts and shell spouts share, and what their components get in the hand-shake.

The keys are Storm's. Source: Storm's ``TopologyContext.toJSONString``, ``Grouping`` of its ``storm.thrift``,
and which keys pystorm and streamparse read.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.storm.components.given import TaskContext
from kinesis_spout.storm.components.tuples import OutputFields, Stream, are_field_names, declared_streams
from kinesis_spout.storm.hosting.processes.child_process import ChildSettings, check_command, find_resources
from kinesis_spout.storm.hosting.processes.children import ChildKey
from kinesis_spout.storm.multilang.component import SERIALIZER_VARIABLE
from kinesis_spout.storm.multilang.frames import CODECS, Codec, UnsendableValue
from kinesis_spout.storm.running.program import SHELL_SPOUT

MESSAGE_TIMEOUT: Final = "topology.message.timeout.secs"
SUBPROCESS_TIMEOUT: Final = "topology.subprocess.timeout.secs"
MAX_PENDING: Final = "topology.shellbolt.max.pending"
TICK_EVERY: Final = "topology.tick.tuple.freq.secs"
DEFAULT_TIMEOUT_SECONDS: Final = 30.0
_MOST_TIMEOUT_SECONDS: Final = 24 * 60 * 60


class ShellSettings:
    """What shell bolts and shell spouts both take. InvalidConfig: a setting is not allowed."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        fields: Sequence[str],
        streams: OutputFields | None,
        serializer: str,
        timeout_seconds: float,
        environment: Mapping[str, str] | None,
        resources: str | os.PathLike[str] | None,
    ) -> None:
        is_list = isinstance(command, Sequence) and not isinstance(command, str)
        if not (is_list and command and command[0] and all(map(_is_passed_on, command))):
            raise InvalidConfig(
                f'expected a command in words, as in ["python3", "split.py"], got {command!r}'
            )
        if not are_field_names(fields):
            raise InvalidConfig(f'expected the fields in a list, as in ["word", "count"], got {fields!r}')
        _check_environment({} if environment is None else environment)
        if serializer not in CODECS:
            raise InvalidConfig(f"expected a serializer of {', '.join(CODECS)}, got {serializer!r}")
        if not isinstance(timeout_seconds, (int, float)) or not 0 < timeout_seconds <= _MOST_TIMEOUT_SECONDS:
            raise InvalidConfig(
                f"expected timeout_seconds above 0, and {_MOST_TIMEOUT_SECONDS} (a day) at most, got "
                f"{timeout_seconds!r}"
            )
        if fields and streams is not None:
            raise InvalidConfig("expected fields, or streams with the fields of each, got both")
        self.command = tuple(command)
        self.output: OutputFields = tuple(fields) if streams is None else streams
        self.serializer = serializer
        self.timeout_seconds = timeout_seconds
        # Our own library for components reads it; others have an argument for it, or none.
        self._environment = {SERIALIZER_VARIABLE: serializer, **(environment or {})}
        self._resources = None if resources is None else os.fspath(resources)

    def child_settings(self) -> ChildSettings:
        """Find what it needs on this machine. InvalidConfig: something is not here."""
        settings = ChildSettings(
            command=self.command, resources=self._resources, environment=self._environment
        )
        check_command(settings, None if self._resources is None else str(find_resources(self._resources)))
        return settings

    def handshake(
        self, conf: Mapping[str, Any], context: TaskContext, own: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Configuration and context as a component sees them. Values that no frame can carry are left out.

        ``own`` is set for this component alone; None there leaves a name out.
        """
        told = {"topology.name": context.topology, "topology.debug": False, **conf, **own}
        told[SUBPROCESS_TIMEOUT] = self.timeout_seconds
        sendable = {
            name: value
            for name, value in told.items()
            if value is not None and _is_sendable(name, value, CODECS[self.serializer])
        }
        return sendable, _context(context, declared_streams(context.component, self.output))

    @staticmethod
    def key(conf: Mapping[str, Any], context: TaskContext) -> ChildKey:
        return ChildKey(
            topology=context.topology,
            run=str(conf.get("storm.id", "")),
            spout=str(conf.get(SHELL_SPOUT, "")),
            component=context.component,
            task=context.task,
        )


def _is_passed_on(text: object) -> bool:
    return isinstance(text, str) and "\0" not in text


def _check_environment(environment: object) -> None:
    """The message has no values: one can be a secret."""
    if not isinstance(environment, Mapping):
        raise InvalidConfig(f"expected an environment by names, got {type(environment).__name__}")
    for name, value in environment.items():
        if not (_is_passed_on(name) and name and "=" not in name and _is_passed_on(value)):
            raise InvalidConfig(
                f"environment: expected names without = and values that are text, got {type(value).__name__} "
                f"for {name!r}"
            )


def _context(context: TaskContext, streams: Mapping[str, Stream]) -> dict[str, Any]:
    tasks = {str(task): component for component, every in context.tasks.items() for task in every}
    return {
        "taskid": context.task,
        "componentid": context.component,
        "task->component": tasks or {str(context.task): context.component},
        "streams": list(streams),
        "stream->outputfields": {name: list(stream.fields) for name, stream in streams.items()},
        "stream->target->grouping": {
            stream: {target: _grouping(context, (context.component, stream, target)) for target in targets}
            for stream, targets in context.targets.items()
        },
        "source->stream->fields": {
            source: {stream: list(fields) for stream, fields in of_source.items()}
            for source, of_source in context.sources.items()
        },
        "source->stream->grouping": {
            source: {stream: _grouping(context, (source, stream, context.component)) for stream in of_source}
            for source, of_source in context.sources.items()
        },
    }


def _grouping(context: TaskContext, subscription: tuple[str, str, str]) -> dict[str, Any]:
    """In Storm's words: to Storm, ``global`` is grouping by no field, and shuffle spreads."""
    name, fields = context.groupings[subscription]
    if name == "rebalance":
        return {"type": "SHUFFLE"}
    if name in ("fields", "global"):
        return {"type": "FIELDS", "fields": list(fields)}
    return {"type": "CUSTOM_SERIALIZED" if name in ("partial_key", "custom") else name.upper()}


def _is_sendable(name: str, value: object, codec: Codec) -> bool:
    try:
        codec.encode({name: value}, "")
    except UnsendableValue:
        return False
    return True
