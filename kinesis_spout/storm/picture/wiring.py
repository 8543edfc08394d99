"""What a picture shows of a topology: who is in which column, and which arrows go from whom to whom.

With several spouts a bolt may run in different stages, for its stage depends on whose tuples come. A picture shows
each component once, in the latest of its stages, and an arrow as exchanged if it is for any of the spouts.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kinesis_spout.storm.components.tuples import DEFAULT_STREAM
from kinesis_spout.storm.graph.component_graph import ComponentGraph
from kinesis_spout.storm.graph.grouping import Grouping
from kinesis_spout.storm.graph.plan import plan_of
from kinesis_spout.storm.running.counts import ComponentCounts

_WHOLE_MS: Final = 100.0
"""A latency from here on is shown without decimals."""


def count_rows(counts: ComponentCounts, *, is_spout: bool) -> list[tuple[str, str]]:
    """Give the name and the number of each count. What is an exception is left out while there is none."""
    rows = [] if is_spout else [("executed", counts.executed)]
    rows += [("emitted", counts.emitted), ("acked", counts.acked), ("failed", counts.failed)]
    rows += [
        (name, count)
        for name, count in (("timed out", counts.timed_out), ("acked twice", counts.acked_twice))
        if count
    ]
    shown = [(name, f"{count:,}") for name, count in rows]
    latency = latency_text(counts)
    if latency is not None:
        shown.append(("complete latency" if is_spout else "latency", latency))
    return shown


def latency_text(counts: ComponentCounts) -> str | None:
    """Say how long a call of ``execute`` took on average, or a spout's tuple until its ack; None without any."""
    latency_ms = counts.complete_latency_ms or counts.latency_ms
    if not latency_ms:
        return None
    return f"{latency_ms:,.0f} ms" if latency_ms >= _WHOLE_MS else f"{latency_ms:.3g} ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrow:
    """One bolt's subscription to one stream."""

    source: str
    stream: str
    target: str
    grouping: Grouping
    fused: bool
    """Whether its tuples stay in the task that made them, whichever spout they come from."""

    @property
    def label(self) -> str:
        """How the tuples find their tasks, and on which stream they come unless that is the default."""
        named = "" if self.stream == DEFAULT_STREAM else f"{self.stream}: "
        return f"{named}{self.grouping}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wiring:
    """The components and the arrows between them."""

    stage_of: Mapping[str, int]
    """In the order of the flow."""
    depth_of: Mapping[str, int]
    """How many components of its own stage a tuple passes before it, at most."""
    arrows: tuple[Arrow, ...]

    @property
    def columns(self) -> list[tuple[int, list[str]]]:
        """The stage and the components of each column, from left to right: those with the same stage and depth."""
        places = sorted({(self.stage_of[name], self.depth_of[name]) for name in self.stage_of})
        return [
            (
                stage,
                [
                    name
                    for name in self.stage_of
                    if (self.stage_of[name], self.depth_of[name]) == (stage, depth)
                ],
            )
            for stage, depth in places
        ]


def wiring_of(graph: ComponentGraph) -> Wiring:
    """Say what a picture of a graph shows."""
    plans = [plan_of(graph, spout.name) for spout in graph.spouts]
    stage_of = {
        name: max(plan.stage_of[name] for plan in plans if name in plan.stage_of) for name in graph.order
    }
    fused: dict[tuple[str, str, str, int], tuple[Grouping, bool]] = {}
    for plan in plans:
        for (source, stream), routes in plan.routes.items():
            for number, route in enumerate(routes):
                key = (source, stream, route.target, number)
                before = fused.get(key, (route.grouping, True))[1]
                fused[key] = (route.grouping, before and route.fused)
    arrows = tuple(
        Arrow(source=source, stream=stream, target=target, grouping=grouping, fused=stays)
        for (source, stream, target, _), (grouping, stays) in fused.items()
    )
    depth_of: dict[str, int] = {}
    for name in graph.order:
        depth_of[name] = max(
            (
                depth_of[arrow.source] + 1
                for arrow in arrows
                if arrow.target == name and stage_of[arrow.source] == stage_of[name]
            ),
            default=0,
        )
    return Wiring(stage_of=stage_of, depth_of=depth_of, arrows=arrows)
