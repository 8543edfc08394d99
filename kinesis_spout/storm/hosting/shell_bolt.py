"""``ShellBolt``: a bolt whose work is done by a component in another language."""

import os
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kinesis_spout.model.clock import Clock, SystemClock
from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.storm.components.bolt import Bolt
from kinesis_spout.storm.components.collector import OutputCollector
from kinesis_spout.storm.components.context import TaskContext
from kinesis_spout.storm.components.output import OutputFields, are_field_names, declared_streams
from kinesis_spout.storm.components.tuples import Tuple
from kinesis_spout.storm.hosting.handshake import (
    MAX_PENDING,
    MESSAGE_TIMEOUT,
    SUBPROCESS_TIMEOUT,
    TICK_EVERY,
    handshake_conf,
    handshake_context,
)
from kinesis_spout.storm.hosting.leased_child import ShellTaskSettings
from kinesis_spout.storm.hosting.processes.child_process import ChildSettings, check_command
from kinesis_spout.storm.hosting.processes.children import ChildKey, Children, Keeper
from kinesis_spout.storm.hosting.processes.hosted_children import HostedChildren
from kinesis_spout.storm.hosting.remarks import Remarks, show_lines
from kinesis_spout.storm.hosting.resources import find_resources
from kinesis_spout.storm.hosting.shell_task import ShellTask
from kinesis_spout.storm.multilang.component import SERIALIZER_VARIABLE
from kinesis_spout.storm.multilang.frames import CODECS
from kinesis_spout.storm.running.program import SHELL_HOMES, SHELL_HOST, SHELL_SPOUT

DEFAULT_MAX_PENDING: Final = 100
DEFAULT_TIMEOUT_SECONDS: Final = 30.0
_MESSAGE_TIMEOUT_SECONDS: Final = 30.0
_MOST_TIMEOUT_SECONDS: Final = 24 * 60 * 60


