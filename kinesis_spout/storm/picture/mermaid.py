"""Draws a topology as a Mermaid flowchart, for Markdown: a box for each component, a frame for each stage."""

import re
from typing import Final

from kinesis_spout.storm.graph.component_graph import Component, ComponentGraph
from kinesis_spout.storm.picture.wiring import Counts, count_rows, kind_text, wiring_of

_SPECIAL: Final = re.compile(r"[^\w .,:()/+=*-]")
"""What may mean something to Mermaid, or to HTML; written as the number of the character."""
_FUSED: Final = "-->"
_EXCHANGED: Final = "==>"


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


def _box(component: Component, counts: Counts | None) -> str:
    said = [component.name, kind_text(component)]
    said += [f"{name} {number}" for name, number in count_rows(component, counts)]
    text = '"' + "<br/>".join(_escaped(line) for line in said) + '"'
    if component.is_spout:
        return f"([{text}])"
    return f"[({text})]" if component.is_stateful else f"[{text}]"


def _escaped(text: str) -> str:
    return _SPECIAL.sub(lambda found: f"#{ord(found[0])};", text)
