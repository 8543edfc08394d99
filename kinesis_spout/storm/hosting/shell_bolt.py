"""``ShellBolt``: a bolt whose work is done by a component in another language.

One of its tasks leases a child for a micro-batch, from its first tuple to ``finish``. ``leased_child`` does the
talking.

When the child fails, the next one comes after a back-off, and one tuple at most is to blame:

- the one that was alone at the child;
- of several the one that the child had begun, because it had emitted something of it and of no other;
- otherwise it is unknown. They are given to the next child one at a time, each when the one before it is
  answered. So the one that kills stands alone when it kills again. A child that holds tuples back need not
  answer at first, only when it fails once more.

A tuple that the child had begun is not given again in this micro-batch: what was emitted for it is on its
way. If there are several, they are put off, and each comes again in its own micro-batch. When the time of the
micro-batch is over, the oldest tuple is to blame, and the others are put off. Being put off is no attempt.
"""

import os
import weakref
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from kinesis_spout.model.errors import InvalidConfig, KinesisSpoutError
from kinesis_spout.model.handler import NotNow
from kinesis_spout.storm.components.bolt import Bolt, Suspected
from kinesis_spout.storm.components.given import OutputCollector, TaskContext
from kinesis_spout.storm.components.tuples import OutputFields, Tuple
from kinesis_spout.storm.hosting.component_reports import ComponentFailed, show_lines
from kinesis_spout.storm.hosting.leased_child import LOOK_SECONDS, LeasedChild, ShellTaskSettings
from kinesis_spout.storm.hosting.pending_tuples import Unanswered
from kinesis_spout.storm.hosting.processes.children import NotYet
from kinesis_spout.storm.hosting.shell_settings import (
    DEFAULT_TIMEOUT_SECONDS,
    MAX_PENDING,
    MESSAGE_TIMEOUT,
    TICK_EVERY,
    ShellSettings,
)
from kinesis_spout.storm.hosting.talk import ChildFailed, ShellComponent
from kinesis_spout.storm.multilang.conversation import BOLT
from kinesis_spout.storm.running.program import SHELL_HOST

DEFAULT_MAX_PENDING: Final = 100
_MESSAGE_TIMEOUT_SECONDS: Final = 30.0
_PUT_OFF_SECONDS: Final = 1.0
"""Until a tuple that was not to blame comes again."""


class NoChild(ComponentFailed):
    """There was no child for a tuple before it was overdue."""


