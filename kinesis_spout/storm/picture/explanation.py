"""Explains a topology: which components run in which stage, and what travels between the stages."""

from collections.abc import Iterator
from typing import Any, Final
from unicodedata import category, east_asian_width

from kinesis_spout.storm.graph.component_graph import ComponentGraph, ComponentSpec
from kinesis_spout.storm.graph.plan import Plan, Route, plan_of
from kinesis_spout.storm.multilang.protocol import DEFAULT_STREAM
from kinesis_spout.storm.topology_conf import TopologyConf

_WIDTH: Final = 80
_DETAILS: Final = 6
_UNSEEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""The categories of characters that are controls, move others, or are unassigned."""


class Explanation:
    def __init__(self, name: str, graph: ComponentGraph, options: TopologyConf) -> None:
        self._name = name
        self._graph = graph
        self._flows = [_Flow(graph, plan_of(graph, spout.name), options) for spout in graph.spouts]

    def text(self) -> str:
        """For people, at most 80 columns wide (longer names are not cut)."""
        lines = list(_lines(f"topology {self._name}: {_counted(len(self._graph.order), 'component')}", 0))
        for flow in self._flows:
            lines += ["", *flow.lines()]
        return "\n".join(lines) + "\n"

    def document(self) -> dict[str, Any]:
        return {"topology": self._name, "spouts": [flow.document() for flow in self._flows]}


class _Flow:
    def __init__(self, graph: ComponentGraph, plan: Plan, options: TopologyConf) -> None:
        self._graph = graph
        self._plan = plan
        self._tasks = options.partitions or plan.most_tasks(graph)
        """Of Spark, after an exchange."""
        self._is_fixed = options.partitions is not None
        """Whether it is that number; otherwise it is less where Spark runs fewer tasks at a time."""
        self._ackers = 0
        if options.ackers == 0:
            self._decided = "a record is acked when its tuple is emitted (ackers=0)"
        elif not plan.exchanges:
            self._decided = "no tuple leaves its task, which decides its trees itself"
        else:
            self._ackers = options.ackers or 0
            self._decided = "a record is acked when its whole tree of tuples is"

    @property
    def _exchanges(self) -> int:
        return self._plan.exchanges + (self._ackers > 0)

    def lines(self) -> Iterator[str]:
        passed = _counted(self._exchanges, "exchange")
        stages = _counted(len(self._plan.stages), "stage")
        yield from _lines(f"Tuples of {self._plan.spout}: {stages}, {passed} in a micro-batch", 0)
        yield ""
        for number, stage in enumerate(self._plan.stages):
            if number:
                yield from _exchange("tuples, in blocks by task")
                yield f"stage {number}: {_spark_tasks(self._tasks, is_fixed=self._is_fixed)}"
            else:
                yield "stage 0: as many Spark tasks as the micro-batch has packs"
            for name in stage:
                yield from self._component_lines(self._graph[name])
        if self._ackers:
            yield from _exchange("acks, by the root of their tree")
            tasks = _spark_tasks(self._ackers, is_fixed=True)
            yield from _lines(f"ackers: {tasks}; {self._decided}", 0)
        else:
            yield ""
            yield from _lines(f"no ackers: {self._decided}", 0)

    def document(self) -> dict[str, Any]:
        return {
            "spout": self._plan.spout,
            "stages": [
                {
                    "stage": number,
                    "sparkTasks": self._tasks if number else None,
                    "components": [self._component_document(self._graph[name]) for name in stage],
                }
                for number, stage in enumerate(self._plan.stages)
            ],
            "exchanges": self._exchanges,
            "sparkTasksAreFixed": self._is_fixed,
            "ackers": self._ackers,
            "acks": self._decided,
        }

    def _inputs(self, component: ComponentSpec) -> list[tuple[str, str, Route]]:
        return [
            (source, stream, route)
            for (source, stream), routes in self._plan.routes.items()
            for route in routes
            if route.target == component.name
        ]

    def _component_lines(self, component: ComponentSpec) -> Iterator[str]:
        tasks = self._graph.tasks[component.name]
        ids = f"task {tasks[0]}" if len(tasks) == 1 else f"{len(tasks)} tasks: {tasks[0]}-{tasks[-1]}"
        state = ", keeps state" if component.is_stateful else ""
        made_of = f"{_kind(component)} {type(component.made_of).__name__}"
        yield from _lines(f"{component.name} ({made_of}, {ids}{state})", 2)
        for source, stream, route in self._inputs(component):
            way = "in the task that made the tuple" if route.fused else "through the exchange"
            of_stream = "" if stream == DEFAULT_STREAM else f", stream {stream}"
            yield from _lines(f"from {source}{of_stream}: {route.grouping}, {way}", _DETAILS)
        # Of a sticky one the tasks are as many processes, wherever its tuples come from.
        spreads = component.name in self._plan.exchanged or getattr(component.made_of, "is_sticky", False)
        if not spreads and len(tasks) > 1:
            hint = f"fused: runs where its source runs; rebalance_grouping spreads it over {len(tasks)} tasks"
            yield from _lines(hint, _DETAILS)
        for name, declared in component.streams.items():
            direct = ", direct" if declared.direct else ""
            named = "" if name == DEFAULT_STREAM else f" {name}"
            yield from _lines(f"emits{named}: {', '.join(declared.fields) or 'no fields'}{direct}", _DETAILS)

    def _component_document(self, component: ComponentSpec) -> dict[str, Any]:
        tasks = self._graph.tasks[component.name]
        return {
            "name": component.name,
            "kind": _kind(component),
            "class": type(component.made_of).__name__,
            "parallelism": len(tasks),
            "tasks": list(tasks),
            "stateful": component.is_stateful,
            "streams": {
                name: {"fields": list(stream.fields), "direct": stream.direct}
                for name, stream in component.streams.items()
            },
            "inputs": [
                {
                    "component": source,
                    "stream": stream,
                    "grouping": route.grouping.kind.value,
                    "fields": list(route.grouping.fields),
                    "fused": route.fused,
                }
                for source, stream, route in self._inputs(component)
            ],
        }


def _kind(component: ComponentSpec) -> str:
    return "spout" if component.is_spout else "bolt"


def _counted(count: int, what: str) -> str:
    return f"{count or 'no'} {what}" + ("" if count < 2 else "s")  # noqa: PLR2004 - several


def _spark_tasks(count: int, *, is_fixed: bool) -> str:
    tasks = _counted(count, "Spark task")
    return tasks if is_fixed or count == 1 else f"up to {tasks}"


def _exchange(what: str) -> Iterator[str]:
    yield ""
    yield f"--- exchange: {what} ".ljust(_WIDTH, "-")
    yield ""


def _lines(text: str, indent: int) -> Iterator[str]:
    line = ""
    shown = "".join("\ufffd" if category(each) in _UNSEEN else each for each in text)
    for word in shown.split(" "):
        if line and _columns(line) + 1 + _columns(word) > _WIDTH:
            yield line.rstrip()
            line = " " * (indent + 2) + word
        else:
            line = f"{line} {word}" if line else " " * indent + word
    yield line.rstrip()


def _columns(text: str) -> int:
    return len(text) + sum(east_asian_width(each) in "WF" for each in text)
