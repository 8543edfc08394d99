"""``ShellBolt``: a bolt whose work is done by a component in another language."""

import os
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.storm.components.bolt import Bolt
from kinesis_spout.storm.components.given import OutputCollector, TaskContext
from kinesis_spout.storm.components.tuples import OutputFields, Tuple
from kinesis_spout.storm.hosting.component_reports import show_lines
from kinesis_spout.storm.hosting.leased_child import ShellTaskSettings
from kinesis_spout.storm.hosting.shell_settings import (
    DEFAULT_TIMEOUT_SECONDS,
    MAX_PENDING,
    MESSAGE_TIMEOUT,
    TICK_EVERY,
    ShellSettings,
)
from kinesis_spout.storm.hosting.shell_task import ShellTask
from kinesis_spout.storm.multilang.conversation import BOLT
from kinesis_spout.storm.running.program import SHELL_HOST

DEFAULT_MAX_PENDING: Final = 100
_MESSAGE_TIMEOUT_SECONDS: Final = 30.0


class ShellBolt(Bolt):
    """Storm's class of this name: runs a command that speaks the multilang protocol, and hands it the tuples.

    Every task has its own process and keeps it from micro-batch to micro-batch, also when Spark takes another
    Python worker, or another machine: what the component remembers of its keys is there. On Spark the
    processes belong to one host process on each machine; they end with the application. When the machine is
    lost, or the process dies, the task begins with a new process, as in Storm. After a grouping that leaves
    tuples where they are, such as ``shuffle_grouping``, a task has a process on each machine.

    A process that dies, stays silent for the time-out while it owes an answer, or breaks the protocol is
    started again with back-off. Of the tuples that it had the one to blame fails, with the end of its
    standard error as the reason; the others are given to the new process, one at a time (see ``shell_task``).
    A stray line on its standard output is put aside and counted.

    Args:
        command: program and arguments, such as ``["python3", "split.py"]``.
        fields: the fields of its default stream.
        streams: its streams, if there are others: see ``Bolt.declare_output_fields``. Either this or
            ``fields``.
        serializer: ``json``, the protocol's, or ``msgpack``, pystorm's.
        max_pending: this many tuples at most wait in its input; what it has read and holds back does not
            count. Storm's ``topology.shellbolt.max.pending``.
        timeout_seconds: of the hand-shake, and of its silence; ``topology.subprocess.timeout.secs``.
        environment: variables over those of the process that starts it.
        resources: the folder that the command runs in, or an archive of it; see ``find_resources``.
        tick_seconds: send a tick tuple this often, also while the end of a micro-batch waits for it.

    Raises:
        InvalidConfig: a setting is not allowed.
    """

    is_sticky = True

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
            command=command,
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
        """The process is started with the first tuple.

        Raises:
            InvalidConfig: the command, or the folder it runs in, is not on this machine.
        """
        super().prepare(conf, context, collector)
        told = {MAX_PENDING: self._max_pending, TICK_EVERY: self.tick_seconds}
        component = self._shell.component(
            BOLT, conf, context, collector, host=conf.get(SHELL_HOST), told=told
        )
        settings = ShellTaskSettings(
            max_pending=self._max_pending,
            message_timeout_seconds=float(conf.get(MESSAGE_TIMEOUT, _MESSAGE_TIMEOUT_SECONDS)),
            tick_seconds=self.tick_seconds,
        )
        show_lines()
        self._task = ShellTask(component, settings, collector)
        # Without a cleanup no process is left behind.
        self._close = weakref.finalize(self, component.children.close)

    def execute(self, tup: Tuple) -> None:
        """Also carries out what the component has said meanwhile, of this tuple or of others."""
        task = self._task
        assert task is not None, "prepare comes first"
        if tup.is_tick:
            task.tick()
        else:
            task.hand_over(tup)

    def flush(self) -> None:
        """Wait until the component has acked or failed everything, or it is overdue."""
        if self._task is not None:
            self._task.finish()

    def cleanup(self) -> None:
        """A process that belongs to the machine's host process lives on."""
        if self._close is not None:
            self._close()
