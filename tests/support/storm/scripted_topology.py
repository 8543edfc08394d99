"""Topologies whose bolts do what a test's script says, and note what they were given."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kinesis_spout.storm import Bolt, OutputCollector, Spout, TaskContext, TopologyBuilder, Tuple
from kinesis_spout.storm.components.tuples import OutputFields

Script = Callable[["Scripted", Tuple], None]

SEEN: list[tuple[str, int, tuple[Any, ...]]] = []
"""What scripted bolts were given since the last ``begin``: component, task id, values.

Each task of a bolt is a copy, with the script and all that it closes over; by ``see`` it finds this list."""


class Declared(Spout):
    """A spout that only declares: local runs put their own tuples in its place."""

    def __init__(self, fields: OutputFields = ("value",)) -> None:
        self._fields = fields

    def declare_output_fields(self) -> OutputFields:
        return self._fields

    def next_tuple(self) -> None:
        raise AssertionError("a local run asks no spout")


def see(component: str, task: int, values: Sequence[Any]) -> None:
    SEEN.append((component, task, tuple(values)))


def acks(bolt: "Scripted", tup: Tuple) -> None:
    bolt.collector.ack(tup)


def passes_on(bolt: "Scripted", tup: Tuple) -> None:
    bolt.collector.emit(tup.values, tup)
    bolt.collector.ack(tup)


def holds(bolt: "Scripted", tup: Tuple) -> None:
    bolt.held.append(tup)


class Scripted(Bolt):
    """Does with a tuple what a script says; with what it holds, when it is flushed, what another one says."""

    def __init__(
        self, script: Script = acks, fields: OutputFields = (), *, at_flush: Script | None = None
    ) -> None:
        self._script = script
        self._fields = fields
        self._at_flush = at_flush

    def declare_output_fields(self) -> OutputFields:
        return self._fields

    def prepare(self, conf: Mapping[str, Any], context: TaskContext, collector: OutputCollector) -> None:
        super().prepare(conf, context, collector)
        self.context = context
        self.conf = conf
        self.held: list[Tuple] = []

    def execute(self, tup: Tuple) -> None:
        see(self.context.component, self.context.task, tup.values)
        self._script(self, tup)

    def flush(self) -> None:
        held, self.held = self.held, []
        for tup in held:
            if self._at_flush is not None:
                self._at_flush(self, tup)


def begin(fields: OutputFields = ("value",)) -> TopologyBuilder:
    """Begin a topology with the spout "numbers", and forget what was seen before."""
    SEEN.clear()
    builder = TopologyBuilder()
    builder.set_spout("numbers", Declared(fields))
    return builder


def singles(count: int) -> list[tuple[int]]:
    return [(number,) for number in range(count)]


def given(component: str) -> list[tuple[Any, ...]]:
    """Tell what a scripted bolt was given, in order."""
    return [values for name, _, values in SEEN if name == component]


def tasks_by_value(component: str) -> dict[Any, list[int]]:
    """Tell which tasks of a scripted bolt were given each first value, in order."""
    tasks: dict[Any, list[int]] = {}
    for name, task, values in SEEN:
        if name == component:
            tasks.setdefault(values[0], []).append(task)
    return tasks


def values_of(pairs: Sequence[tuple[Sequence[Any], Any]]) -> list[Any]:
    """Give the first values of what failed."""
    return [values[0] for values, _ in pairs]


class UnloadableError(Exception):
    """Pickles, but cannot be unpickled: that calls it with the one argument of ``Exception``."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code}: {text}")
