"""Pictures of a topology: its plan in words, and as a Mermaid flowchart with what each component has done.

Pure: nothing here reads a running query or writes a file.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final
from unicodedata import category, east_asian_width

from kinesis_spout.storm.graph.component_graph import ComponentGraph, ComponentSpec
from kinesis_spout.storm.graph.plan import Plan, Route, plan_of
from kinesis_spout.storm.multilang.protocol import DEFAULT_STREAM
from kinesis_spout.storm.running.counts import ComponentCounts
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
        """The number of Spark's tasks after an exchange."""
        self._is_fixed = options.partitions is not None
        """True if it is that number; otherwise it is less where Spark runs fewer tasks at a time."""
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
        # A sticky one has a process for each task, wherever its tuples come from.
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


_SPECIAL: Final = re.compile(r"[^\w .,:()/+=*-]")
"""Characters with a meaning in Mermaid or in HTML; written as the number of the character."""
_WHOLE_MS: Final = 100.0
"""A latency from here on is shown without decimals."""


def mermaid(graph: ComponentGraph, counts: Mapping[str, ComponentCounts] | None = None) -> str:
    """Draw a topology. Thick arrows pass an exchange; thin ones stay in the task that made the tuple.

    With several spouts a bolt can run in different stages, as its stage depends on whose tuples come. It is drawn
    once, in the latest of its stages, and an arrow as exchanged if it is for any of the spouts.
    """
    plans = [plan_of(graph, spout.name) for spout in graph.spouts]
    stage_of = {
        name: max(plan.stage_of[name] for plan in plans if name in plan.stage_of) for name in graph.order
    }
    ids = {name: f"c{number}" for number, name in enumerate(stage_of)}
    lines = ["flowchart LR"]
    for stage in range(max(stage_of.values()) + 1):
        lines.append(f'  subgraph s{stage}["stage {stage}"]')
        lines += [
            f"    {ids[name]}{_box(graph[name], counts)}" for name, at in stage_of.items() if at == stage
        ]
        lines.append("  end")
    is_fused: dict[tuple[str, str, str, str], bool] = {}
    for plan in plans:
        for (source, stream), routes in plan.routes.items():
            for route in routes:
                named = "" if stream == DEFAULT_STREAM else f"{stream}: "
                arrow = (source, stream, route.target, f"{named}{route.grouping}")
                is_fused[arrow] = is_fused.get(arrow, True) and route.fused
    for (source, _, target, label), fused in is_fused.items():
        lines.append(f'  {ids[source]} {"-->" if fused else "==>"}|"{_escaped(label)}"| {ids[target]}')
    return "\n".join(lines) + "\n"


def _box(component: ComponentSpec, counts: Mapping[str, ComponentCounts] | None) -> str:
    tasks = "" if component.parallelism == 1 else f", {component.parallelism} tasks"
    state = ", state" if component.is_stateful else ""
    said = [component.name, f"{type(component.made_of).__name__}{tasks}{state}"]
    if counts is not None:
        said += _count_lines(component, counts.get(component.name, ComponentCounts()))
    text = '"' + "<br/>".join(_escaped(line) for line in said) + '"'
    if component.is_spout:
        return f"([{text}])"
    return f"[({text})]" if component.is_stateful else f"[{text}]"


def _count_lines(component: ComponentSpec, counts: ComponentCounts) -> Iterator[str]:
    """Counts of exceptions only where they are not 0."""
    if not component.is_spout:
        yield f"executed {counts.executed:,}"
    yield f"emitted {counts.emitted:,}"
    yield f"acked {counts.acked:,}"
    yield f"failed {counts.failed:,}"
    if counts.timed_out:
        yield f"timed out {counts.timed_out:,}"
    if counts.acked_twice:
        yield f"acked twice {counts.acked_twice:,}"
    latency = latency_text(counts)
    if latency is not None:
        yield f"complete latency {latency}" if component.is_spout else f"latency {latency}"


def latency_text(counts: ComponentCounts) -> str | None:
    """The mean time of a call of ``execute``, or of a spout's tuple until its ack; None without any."""
    latency_ms = counts.complete_latency_ms or counts.latency_ms
    if not latency_ms:
        return None
    return f"{latency_ms:,.0f} ms" if latency_ms >= _WHOLE_MS else f"{latency_ms:.3g} ms"


def _escaped(text: str) -> str:
    return _SPECIAL.sub(lambda found: f"#{ord(found[0])};", text)
