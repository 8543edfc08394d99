"""The settings that shell bolts and shell spouts share, and what their components get in the hand-shake.

The keys are Storm's. Source: Storm's ``TopologyContext.toJSONString``, ``Grouping`` of its ``storm.thrift``,
and which keys pystorm and streamparse read.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kinesis_spout.model.clock import SystemClock
from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.storm.components.given import OutputCollector, SpoutOutputCollector, TaskContext
from kinesis_spout.storm.components.tuples import OutputFields, Stream, are_field_names, declared_streams
from kinesis_spout.storm.hosting.component_reports import ComponentReports
from kinesis_spout.storm.hosting.processes.child_process import ChildSettings, check_command, find_resources
from kinesis_spout.storm.hosting.processes.children import ChildKey, OwnChildren
from kinesis_spout.storm.hosting.processes.hosted_children import HostedChildren
from kinesis_spout.storm.hosting.talk import ShellComponent
from kinesis_spout.storm.multilang.component import SERIALIZER_VARIABLE
from kinesis_spout.storm.multilang.conversation import Table
from kinesis_spout.storm.multilang.frames import CODECS, Codec, UnsendableValue
from kinesis_spout.storm.running.program import SHELL_PLACEMENT, SHELL_SPOUT

MESSAGE_TIMEOUT: Final = "topology.message.timeout.secs"
SUBPROCESS_TIMEOUT: Final = "topology.subprocess.timeout.secs"
MAX_PENDING: Final = "topology.shellbolt.max.pending"
TICK_EVERY: Final = "topology.tick.tuple.freq.secs"
DEFAULT_TIMEOUT_SECONDS: Final = 30.0
_MOST_TIMEOUT_SECONDS: Final = 24 * 60 * 60


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellSettings:
    """Settings of shell bolts and shell spouts, as they were when given. InvalidConfig: one is not allowed."""

    command: Sequence[str]
    fields: Sequence[str]
    streams: OutputFields | None
    serializer: str
    timeout_seconds: float
    environment: Mapping[str, str] | None = field(repr=False)  # a value can be a secret
    resources: str | os.PathLike[str] | None

    def __post_init__(self) -> None:
        command, seconds = self.command, self.timeout_seconds
        is_list = isinstance(command, Sequence) and not isinstance(command, str)
        if not (is_list and command and command[0] and all(map(_is_passed_on, command))):
            raise InvalidConfig(
                f'expected a command in words, as in ["python3", "split.py"], got {command!r}'
            )
        if not are_field_names(self.fields):
            raise InvalidConfig(
                f'expected the fields in a list, as in ["word", "count"], got {self.fields!r}'
            )
        _check_environment({} if self.environment is None else self.environment)
        if self.serializer not in CODECS:
            raise InvalidConfig(f"expected a serializer of {', '.join(CODECS)}, got {self.serializer!r}")
        if not isinstance(seconds, (int, float)) or not 0 < seconds <= _MOST_TIMEOUT_SECONDS:
            raise InvalidConfig(
                f"expected timeout_seconds above 0, and {_MOST_TIMEOUT_SECONDS} (a day) at most, got {seconds!r}"
            )
        if self.fields and self.streams is not None:
            raise InvalidConfig("expected fields, or streams with the fields of each, got both")
        # The caller may change its own for the next component, before the topology is built.
        object.__setattr__(self, "command", tuple(command))
        object.__setattr__(self, "fields", tuple(self.fields))
        object.__setattr__(self, "environment", dict(self.environment or {}))

    @property
    def output(self) -> OutputFields:
        return tuple(self.fields) if self.streams is None else self.streams

    def component(
        self,
        table: Table,
        conf: Mapping[str, Any],
        context: TaskContext,
        collector: OutputCollector | SpoutOutputCollector,
        *,
        host: object = None,
        told: Mapping[str, Any] | None = None,
    ) -> ShellComponent:
        """The component of one task; its child belongs to this process, or to the ``host`` process of that id.

        ``told`` is what it finds in its configuration beyond what all components are told; None there leaves a
        name out. InvalidConfig: the command, or the folder it runs in, is not on this machine.
        """
        clock, key = SystemClock(), self.key(conf, context)
        child = self.child_settings()
        told_conf, told_context = self._handshake(conf, context, told or {})
        children: OwnChildren | HostedChildren
        if host is None:
            children = OwnChildren(clock)
        else:
            children = HostedChildren(str(host), conf.get(SHELL_PLACEMENT, {}).get(context.component))
        return ShellComponent(
            key=key,
            child=child,
            children=children,
            table=table,
            codec=CODECS[self.serializer],
            timeout_seconds=self.timeout_seconds,
            conf=told_conf,
            context=told_context,
            reports=ComponentReports(str(key), clock, collector.report_metric, collector.report_error),
            clock=clock,
        )

    def child_settings(self) -> ChildSettings:
        """Find what it needs on this machine. InvalidConfig: something is not here."""
        settings = ChildSettings(
            command=tuple(self.command),
            resources=None if self.resources is None else os.fspath(self.resources),
            # Our own library for components reads it; others have an argument for it, or none.
            environment={SERIALIZER_VARIABLE: self.serializer, **(self.environment or {})},
        )
        check_command(settings, None if self.resources is None else str(find_resources(self.resources)))
        return settings

    def _handshake(
        self, conf: Mapping[str, Any], context: TaskContext, told: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Configuration and context as a component sees them. Values that no frame can carry are left out."""
        told = {"topology.name": context.topology, "topology.debug": False, **conf, **told}
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
