"""Draws a topology as a Mermaid flowchart: the components of each stage, and the arrows between them.

With several spouts a bolt can run in different stages, as its stage depends on whose tuples come. A picture
shows each component once, in the latest of its stages, and an arrow as exchanged if it is for any of the
spouts.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kinesis_spout.storm.graph.component_graph import ComponentGraph, ComponentSpec
from kinesis_spout.storm.graph.grouping import Grouping
from kinesis_spout.storm.graph.plan import plan_of
from kinesis_spout.storm.multilang.protocol import DEFAULT_STREAM
from kinesis_spout.storm.running.counts import ComponentCounts

Counts = Mapping[str, ComponentCounts]

_SPECIAL: Final = re.compile(r"[^\w .,:()/+=*-]")
"""Characters with a meaning in Mermaid or in HTML; written as the number of the character."""
_FUSED: Final = "-->"
_EXCHANGED: Final = "==>"
_WHOLE_MS: Final = 100.0
"""A latency from here on is shown without decimals."""


def kind_text(component: ComponentSpec) -> str:
    tasks = "" if component.parallelism == 1 else f", {component.parallelism} tasks"
    state = ", state" if component.is_stateful else ""
    return f"{type(component.made_of).__name__}{tasks}{state}"


def count_rows(component: ComponentSpec, of_all: Counts | None) -> list[tuple[str, str]]:
    """The name and the number of each count; none without counts. Counts of exceptions only where not 0."""
    if of_all is None:
        return []
    counts = of_all.get(component.name, ComponentCounts())
    rows = [] if component.is_spout else [("executed", counts.executed)]
    rows += [("emitted", counts.emitted), ("acked", counts.acked), ("failed", counts.failed)]
    exceptions = (("timed out", counts.timed_out), ("acked twice", counts.acked_twice))
    rows += [(name, count) for name, count in exceptions if count]
    shown = [(name, f"{count:,}") for name, count in rows]
    latency = latency_text(counts)
    if latency is not None:
        shown.append(("complete latency" if component.is_spout else "latency", latency))
    return shown


def latency_text(counts: ComponentCounts) -> str | None:
    """The mean time of a call of ``execute``, or of a spout's tuple until its ack; None without any."""
    latency_ms = counts.complete_latency_ms or counts.latency_ms
    if not latency_ms:
        return None
    return f"{latency_ms:,.0f} ms" if latency_ms >= _WHOLE_MS else f"{latency_ms:.3g} ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrow:
    source: str
    stream: str
    target: str
    grouping: Grouping
    fused: bool
    """Whether its tuples stay in the task that made them, whichever spout they come from."""

    @property
    def label(self) -> str:
        named = "" if self.stream == DEFAULT_STREAM else f"{self.stream}: "
        return f"{named}{self.grouping}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wiring:
    stage_of: Mapping[str, int]
    arrows: tuple[Arrow, ...]


def wiring_of(graph: ComponentGraph) -> Wiring:
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
    return Wiring(stage_of=stage_of, arrows=arrows)


def mermaid(graph: ComponentGraph, counts: Counts | None = None) -> str:
    """Draw a topology. Thick arrows pass an exchange; thin ones stay in the task that made the tuple."""
    wiring = wiring_of(graph)
    ids = {name: f"c{number}" for number, name in enumerate(wiring.stage_of)}
    lines = ["flowchart LR"]
    for stage in range(max(wiring.stage_of.values()) + 1):
        lines.append(f'  subgraph s{stage}["stage {stage}"]')
        lines += [
            f"    {ids[name]}{_box(graph[name], counts)}"
            for name, at in wiring.stage_of.items()
            if at == stage
        ]
        lines.append("  end")
    for arrow in wiring.arrows:
        line = _FUSED if arrow.fused else _EXCHANGED
        lines.append(f'  {ids[arrow.source]} {line}|"{_escaped(arrow.label)}"| {ids[arrow.target]}')
    return "\n".join(lines) + "\n"


def _box(component: ComponentSpec, counts: Counts | None) -> str:
    said = [component.name, kind_text(component)]
    said += [f"{name} {number}" for name, number in count_rows(component, counts)]
    text = '"' + "<br/>".join(_escaped(line) for line in said) + '"'
    if component.is_spout:
        return f"([{text}])"
    return f"[({text})]" if component.is_stateful else f"[{text}]"


def _escaped(text: str) -> str:
    return _SPECIAL.sub(lambda found: f"#{ord(found[0])};", text)
