"""Draws a topology as an SVG picture: from left to right, a column for each step, a frame for each stage.

Text is monospaced, so that its width is known without the font. A name that is too long is cut; a browser
shows the whole of it under the pointer (the element's ``title``). Labels stand on the level part of their
arrow, between the curves and the box: neither boxes nor other arrows come there.
"""

from typing import Final

from kinesis_spout.storm.graph.component_graph import Component, ComponentGraph
from kinesis_spout.storm.picture.drawing import (
    BOLD_CHAR_WIDTH,
    CHAR_WIDTH,
    LABEL_HEIGHT,
    Drawing,
    columns,
    cut,
)
from kinesis_spout.storm.picture.layering import Item, layers_of
from kinesis_spout.storm.picture.wiring import Arrow, Counts, count_rows, kind_text, wiring_of

_LONGEST: Final = 30
_PADDING: Final = 14.0
_NAME_HEIGHT: Final = 20.0
_LINE_HEIGHT: Final = 16.0
_ABOVE_COUNTS: Final = 10.0
_LEAST_WIDTH: Final = 128.0
_BAD: Final = frozenset({"failed", "timed out", "acked twice"})
_MARGIN: Final = 16.0
_HEADING: Final = 58.0
_FRAME: Final = 16.0
_EXCHANGE: Final = 84.0
"""Between the frames of two stages: room for the line of the exchange and its name."""
_CURVE: Final = 56.0
"""The width in which an arrow within a stage comes to its height."""
_APART: Final = 24.0
_PASSING: Final = 2.0
_PORTS_APART: Final = LABEL_HEIGHT + 8.0
_LONGEST_LABEL: Final = 34


class _Box:
    def __init__(self, component: Component, counts: Counts | None, *, least_height: float) -> None:
        self._name = component.name
        self._kind = kind_text(component)
        self._is_spout = component.is_spout
        self._rows = count_rows(component, counts)
        rows_height = _ABOVE_COUNTS + len(self._rows) * _LINE_HEIGHT if self._rows else 0
        self._inside = _NAME_HEIGHT + _LINE_HEIGHT + rows_height
        widest = max(
            columns(cut(self._name, _LONGEST)) * BOLD_CHAR_WIDTH,
            columns(cut(self._kind, _LONGEST)) * CHAR_WIDTH,
            *(len(f"{name}  {number}") * CHAR_WIDTH for name, number in self._rows),
        )
        self.width = max(_LEAST_WIDTH, widest + 2 * _PADDING)
        self.height = max(least_height, self._inside + 2 * _PADDING - 4)

    def draw(self, drawing: Drawing, left: float, top: float) -> None:
        drawing.box(left, top, self.width, self.height, is_spout=self._is_spout)
        line = top + (self.height - self._inside) / 2 + 14
        drawing.text(left + _PADDING, line, cut(self._name, _LONGEST), "name", whole=self._name)
        line += _NAME_HEIGHT - 2
        drawing.text(left + _PADDING, line, cut(self._kind, _LONGEST), "kind", whole=self._kind)
        line += _ABOVE_COUNTS
        for name, number in self._rows:
            line += _LINE_HEIGHT
            bad = " bad" if name in _BAD and number != "0" else ""
            drawing.text(left + _PADDING, line, name, "kind")
            drawing.text(left + self.width - _PADDING, line, number, f"number end{bad}")


def svg(graph: ComponentGraph, counts: Counts | None = None, *, title: str = "topology") -> str:
    """Draw a topology. Dashed lines are exchanges; an arrow that passes none stays in the task of its tuple.

    The document is complete: no script, no font, no address. Light or dark as the reader's system is.
    """
    return _Picture(graph, counts, title).drawn()


