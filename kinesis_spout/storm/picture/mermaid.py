"""Draws a topology as a Mermaid flowchart, for Markdown: a box for each component, a frame for each stage."""

import re
from collections.abc import Mapping
from typing import Final

from kinesis_spout.storm.graph.component_graph import Component, ComponentGraph
from kinesis_spout.storm.picture.wiring import count_rows, wiring_of
from kinesis_spout.storm.running.counts import ComponentCounts

_SPECIAL: Final = re.compile(r"[^\w .,:()/+=*-]")
"""What may mean something to Mermaid, or to HTML; written as the number of the character."""
_FUSED: Final = "-->"
_EXCHANGED: Final = "==>"


def mermaid(graph: ComponentGraph, counts: Mapping[str, ComponentCounts] | None = None) -> str:
    """Draw a topology. Thick arrows pass an exchange; thin ones stay in the task that made the tuple.

    Args:
        graph: the topology's.
        counts: what its components have done, to be written into their boxes; None leaves that out.
    """
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


def _box(component: Component, counts: Mapping[str, ComponentCounts] | None) -> str:
    said = [component.name, kind_text(component)]
    if counts is not None:
        rows = count_rows(counts.get(component.name, ComponentCounts()), is_spout=component.is_spout)
        said += [f"{name} {number}" for name, number in rows]
    text = '"' + "<br/>".join(_escaped(line) for line in said) + '"'
    if component.is_spout:
        return f"([{text}])"
    return f"[({text})]" if component.is_stateful else f"[{text}]"


def kind_text(component: Component) -> str:
    """Say what a component is: its class, how many tasks it has, whether it keeps state."""
    made_of = component.made_of
    tasks = "" if component.parallelism == 1 else f", {component.parallelism} tasks"
    state = ", state" if component.is_stateful else ""
    return f"{type(made_of).__name__}{tasks}{state}"


def _escaped(text: str) -> str:
    return _SPECIAL.sub(lambda found: f"#{ord(found[0])};", text)
