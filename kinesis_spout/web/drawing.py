"""Drawings as SVG, made of attributes and classes only: the content policy allows no style in a page."""

from collections.abc import Iterable, Sequence
from typing import Final

from markupsafe import Markup, escape

from kinesis_spout.operations.shards import ShardState
from kinesis_spout.operations.watch.sight import ShardSight
from kinesis_spout.web.wording import millis
from shard_state import Checkpoint

_WIDTH: Final = 1_000.0
_HASH_KEYS: Final = 1 << 128
_OPEN_TOP, _OPEN_HEIGHT = 28.0, 40.0
_CLOSED_TOP, _CLOSED_HEIGHT = 8.0, 8.0
_STALLED_ABOVE: Final = 8.0
"""A shard that stands still rises this far above the others: a sign besides its colour."""
_MIN_WIDTH: Final = 0.5
_MIN_STALLED_WIDTH: Final = 4.0
_MOST_WIDENED: Final = 100.0
"""The width of all that are drawn with that least width: many are seen without it, and would seem to be more."""
_GAP_BELOW: Final = 200
"""With fewer shards there is a gap between them."""
_LAG_STEPS_MILLIS: Final = (1_000, 10_000, 60_000, 600_000, 3_600_000)
"""One more step of the column that shows a lag for each that it reaches."""


def css_class(state: ShardState) -> str:
    return "s-" + state.name.lower().replace("_", "-")


def strip(sights: Sequence[ShardSight], href: str) -> str:
    """The shards over the space of hash keys: those that take records, and above them closed ones not yet over.

    One that stands still is taller, and wide enough to be seen alone. ``href`` leads to a shard when its id is
    added. The picture is for eyes and pointers: its links are those of the table, which a keyboard reaches.
    """
    gap = 1.0 if len(sights) < _GAP_BELOW else 0.0
    stalled = sum(each.state is ShardState.STALLED for each in sights)
    least_stalled = max(_MIN_WIDTH, min(_MIN_STALLED_WIDTH, _MOST_WIDENED / max(stalled, 1)))
    drawn = []
    for sight in reversed(sights):  # the most urgent lie on top
        view, state = sight.view, sight.state
        if view.hash_range is None or (view.closed and state is ShardState.OVER):
            continue
        first, last = view.hash_range
        is_stalled = state is ShardState.STALLED
        x = first * _WIDTH / _HASH_KEYS
        width = (last + 1 - first) * _WIDTH / _HASH_KEYS - gap
        width = max(least_stalled if is_stalled else _MIN_WIDTH, width)
        top, height = (_CLOSED_TOP, _CLOSED_HEIGHT) if view.closed else (_OPEN_TOP, _OPEN_HEIGHT)
        shard_id = escape(view.shard_id)
        lag = sight.lag_millis
        said = sight.reason if is_stalled else None if lag is None else f"lag {millis(lag)}"
        text = f"{shard_id}: {state.value}" + (f", {escape(said)}" if said else "")
        column = ""
        steps = sum(lag >= step for step in _LAG_STEPS_MILLIS) if lag else 0
        if steps:
            tall = height * steps / len(_LAG_STEPS_MILLIS)
            column = _rect("lag", x, top + height - tall, width, tall)
        above = _STALLED_ABOVE if is_stalled else 0.0
        drawn.append(
            f'<a href="{href}{shard_id}" tabindex="-1"><title>{text}</title>'
            f"{_rect(css_class(state), x, top - above, width, height + above)}{column}</a>"
        )
    has_closed = any(each.view.closed and each.state is not ShardState.OVER for each in sights)
    name, box = ("strip", "0 0 1000 70") if has_closed else ("strip open", "0 18 1000 52")
    return _svg(name, box, 'aria-hidden="true"', drawn)


def hole_map(checkpoint: Checkpoint) -> str | None:
    """Draw the finished runs and failed records beyond a checkpoint; None if none are known."""
    if checkpoint.is_shard_end or not (checkpoint.holes or checkpoint.attempts):
        return None
    base = checkpoint.base.number
    ends = [last.number for _, last in checkpoint.holes] + [each.number for each, _ in checkpoint.attempts]
    first = min([base, *ends]) if base > 0 else min(ends + [after.number for after, _ in checkpoint.holes])
    length = max(1, max(ends) - first)

    def place(number: int) -> float:
        return (max(number, first) - first) * _WIDTH / length

    runs = (
        _rect("hole", place(after.number), 6, max(2.0, place(last.number) - place(after.number)), 20)
        for after, last in checkpoint.holes
    )
    failed = (_rect("failed", max(0.0, place(each.number) - 2), 2, 4, 28) for each, _ in checkpoint.attempts)
    label = 'role="img" aria-label="finished runs and failed records beyond the checkpoint"'
    return _svg("holes", "0 0 1004 32", label, runs, failed)


def bar(done: int, total: int | None) -> str:
    """Draw the share of a whole that is done."""
    share = 0.0 if not total else min(1.0, done / total) * _WIDTH
    parts = (_rect("rail", 0, 0, _WIDTH, 8), _rect("done", 0, 0, share, 8))
    return _svg("bar", "0 0 1000 8", f'role="img" aria-label="{done} of {total or 0}"', parts)


def _svg(name: str, box: str, label: str, *parts: Iterable[str]) -> str:
    inside = "".join(part for group in parts for part in group)
    return Markup(  # noqa: S704 - made of numbers, names of this module and escaped texts
        f'<svg class="{name}" viewBox="{box}" preserveAspectRatio="none" {label}>{inside}</svg>'
    )


def _rect(name: str, x: float, y: float, width: float, height: float) -> str:
    return f'<rect class="{name}" x="{x:.1f}" y="{y:.4g}" width="{width:.1f}" height="{height:.4g}"/>'