class _Picture:
    def __init__(self, graph: ComponentGraph, counts: Counts | None, title: str) -> None:
        self._title = title
        self._wiring = wiring_of(graph)
        self._stages = [stage for stage, _ in self._wiring.columns]
        arriving = {
            name: sum(arrow.target == name for arrow in self._wiring.arrows) for name in self._wiring.stage_of
        }
        self._boxes = {
            name: _Box(graph[name], counts, least_height=arriving[name] * _PORTS_APART + LABEL_HEIGHT)
            for name in self._wiring.stage_of
        }
        self._layers = layers_of(
            [names for _, names in self._wiring.columns],
            [(arrow.source, arrow.target) for arrow in self._wiring.arrows],
            {name: box.height for name, box in self._boxes.items()},
            passing=_PASSING,
            apart=_APART,
        )
        self._top = _MARGIN + _HEADING + _FRAME
        self._height = max(
            self._layers.middle[item] + (self._boxes[item].height / 2 if isinstance(item, str) else 0)
            for column in self._layers.columns
            for item in column
        )
        self._place_columns()

    def _place_columns(self) -> None:
        self._labels_from: list[float] = []
        self._boxes_from: list[float] = []
        self._ends: list[float] = []
        for number, column in enumerate(self._layers.columns):
            if not number:
                start = _MARGIN + _FRAME
            elif self._is_first_of_stage(number):
                start = self._ends[-1] + _FRAME + _EXCHANGE + _FRAME
            else:
                start = self._ends[-1] + _CURVE
            labels = [arrow for arrow in self._wiring.arrows if arrow.target in column]
            longest = max((columns(_label(arrow)) for arrow in labels), default=0)
            self._labels_from.append(start)
            self._boxes_from.append(start + (longest * CHAR_WIDTH + 24.0 if longest else 0.0))
            width = max((self._boxes[item].width for item in column if isinstance(item, str)), default=0.0)
            self._ends.append(self._boxes_from[-1] + width)

    def _is_first_of_stage(self, column: int) -> bool:
        return not column or self._stages[column - 1] != self._stages[column]

    def drawn(self) -> str:
        width = max(self._ends[-1] + _FRAME + _MARGIN, columns(self._title) * CHAR_WIDTH * 1.4 + 2 * _MARGIN)
        drawing = Drawing(width, self._top + self._height + _FRAME + _MARGIN, self._title)
        drawing.text(_MARGIN, _MARGIN + 16, self._title, "title")
        self._draw_stages(drawing)
        for number, arrow in enumerate(self._wiring.arrows):
            self._draw_arrow(drawing, number, arrow)
        for column, left in zip(self._layers.columns, self._boxes_from, strict=True):
            for item in column:
                if isinstance(item, str):
                    box = self._boxes[item]
                    box.draw(drawing, left, self._top + self._layers.middle[item] - box.height / 2)
        return drawing.document()

    def _draw_stages(self, drawing: Drawing) -> None:
        top, bottom = self._top - _FRAME, self._top + self._height + _FRAME
        for number, stage in enumerate(self._stages):
            if self._is_first_of_stage(number):
                left = self._labels_from[number] - _FRAME
                last = max(at for at, other in enumerate(self._stages) if other == stage)
                drawing.frame(left, top, self._ends[last] + _FRAME - left, bottom - top)
                drawing.text(left + 2, top - 8, f"stage {stage}", "stage")
                if number:
                    line = left - _EXCHANGE / 2
                    drawing.exchange(line, top, bottom)
                    drawing.text(line, top - 8, "exchange", "stage middle")

    def _draw_arrow(self, drawing: Drawing, number: int, arrow: Arrow) -> None:
        path = self._layers.paths[number]
        at = {item: column for column, items in enumerate(self._layers.columns) for item in items}
        first, last = at[path[0]], at[path[-1]]
        points = [
            (self._boxes_from[first] + self._boxes[arrow.source].width, self._port(number, leaving=True))
        ]
        for item in path[1:-1]:
            height = self._top + self._layers.middle[item]
            points += [(self._labels_from[at[item]], height), (self._ends[at[item]], height)]
        height = self._port(number, leaving=False)
        points += [(self._labels_from[last], height), (self._boxes_from[last], height)]
        if self._boxes[arrow.source].width < self._ends[first] - self._boxes_from[first]:
            points.insert(1, (self._ends[first], points[0][1]))
        drawing.arrow(points, fused=arrow.fused)
        drawing.text(self._labels_from[last] + 6, height - 5, _label(arrow), "label", whole=arrow.label)

    def _port(self, number: int, *, leaving: bool) -> float:
        arrow = self._wiring.arrows[number]
        box = arrow.source if leaving else arrow.target

        def other_end(other: int) -> Item:
            return self._layers.paths[other][1 if leaving else -2]

        beside = sorted(
            (
                other
                for other, each in enumerate(self._wiring.arrows)
                if (each.source if leaving else each.target) == box
            ),
            key=lambda other: (self._layers.middle[other_end(other)], other),
        )
        apart = min(_PORTS_APART, self._boxes[box].height / (len(beside) + 1))
        from_middle = beside.index(number) - (len(beside) - 1) / 2
        return self._top + self._layers.middle[box] + from_middle * apart


def _label(arrow: Arrow) -> str:
    return cut(arrow.label, _LONGEST_LABEL)
