"""What a component reports of itself, whatever it is."""

import json
import math
import pickle
import threading
from collections.abc import Callable
from dataclasses import asdict
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from kinesis_spout.storm.running.counts import ComponentMetric


def reported(*values: Any) -> dict[str, Any]:
    """Report values, carry the metric to another process, and read it as a query tells it."""
    metric, together = ComponentMetric(), ComponentMetric()
    for value in values:
        metric.report(value)
    together.add(pickle.loads(pickle.dumps(metric)))
    told = asdict(together)
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    return told


@pytest.mark.parametrize(
    ("values", "total", "last"),
    [
        ((1, 2), 3, 2),
        ((1, 0.5), 1.5, 0.5),
        ((np.int64(3), np.float32(0.5)), 3.5, 0.5),
        ((Fraction(1, 2),), 0.5, 0.5),
        ((1, "text"), 1, "text"),
        ((1, True), 1, True),
        ((1, None), 1, None),
        ((1, Decimal("1.5")), 1, "1.5"),
        ((1, {"a": [1, 2]}), 1, {"a": [1, 2]}),
        ((1, math.nan, 2), 3, 2),
        ((1, math.nan), 1, None),
        ((1, -math.inf), 1, None),
        ((1, [math.nan]), 1, [None]),
        ((1.5, 10**400, 1), 2.5, 1),
        ((1, Fraction(10**400, 3), 1), 2, 1),
        ((1, {(1, 2): 3}), 1, {"(1, 2)": 3}),
        ((1, 10**400), 1, 10**400),
    ],
)
def test_numbers_are_summed_and_everything_is_shown_as_json_has_it(
    values: tuple[Any, ...], total: float, last: Any
) -> None:
    assert reported(*values) == {"count": len(values), "total": total, "last": last}


def in_itself() -> list[Any]:
    inner: list[Any] = []
    inner.append(inner)
    return inner


class Nameless:
    def __repr__(self) -> str:
        raise RuntimeError("no name")


@pytest.mark.parametrize(
    ("value", "last"),
    [
        (threading.Lock, "<unlocked _thread.lock object"),
        (lambda: (each for each in "ab"), "<generator object"),
        (in_itself, "[[...]]"),
        (lambda: "x" * 100_000, "'xxx"),
        (Nameless, "a Nameless"),
    ],
)
def test_what_json_does_not_have_is_shown_as_short_text(value: Callable[[], Any], last: str) -> None:
    told = reported(value())
    assert told["total"] == 0
    assert told["last"].startswith(last)
    assert len(told["last"]) <= 2_000
