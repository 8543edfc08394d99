"""Finds places for boxes in columns, so that few arrows cross: a small form of Sugiyama's method.

An arrow over several columns gets its own place in each column between, so that it never runs through a box.
The order within the columns comes from sweeps that put each item at the mean of its neighbours; the heights
too.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

Item = str | tuple[int, int]
"""A box by its name; or the place of an arrow in a column, by the arrow's number and the column's."""

_SWEEPS: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    columns: list[list[Item]]
    middle: Mapping[Item, float]
    """The height of the middle of each item; the topmost item begins at 0."""
    paths: list[list[Item]]
    """What each arrow passes, with the boxes at its two ends."""


def layers_of(
    columns: Sequence[Sequence[str]],
    arrows: Sequence[tuple[str, str]],
    heights: Mapping[str, float],
    *,
    passing: float,
    apart: float,
) -> Layers:
    """Place boxes, given by column, and arrows, each to a column further right.

    ``passing`` is the height of an arrow where it passes a column, ``apart`` the least distance in a column.
    """
    at = {name: number for number, column in enumerate(columns) for name in column}
    paths: list[list[Item]] = [
        [source, *((number, column) for column in range(at[source] + 1, at[target])), target]
        for number, (source, target) in enumerate(arrows)
    ]
    items: list[list[Item]] = [list(column) for column in columns]
    for path in paths:
        for item in path[1:-1]:
            items[int(item[1])].append(item)
    height = {
        item: heights[item] if isinstance(item, str) else passing for column in items for item in column
    }
    ordered = _ordered(items, paths)
    return Layers(columns=ordered, middle=_middles(ordered, paths, height, apart), paths=paths)


def _ordered(items: list[list[Item]], paths: list[list[Item]]) -> list[list[Item]]:
    before, after = _neighbours(paths)
    best, least = items, _crossings(items, paths)
    now = [list(column) for column in items]
    for sweep in range(_SWEEPS):
        neighbours = after if sweep % 2 else before
        for column in reversed(now) if sweep % 2 else now:
            rank = {item: index for other in now for index, item in enumerate(other)}
            column.sort(key=lambda item, rank=rank, near=neighbours: _mean(near[item], rank, rank[item]))  # type: ignore[misc]
        crossings = _crossings(now, paths)
        if crossings < least:
            best, least = [list(column) for column in now], crossings
    return best


def _neighbours(paths: list[list[Item]]) -> tuple[dict[Item, list[Item]], dict[Item, list[Item]]]:
    before: dict[Item, list[Item]] = defaultdict(list)
    after: dict[Item, list[Item]] = defaultdict(list)
    for path in paths:
        for left, right in pairwise(path):
            before[right].append(left)
            after[left].append(right)
    return before, after


def _mean(items: Sequence[Item], value: Mapping[Item, float], otherwise: float) -> float:
    return sum(value[item] for item in items) / len(items) if items else otherwise


def _crossings(columns: list[list[Item]], paths: list[list[Item]]) -> int:
    rank = {item: index for column in columns for index, item in enumerate(column)}
    column_of = {item: number for number, column in enumerate(columns) for item in column}
    steps: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for path in paths:
        for left, right in pairwise(path):
            steps[column_of[left]].append((rank[left], rank[right]))
    return sum(
        (a - c) * (b - d) < 0
        for here in steps.values()
        for number, (a, b) in enumerate(here)
        for c, d in here[:number]
    )


def _middles(
    columns: list[list[Item]], paths: list[list[Item]], height: Mapping[Item, float], apart: float
) -> dict[Item, float]:
    before, after = _neighbours(paths)
    middle: dict[Item, float] = {}
    for column in columns:
        middle |= _stacked(column, dict.fromkeys(column, 0.0), height, apart)
    for sweep in range(_SWEEPS):
        for column in reversed(columns) if sweep % 2 else columns:
            wanted = {item: _mean(before[item] + after[item], middle, middle[item]) for item in column}
            middle |= _stacked(column, wanted, height, apart)
    top = min(middle[item] - height[item] / 2 for item in middle)
    return {item: at - top for item, at in middle.items()}


def _stacked(
    column: Sequence[Item], wanted: Mapping[Item, float], height: Mapping[Item, float], apart: float
) -> dict[Item, float]:
    """Heights near the wanted ones, in the order of the column and far enough apart.

    Pushing down from the top and up from the bottom each keep the distances, and so does the mean of both.
    """
    down: list[float] = []
    for index, item in enumerate(column):
        least = wanted[item]
        if index:
            least = max(least, down[-1] + (height[column[index - 1]] + height[item]) / 2 + apart)
        down.append(least)
    up: list[float] = []
    for index, item in reversed(list(enumerate(column))):
        most = wanted[item]
        if up:
            most = min(most, up[-1] - (height[column[index + 1]] + height[item]) / 2 - apart)
        up.append(most)
    return {item: (low + high) / 2 for item, low, high in zip(column, down, reversed(up), strict=True)}
