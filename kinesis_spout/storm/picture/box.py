"""The box of a component: its id, what it is, and its counts."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kinesis_spout.storm.graph.component_graph import Component
from kinesis_spout.storm.picture.count_rows import count_rows
from kinesis_spout.storm.picture.drawing import BOLD_CHAR_WIDTH, CHAR_WIDTH, Drawing, columns, cut
from kinesis_spout.storm.picture.mermaid import kind_text
from kinesis_spout.storm.running.component_counts import ComponentCounts

_LONGEST: Final = 30
_PADDING: Final = 14.0
_NAME_HEIGHT: Final = 20.0
_LINE_HEIGHT: Final = 16.0
_ABOVE_COUNTS: Final = 10.0
_LEAST_WIDTH: Final = 128.0
_BAD: Final = frozenset({"failed", "timed out", "acked twice"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """What a box shows, and how large it is."""

    name: str
    kind: str
    is_spout: bool
    rows: tuple[tuple[str, str], ...]
    width: float
    height: float

    def draw(self, drawing: Drawing, left: float, top: float) -> None:
        """Draw it with its upper left corner there."""
        drawing.box(left, top, self.width, self.height, is_spout=self.is_spout)
        inside = (
            _NAME_HEIGHT + _LINE_HEIGHT + (_ABOVE_COUNTS + len(self.rows) * _LINE_HEIGHT if self.rows else 0)
        )
        line = top + (self.height - inside) / 2 + 14
        drawing.text(left + _PADDING, line, cut(self.name, _LONGEST), "name", whole=self.name)
        line += _NAME_HEIGHT - 2
        drawing.text(left + _PADDING, line, cut(self.kind, _LONGEST), "kind", whole=self.kind)
        line += _ABOVE_COUNTS
        for name, number in self.rows:
            line += _LINE_HEIGHT
            bad = " bad" if name in _BAD and number != "0" else ""
            drawing.text(left + _PADDING, line, name, "kind")
            drawing.text(left + self.width - _PADDING, line, number, f"number end{bad}")


def box_of(component: Component, counts: Mapping[str, ComponentCounts] | None, *, least_height: float) -> Box:
    """Say what the box of a component shows, and how large it must be."""
    rows: list[tuple[str, str]] = []
    if counts is not None:
        rows = count_rows(counts.get(component.name, ComponentCounts()), is_spout=component.is_spout)
    kind = kind_text(component)
    widest = max(
        columns(cut(component.name, _LONGEST)) * BOLD_CHAR_WIDTH,
        columns(cut(kind, _LONGEST)) * CHAR_WIDTH,
        *(len(f"{name}  {number}") * CHAR_WIDTH for name, number in rows),
    )
    lines = _NAME_HEIGHT + _LINE_HEIGHT + (_ABOVE_COUNTS + len(rows) * _LINE_HEIGHT if rows else 0)
    return Box(
        name=component.name,
        kind=kind,
        is_spout=component.is_spout,
        rows=tuple(rows),
        width=max(_LEAST_WIDTH, widest + 2 * _PADDING),
        height=max(least_height, lines + 2 * _PADDING - 4),
    )
