"""Explains a topology: which components run in which stage, and what travels between the stages."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kinesis_spout.storm.components.tuples import DEFAULT_STREAM, Stream
from kinesis_spout.storm.graph.component_graph import Component, ComponentGraph
from kinesis_spout.storm.graph.plan import Plan, plan_of
from kinesis_spout.storm.picture.drawing import columns, cut
from kinesis_spout.storm.picture.wiring import Arrow
from kinesis_spout.storm.topology_conf import TopologyConf

_WIDTH: Final = 80
_INDENT: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkTasks:
    """How many tasks of Spark run a stage, in each micro-batch."""

    count: int | None
    """None for the first stage: what is read is packed for as many tasks as Spark runs at a time."""
    fixed: bool
    """Whether it is this number; otherwise it is less where Spark runs fewer tasks at a time."""

    def __str__(self) -> str:
        if self.count is None:
            return "as many Spark tasks as the micro-batch has packs"
        tasks = "1 Spark task" if self.count == 1 else f"{self.count} Spark tasks"
        return tasks if self.fixed or self.count == 1 else f"up to {tasks}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """One component in its stage."""

    name: str
    kind: str
    """spout or bolt."""
    made_of: str
    """The name of its class."""
    tasks: tuple[int, ...]
    stateful: bool
    streams: Mapping[str, Stream]
    inputs: tuple[Arrow, ...]
    spreads: bool
    """Whether its tasks share its tuples; otherwise it runs where its sources do, whatever its parallelism."""

    def lines(self) -> Iterator[str]:
        """Give it as lines of text."""
        state = ", keeps state" if self.stateful else ""
        yield from _lines(
            f"{self.name} ({self.kind} {self.made_of}, {_tasks(self.tasks)}{state})", _INDENT // 2
        )
        for arrow in self.inputs:
            way = "in the task that made the tuple" if arrow.fused else "through the exchange"
            of_stream = "" if arrow.stream == DEFAULT_STREAM else f", stream {arrow.stream}"
            yield from _lines(f"from {arrow.source}{of_stream}: {arrow.grouping}, {way}", _INDENT + 2)
        if not self.spreads and len(self.tasks) > 1:
            yield from _lines(
                f"fused: runs where its source runs; rebalance_grouping spreads it over {len(self.tasks)} tasks",
                _INDENT + 2,
            )
        for name, stream in self.streams.items():
            direct = ", direct" if stream.direct else ""
            named = "" if name == DEFAULT_STREAM else f" {name}"
            yield from _lines(f"emits{named}: {', '.join(stream.fields) or 'no fields'}{direct}", _INDENT + 2)

    def document(self) -> dict[str, Any]:
        """Give it for programs."""
        return {
            "name": self.name,
            "kind": self.kind,
            "class": self.made_of,
            "parallelism": len(self.tasks),
            "tasks": list(self.tasks),
            "stateful": self.stateful,
            "streams": {
                name: {"fields": list(stream.fields), "direct": stream.direct}
                for name, stream in self.streams.items()
            },
            "inputs": [
                {
                    "component": arrow.source,
                    "stream": arrow.stream,
                    "grouping": arrow.grouping.kind.value,
                    "fields": list(arrow.grouping.fields),
                    "fused": arrow.fused,
                }
                for arrow in self.inputs
            ],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """How the tuples of one spout go through the topology."""

    spout: str
    stages: tuple[tuple[Explained, ...], ...]
    exchanged: SparkTasks
    """Of each stage after an exchange."""
    ackers: SparkTasks | None
    """None where there are none: see ``decided``."""
    decided: str
    """Who decides the trees of tuples, in words."""

    def lines(self) -> Iterator[str]:
        """Give it as lines of text."""
        for number, stage in enumerate(self.stages):
            if number:
                yield from _exchange("tuples and acks, in blocks by task")
            tasks = self.exchanged if number else SparkTasks(count=None, fixed=False)
            yield f"stage {number}: {tasks}"
            for component in stage:
                yield from component.lines()
        if self.ackers is not None:
            yield from _exchange("acks, by the root of their tree")
            yield from _lines(f"ackers: {self.ackers}; {self.decided}", 0)
        else:
            yield ""
            yield from _lines(f"no ackers: {self.decided}", 0)

    def document(self) -> dict[str, Any]:
        """Give it for programs."""
        return {
            "spout": self.spout,
            "stages": [
                {
                    "stage": number,
                    "sparkTasks": self.exchanged.count if number else None,
                    "components": [component.document() for component in stage],
                }
                for number, stage in enumerate(self.stages)
            ],
            "exchanges": len(self.stages) - 1 + (self.ackers is not None),
            "sparkTasksAreFixed": self.exchanged.fixed,
            "ackers": 0 if self.ackers is None else self.ackers.count,
            "acks": self.decided,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """How a topology runs: one flow for each spout, whose micro-batches are its own."""

    topology: str
    components: int
    flows: tuple[Flow, ...]

    def text(self) -> str:
        """Give it for people, at most 80 columns wide (a name that is longer by itself is not cut)."""
        components = "1 component" if self.components == 1 else f"{self.components} components"
        lines = list(_lines(f"topology {self.topology}: {components}", 0))
        for flow in self.flows:
            exchanges = len(flow.stages) - 1 + (flow.ackers is not None)
            passed = {0: "no exchange", 1: "1 exchange"}.get(exchanges, f"{exchanges} exchanges")
            stages = "1 stage" if len(flow.stages) == 1 else f"{len(flow.stages)} stages"
            lines += ["", *_lines(f"Tuples of {flow.spout}: {stages}, {passed} in a micro-batch", 0), ""]
            lines += flow.lines()
        return "\n".join(lines) + "\n"

    def document(self) -> dict[str, Any]:
        """Give it for programs."""
        return {"topology": self.topology, "spouts": [flow.document() for flow in self.flows]}


def explanation_of(name: str, graph: ComponentGraph, options: TopologyConf) -> Explanation:
    """Explain a topology. Nothing of it is run or opened."""
    return Explanation(
        topology=name,
        components=len(graph.order),
        flows=tuple(_flow(graph, plan_of(graph, spout.name), options) for spout in graph.spouts),
    )


def _flow(graph: ComponentGraph, plan: Plan, options: TopologyConf) -> Flow:
    fixed = options.partitions is not None
    exchanged = SparkTasks(count=options.partitions or plan.most_tasks(graph), fixed=fixed)
    ackers: SparkTasks | None = None
    if options.ackers == 0:
        decided = "a record is acked when its tuple is emitted (ackers=0)"
    elif not plan.exchanges:
        decided = "no tuple leaves its task, which decides its trees itself"
    else:
        ackers = exchanged if options.ackers is None else SparkTasks(count=options.ackers, fixed=True)
        decided = "a record is acked when its whole tree of tuples is"
    return Flow(
        spout=plan.spout,
        stages=tuple(
            tuple(_explained(graph, plan, graph[name]) for name in components) for components in plan.stages
        ),
        exchanged=exchanged,
        ackers=ackers,
        decided=decided,
    )


def _explained(graph: ComponentGraph, plan: Plan, component: Component) -> Explained:
    return Explained(
        name=component.name,
        kind="spout" if component.is_spout else "bolt",
        made_of=type(component.made_of).__name__,
        tasks=graph.tasks[component.name],
        stateful=component.is_stateful,
        streams=component.streams,
        # Of one that has a home the tasks are as many processes, wherever its tuples come from.
        spreads=component.name in plan.exchanged or getattr(component.made_of, "has_home", False),
        inputs=tuple(
            Arrow(
                source=source,
                stream=stream,
                target=route.target,
                grouping=route.grouping,
                fused=route.fused,
            )
            for (source, stream), routes in plan.routes.items()
            for route in routes
            if route.target == component.name
        ),
    )


def _tasks(tasks: tuple[int, ...]) -> str:
    return f"task {tasks[0]}" if len(tasks) == 1 else f"{len(tasks)} tasks: {tasks[0]}-{tasks[-1]}"


def _exchange(what: str) -> Iterator[str]:
    yield ""
    yield f"--- exchange: {what} ".ljust(_WIDTH, "-")
    yield ""


def _lines(text: str, indent: int) -> Iterator[str]:
    line = ""
    for word in cut(text).split(" "):
        if line and columns(line) + 1 + columns(word) > _WIDTH:
            yield line.rstrip()
            line = " " * (indent + 2) + word
        else:
            line = f"{line} {word}" if line else " " * indent + word
    yield line.rstrip()