class ShellBolt(Bolt):
    """Runs a command that speaks Storm's multilang protocol, and hands it the tuples. Storm's class of this name.

    Every task has a process of its own, which it keeps from micro-batch to micro-batch, also when Spark takes
    another Python worker, or another machine: what the component remembers of its keys is there. On Spark the
    processes belong to one host process on each machine; they end with the application. When the machine is lost,
    or the process dies, the task begins with a new process, as in Storm. After a grouping that leaves tuples where
    they are, such as ``shuffle_grouping``, a task has a process on each machine.

    A process that dies, says nothing for the time-out while it owes an answer, or says what cannot be true, is
    started again with back-off. Of the tuples that it had the one to blame fails, with the end of its standard
    error as the reason; the others are given to the new process, one at a time (see ``shell_task``). A stray line
    on its standard output is put aside and counted.

    Args:
        command: program and arguments, such as ``["python3", "split.py"]``.
        fields: the fields of its default stream.
        streams: its streams, if there are others: see ``Bolt.declare_output_fields``. Either this or ``fields``.
        serializer: ``json``, the protocol's, or ``msgpack``, pystorm's.
        max_pending: so many tuples at most wait in its input; what it has read and holds back does not count.
            Storm's ``topology.shellbolt.max.pending``.
        timeout_seconds: of the hand-shake, and of its silence; ``topology.subprocess.timeout.secs``.
        environment: variables over those of the process that starts it.
        resources: the folder that the command runs in, or an archive of it; see ``find_resources``.
        tick_seconds: send a tick tuple so often, also while the end of a micro-batch waits for it.

    Raises:
        InvalidConfig: a setting is not allowed.
    """

    has_home = True

    def __init__(
        self,
        command: Sequence[str],
        *,
        fields: Sequence[str] = (),
        streams: OutputFields | None = None,
        serializer: str = "json",
        max_pending: int = DEFAULT_MAX_PENDING,
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
        environment: Mapping[str, str] | None = None,
        resources: str | os.PathLike[str] | None = None,
        tick_seconds: float | None = None,
    ) -> None:
        self._shell = ShellSettings(
            command,
            fields=fields,
            streams=streams,
            serializer=serializer,
            timeout_seconds=timeout_seconds,
            environment=environment,
            resources=resources,
        )
        if isinstance(max_pending, bool) or not isinstance(max_pending, int) or max_pending < 1:
            raise InvalidConfig(f"ShellBolt: expected max_pending of 1 or more, got {max_pending!r}")
        self._max_pending = max_pending
        self.tick_seconds = tick_seconds
        self._task: ShellTask | None = None
        self._close: weakref.finalize[[], ShellBolt] | None = None

    def declare_output_fields(self) -> OutputFields:
        return self._shell.output

    def prepare(self, conf: Mapping[str, Any], context: TaskContext, collector: OutputCollector) -> None:
        """See ``Bolt``. The process is started with the first tuple.

        Raises:
            InvalidConfig: the command, or the folder it runs in, is not on this machine.
        """
        super().prepare(conf, context, collector)
        clock = SystemClock()
        child = self._shell.child_settings()
        keeper = keeper_of(conf, context, clock)
        key = self._shell.key(conf, context)
        own = {
            SUBPROCESS_TIMEOUT: self._shell.timeout_seconds,
            MAX_PENDING: self._max_pending,
            TICK_EVERY: self.tick_seconds,
        }
        settings = ShellTaskSettings(
            key=key,
            child=child,
            serializer=self._shell.serializer,
            max_pending=self._max_pending,
            timeout_seconds=self._shell.timeout_seconds,
            message_timeout_seconds=float(conf.get(MESSAGE_TIMEOUT, _MESSAGE_TIMEOUT_SECONDS)),
            tick_seconds=self.tick_seconds,
            conf=handshake_conf(conf, context, own, CODECS[self._shell.serializer]),
            context=handshake_context(context, declared_streams(context.component, self._shell.output)),
        )
        show_lines()
        remarks = Remarks(str(key), clock, collector.report_metric, collector.report_error)
        self._task = ShellTask(settings, keeper, collector, remarks, clock)
        # Whoever forgets to clean up leaves no process behind.
        self._close = weakref.finalize(self, keeper.close)

    def execute(self, tup: Tuple) -> None:
        """See ``Bolt``. What the component has said meanwhile is done, of this tuple or of others."""
        task = self._task
        assert task is not None, "prepare comes first"
        if tup.is_tick:
            task.tick()
        else:
            task.hand_over(tup)

    def flush(self) -> None:
        """See ``Bolt``: wait until the component has acked or failed everything, or it is overdue."""
        if self._task is not None:
            self._task.finish()

    def cleanup(self) -> None:
        """See ``Bolt``. A process that belongs to the machine's host process lives on."""
        if self._close is not None:
            self._close()


class ShellSettings:
    """What shell bolts and shell spouts are both given."""

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
        """Find what it needs on this machine.

        Raises:
            InvalidConfig: something is not here.
        """
        settings = ChildSettings(
            command=self.command, resources=self._resources, environment=self._environment
        )
        check_command(settings, None if self._resources is None else str(find_resources(self._resources)))
        return settings

    @staticmethod
    def key(conf: Mapping[str, Any], context: TaskContext) -> ChildKey:
        """Say whose process it is."""
        return ChildKey(
            topology=context.topology,
            run=str(conf.get("storm.id", "")),
            spout=str(conf.get(SHELL_SPOUT, "")),
            component=context.component,
            task=context.task,
        )


def _is_passed_on(text: object) -> bool:
    """Tell whether the system passes this on to a program."""
    return isinstance(text, str) and "\0" not in text


def _check_environment(environment: object) -> None:
    """Refuse what is no environment. The message has no values: one may be a secret."""
    if not isinstance(environment, Mapping):
        raise InvalidConfig(f"expected an environment by names, got {type(environment).__name__}")
    for name, value in environment.items():
        if not (_is_passed_on(name) and name and "=" not in name and _is_passed_on(value)):
            raise InvalidConfig(
                f"environment: expected names without = and values that are text, got {type(value).__name__} "
                f"for {name!r}"
            )


def keeper_of(conf: Mapping[str, Any], context: TaskContext, clock: Clock) -> Keeper:
    """Give what owns the processes: the machine's host process where ``host_conf`` names it, else this process."""
    host = conf.get(SHELL_HOST)
    if host is None:
        return Children(clock)
    return HostedChildren(str(host), conf.get(SHELL_HOMES, {}).get(context.component))
