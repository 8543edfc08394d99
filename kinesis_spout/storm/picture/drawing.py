"""The elements of the SVG picture, with their colours: in light, and in dark where the reader's system is."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final
from unicodedata import category, east_asian_width
from xml.etree import ElementTree as ET

CHAR_WIDTH: Final = 7.3
"""Of the text at 12 px: a little more than the widest usual font has."""
BOLD_CHAR_WIDTH: Final = 8.6
"""Of the names, at 14 px."""
LABEL_HEIGHT: Final = 14.0
_UNSEEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""The categories of characters that are controls, move others, or are unassigned."""
_ROUND: Final = 8.0
_HEAD: Final = 7.0

_STYLE: Final = """
  text { font-family: ui-monospace, "SF Mono", "Cascadia Mono", "DejaVu Sans Mono", Menlo, Consolas, monospace;
         font-size: 12px; fill: #1f2933 }
  .ground { fill: #ffffff } .frame { fill: #f3f5f8; stroke: #d5dbe3 }
  .title { font-size: 16px; font-weight: bold } .name { font-size: 14px; font-weight: bold }
  .stage, .kind, .label { fill: #52606d } .bad { fill: #b91c1c; font-weight: bold }
  .middle { text-anchor: middle } .end { text-anchor: end }
  .spout { fill: #dbeafe; stroke: #2563eb } .bolt { fill: #ffffff; stroke: #64748b }
  .fused, .exchanged { fill: none; stroke: #64748b; stroke-width: 1.5 } .exchanged { stroke: #c2410c }
  .head { fill: #64748b } .exchanged-head { fill: #c2410c }
  .exchange { stroke: #c2410c; stroke-width: 1.5; stroke-dasharray: 5 5 }
"""
_DARK: Final = """
    text { fill: #e4e7eb } .ground { fill: #14181d } .frame { fill: #1c2229; stroke: #323b46 }
    .stage, .kind, .label { fill: #a3b1c0 } .bad { fill: #fca5a5 }
    .spout { fill: #1e3a5f; stroke: #60a5fa } .bolt { fill: #262e38; stroke: #7b8794 }
    .fused { stroke: #94a3b8 } .exchanged { stroke: #fb923c }
    .head { fill: #94a3b8 } .exchanged-head { fill: #fb923c } .exchange { stroke: #fb923c }
"""


def cut(text: str, longest: int | None = None) -> str:
    """The visible characters of a text, cut in the middle to a width: ids often differ in their ends."""
    shown = "".join("\ufffd" if category(each) in _UNSEEN else each for each in text)
    if longest is None or columns(shown) <= longest:
        return shown
    ends = (longest - 1) // 2
    tail = next(shown[at:] for at in range(len(shown) + 1) if columns(shown[at:]) <= ends)
    head = next(shown[:at] for at in range(len(shown), -1, -1) if columns(shown[:at] + tail) < longest)
    return f"{head}…{tail}"


def columns(text: str) -> int:
    return len(text) + sum(east_asian_width(each) in "WF" for each in text)


class Drawing:
    def __init__(self, width: float, height: float, title: str) -> None:
        self._root = ET.Element(
            "svg",
            {
                "xmlns": "http://www.w3.org/2000/svg",
                "viewBox": f"0 0 {_number(width)} {_number(height)}",
                "role": "img",
                "width": _number(width),
                "height": _number(height),
            },
        )
        ET.SubElement(self._root, "title").text = cut(title)
        style = ET.SubElement(self._root, "style")
        style.text = f"{_STYLE}  @media (prefers-color-scheme: dark) {{{_DARK}  }}\n"
        self._add("rect", "ground", width=width, height=height)

    def text(self, left: float, line: float, text: str, kind: str, *, whole: str | None = None) -> None:
        """``whole`` is the text before it was cut."""
        element = self._add("text", kind, x=left, y=line)
        element.text = cut(text)
        if whole is not None and whole != text:
            ET.SubElement(element, "title").text = cut(whole)

    def frame(self, left: float, top: float, width: float, height: float) -> None:
        self._add("rect", "frame", x=left, y=top, width=width, height=height, rx=_ROUND)

    def box(self, left: float, top: float, width: float, height: float, *, is_spout: bool) -> None:
        kind, rounding = ("spout", 2.5 * _ROUND) if is_spout else ("bolt", _ROUND)
        self._add("rect", kind, x=left, y=top, width=width, height=height, rx=rounding)

    def exchange(self, left: float, top: float, bottom: float) -> None:
        self._add("line", "exchange", x1=left, x2=left, y1=top, y2=bottom)

    def arrow(self, points: Sequence[tuple[float, float]], *, fused: bool) -> None:
        steps = [f"M {_pair(*points[0])}"]
        for (x, y), (to_x, to_y) in pairwise(points):
            if abs(y - to_y) < 1:
                steps.append(f"L {_pair(to_x, to_y)}")
            else:
                middle = (x + to_x) / 2
                steps.append(f"C {_pair(middle, y)} {_pair(middle, to_y)} {_pair(to_x, to_y)}")
        self._add("path", "fused" if fused else "exchanged").set("d", " ".join(steps))
        x, y = points[-1]
        head = f"M {_pair(x, y)} L {_pair(x - _HEAD, y - _HEAD / 2)} L {_pair(x - _HEAD, y + _HEAD / 2)} Z"
        self._add("path", "head" if fused else "exchanged-head").set("d", head)

    def document(self) -> str:
        ET.indent(self._root)
        return ET.tostring(self._root, encoding="unicode") + "\n"

    def _add(self, tag: str, kind: str, **numbers: float) -> ET.Element:
        attributes = {name: _number(value) for name, value in numbers.items()}
        return ET.SubElement(self._root, tag, {"class": kind, **attributes})


def _pair(x: float, y: float) -> str:
    return f"{_number(x)},{_number(y)}"


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
