"""The plan of a topology: which bolts run in one task, and what has to travel between tasks.

A component's *stage* is how many exchanges its tuples have passed at most. A spout's is 0. A bolt whose
grouping stays runs in its source's stage, in the same process (it is *fused*); any other bolt runs one stage
later. All that leaves a stage travels in one exchange, also tuples for later stages. So there is one
exchange for each stage, and nothing is computed twice.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.storm.components.given import TaskContext
from kinesis_spout.storm.components.tuples import Source
from kinesis_spout.storm.graph.component_graph import ComponentGraph, ComponentSpec
from kinesis_spout.storm.graph.grouping import Grouping

MOST_FUSED: Final = 150
"""Bolts in a row. Each takes up to 5 of the 1,000 calls that Python nests; the rest is for what they call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    target: str
    grouping: Grouping
    fused: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The stages of a topology, as seen from one of its spouts. Depends on the graph only."""

    spout: str
    stages: tuple[tuple[str, ...], ...]
    """The components of each stage, in the order of the flow."""
    stage_of: Mapping[str, int]
    routes: Mapping[tuple[str, str], tuple[Route, ...]]
    """By component and stream."""
    exchanged: frozenset[str] = field(default=frozenset())
    """The components whose tuples come from another stage, all or some."""

    def in_one_stage(self) -> "Plan":
        return replace(
            self,
            stages=(tuple(name for stage in self.stages for name in stage),),
            stage_of=dict.fromkeys(self.stage_of, 0),
        )

    @property
    def exchanges(self) -> int:
        """The number of exchanges that tuples pass at most; acks can need one more."""
        return len(self.stages) - 1

    def most_tasks(self, graph: ComponentGraph) -> int:
        return max((graph[component].parallelism for component in self.exchanged), default=1)


def plan_of(graph: ComponentGraph, spout: str) -> Plan:
    """Plan what happens to the tuples of a spout. InvalidConfig: too many bolts would call each other."""
    reached = graph.reached_from(spout)
    stage_of: dict[str, int] = {}
    for component in graph:
        if component.name in reached:
            stage_of[component.name] = max(
                (
                    stage_of[each.component] + (not each.grouping.kind.stays)
                    for each in component.inputs
                    if each.component in reached
                ),
                default=0,
            )
    routes = {
        (name, stream): tuple(
            Route(
                target=target.name,
                grouping=grouping,
                fused=grouping.kind.stays and stage_of[target.name] == stage_of[name],
            )
            for target, grouping in graph.subscribers(name, stream)
        )
        for name in stage_of
        for stream in graph[name].streams
    }
    _check_depth(graph, stage_of)
    stages = [
        tuple(name for name in stage_of if stage_of[name] == stage)
        for stage in range(max(stage_of.values()) + 1)
    ]
    return Plan(
        spout=spout,
        stages=tuple(stages),
        stage_of=stage_of,
        routes=routes,
        exchanged=frozenset(route.target for each in routes.values() for route in each if not route.fused),
    )


def _check_depth(graph: ComponentGraph, stage_of: Mapping[str, int]) -> None:
    depth: dict[str, int] = {}
    for name, stage in stage_of.items():
        before = [
            depth[each.component]
            for each in graph[name].inputs
            if each.grouping.kind.stays and stage_of.get(each.component) == stage
        ]
        depth[name] = max(before, default=-1) + 1
        if depth[name] > MOST_FUSED:
            raise InvalidConfig(
                f"bolt {name!r}: expected at most {MOST_FUSED} bolts in a row that run in one process, got one "
                "more: each is called by the one before it, and Python limits the depth of calls; do more in one "
                "bolt, or let one of them subscribe by fields_grouping"
            )


def context_of(
    graph: ComponentGraph,
    topology: str,
    component: ComponentSpec,
    index: int,
    *,
    processing_time: Callable[[], float],
    read_to: Callable[[], float],
) -> TaskContext:
    return TaskContext(
        topology=topology,
        component=component.name,
        task=graph.tasks[component.name][index],
        index=index,
        parallelism=component.parallelism,
        tasks=graph.tasks,
        targets={
            stream: tuple(target.name for target, _ in graph.subscribers(component.name, stream))
            for stream in component.streams
        },
        sources={
            source: {
                each.stream: graph[source].streams[each.stream].fields
                for each in component.inputs
                if each.component == source
            }
            for source in dict.fromkeys(each.component for each in component.inputs)
        },
        groupings={
            (subscription.component, subscription.stream, component.name): subscription.grouping.told()
            for subscription in component.inputs
        }
        | {
            (component.name, stream, target.name): grouping.told()
            for stream in component.streams
            for target, grouping in graph.subscribers(component.name, stream)
        },
        processing_time=processing_time,
        read_to=read_to,
    )


def source_of(graph: ComponentGraph, component: str, stream: str, index: int) -> Source:
    return Source(component, stream, graph.tasks[component][index], graph[component].streams[stream].fields)