class ShellTask:
    """Mutable; one thread's."""

    def __init__(
        self,
        component: ShellComponent,
        settings: ShellTaskSettings,
        collector: OutputCollector,
    ) -> None:
        self._component = component
        self._settings = settings
        self._collector = collector
        self._reports = component.reports
        self._clock = component.clock
        self._child: LeasedChild | None = None
        self._last_failure = ""
        self._began_at: float | None = None
        """When the micro-batch first needed a child."""
        self._has_discarded = False
        self._given_again: set[int] = set()
        """Tuples that were given to a second child in this micro-batch."""

    def hand_over(self, tup: Tuple) -> None:
        """Hand a tuple over; wait while the child has enough. Does what the child says meanwhile.

        InvalidConfig: the child cannot be started. UnsendableValue: one of its values cannot be sent.
        ComponentFailed: a child was started, and did not answer the hand-shake.
        """
        try:
            child = self._child or self._begin(tup)
        except NoChild as error:
            self._put_off([tup], error)
            return
        try:
            child.hand_over(tup)
        except ChildFailed as error:
            self._child_failed(child, error)

    def tick(self) -> None:
        """Send a tick; ``finish`` waits for what the child does with it. Raises as ``hand_over``."""
        child = self._child or self._begin(None)
        try:
            child.send_tick()
        except ChildFailed as error:
            self._child_failed(child, error)

    def finish(self) -> None:
        """Wait until nothing is pending, or only what is overdue; then give the child back."""
        while (child := self._child) is not None:
            try:
                child.drain()
            except ChildFailed as error:
                self._child_failed(child, error)
                continue
            self._child = None
            self._component.children.release(child.talk.lease, is_proven=child.is_proven)
            self._put_off_too_late(child)
        self._began_at, self._has_discarded = None, False
        self._given_again.clear()

    def _begin(self, tup: Tuple | None) -> LeasedChild:
        """Get a child: for a tuple until that is overdue; without one there must be one soon."""
        if self._began_at is None:
            self._began_at = self._clock.monotonic()
        while True:
            is_overdue = tup is not None and self._collector.is_overdue(tup)
            talk = self._component.lease(0 if is_overdue else LOOK_SECONDS)
            if isinstance(talk, NotYet):
                if is_overdue or tup is None:
                    raise NoChild(f"{talk.reason}{self._last_failure}")
                continue
            lease = talk.lease
            child = self._child = LeasedChild(talk, self._component, self._settings, self._collector)
            try:
                if lease.is_fresh:
                    talk.shake_hands()
                elif lease.is_disturbed:
                    self._reports.count("disturbed")
                    child.probe()
            except ChildFailed as error:
                failed = self._discard(child, error)
                if lease.is_fresh:
                    raise failed from error
                continue
            return child

    # When a child fails

    def _discard(self, child: LeasedChild, error: ChildFailed) -> ComponentFailed:
        self._child = None
        self._has_discarded = True
        # One that failed at a tuple that it had alone can be as good as any.
        is_proven = child.is_proven or child.has_one
        failed = self._component.discard(child.talk, error, is_proven=is_proven)
        self._last_failure = f"; the last time: {failed}"
        self._put_off_too_late(child)
        return failed

    def _child_failed(self, child: LeasedChild, error: ChildFailed) -> None:
        failed = self._discard(child, error)
        suspects = deque(self._blame(child.take_back(), failed))
        waits_for_answers = not self._given_again.isdisjoint(map(id, suspects))
        while suspects:
            tup = suspects.popleft()
            try:
                if self._is_time_over:
                    raise failed
                child = self._child or self._begin(tup)
                self._given_again.add(id(tup))
                child.hand_over_alone(tup, self._ends_at, waits_for_answer=waits_for_answers)
            except ChildFailed as died:
                failed = self._discard(child, died)
                again = self._blame(child.take_back(), failed)
                waits_for_answers = waits_for_answers or bool(again)
                suspects.extendleft(reversed(again))
            except (KinesisSpoutError, OSError) as why_not:
                self._put_off([tup, *suspects], why_not)
                return

    def _blame(self, back: Unanswered, failed: ComponentFailed) -> list[Tuple]:
        is_time_over, every = self._is_time_over, [*back.begun, *back.untouched]
        is_known = len(every) == 1 or len(back.begun) == 1
        guilty = back.oldest if is_known or is_time_over else None
        if guilty is not None:
            self._collector.fail(guilty, failed)
        if is_time_over:
            self._put_off((tup for tup in every if tup is not guilty), failed)
            return []
        for tup in back.begun:
            if tup is not guilty:
                self._reports.count("put_off")
                self._collector.fail(tup, Suspected(_PUT_OFF_SECONDS, str(failed)))
        return [tup for tup in back.untouched if tup is not guilty]

    def _put_off(self, tuples: Iterable[Tuple], why: BaseException) -> None:
        """It was no attempt."""
        for tup in tuples:
            self._reports.count("put_off")
            self._collector.fail(tup, NotNow(_PUT_OFF_SECONDS, f"not to blame, and put off: {why}"))

    def _put_off_too_late(self, child: LeasedChild) -> None:
        """Put off what a late child did not answer in time; it was started because another had failed."""
        age = self._clock.monotonic() - child.began_at
        if self._has_discarded and age < self._settings.message_timeout_seconds:
            self._put_off(child.given_up, ComponentFailed(f"there was too little time{self._last_failure}"))

    @property
    def _ends_at(self) -> float:
        return (self._began_at or 0.0) + self._settings.message_timeout_seconds

    @property
    def _is_time_over(self) -> bool:
        return self._clock.monotonic() >= self._ends_at


class ShellBolt(Bolt):
    """Storm's class of this name: runs a command that speaks the multilang protocol, and hands it the tuples.

    Every task has its own process and keeps it from micro-batch to micro-batch, also when Spark takes another
    Python worker, or another machine, so the component keeps its memory of its keys. On Spark the
    processes belong to one host process on each machine; they end with the application. When the machine is
    lost, or the process dies, the task begins with a new process, as in Storm. After a grouping that leaves
    tuples where they are, such as ``shuffle_grouping``, a task has a process on each machine.

    A process that dies, stays silent for the time-out while it owes an answer, or breaks the protocol is
    started again with back-off. The tuple to blame fails, with the end of its standard error as the reason;
    the others are given to the new process, one at a time. A stray line on its standard output is put aside
    and counted.

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
